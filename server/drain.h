// SPDX-License-Identifier: Apache-2.0
// The shutdown of the broker, from the first signal on.
//
//   signal -> new jobs are refused, running jobs have the time `drain` -> every sandbox is removed
//               '--second signal: immediately-----------------------------^        |
//                                `over` <- calls that only watch get the last events, and end
//
// Each step has a timeout: a sandbox that cannot be removed (a process in state D, a spawner that does not respond)
// delays the end for a few seconds only, and a watchdog ends the process even if the loop does not run. Loop thread
// only.
#pragma once

#include <stdbool.h>

struct drain;
struct server;

// `over` is called once, at the end of the shutdown. Owned: drain_free(). NULL: out of memory.
struct drain *drain_new(struct server *srv, void (*over)(void *cookie), void *cookie);
void drain_free(struct drain *d); // accepts NULL

// SIGTERM or SIGINT arrived.
void drain_signal(struct drain *d, int number);

// At the end: frees the sandboxes that are left, without waiting for the spawner, which removes them when its socket
// closes. Runs the loop for a second at most. False: some could not be freed.
bool drain_abandon(struct server *srv);

// Ends the process after this number of seconds at the latest, with EX_SOFTWARE.
void drain_watchdog(unsigned seconds);
