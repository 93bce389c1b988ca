// SPDX-License-Identifier: Apache-2.0
// The calls that stockade_pump() has something to pass on of, and the threads that wait for a change. Lock held.
#pragma once

#include <stdbool.h>

struct call;
struct stockade;

// A message or the end can be passed on now.
bool ready_is(const struct call *c);

// Puts the call at the end of the list, if that is so, it is not in it, and stockade_pump() passes it on.
void ready_add(struct call *c);

// Takes the first one off; there must be one.
struct call *ready_take(struct stockade *s);

// Something changed for other threads: wakes the one that polls, and those that wait for it.
void ready_wake(struct stockade *s);
