// SPDX-License-Identifier: Apache-2.0
// The descriptor that a program polls (stockade_fd()): an epoll descriptor over the socket, a timer for the nearest
// deadline, and a flag for work that is left. A handle without one pays nothing. Call everything here with the handle's
// lock held.
#pragma once

struct stockade;

// Unlocks the handle, and brings the descriptor up to date before: every part of the library unlocks with this.
void watch_unlock(struct stockade *s);

// stockade_pump() begins: the flag and the timer have done their duty.
void watch_quiet(struct stockade *s);

// The connection is about to be closed.
void watch_forget(struct stockade *s);

void watch_close(struct stockade *s);
