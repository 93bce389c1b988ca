// SPDX-License-Identifier: Apache-2.0
// The broker's end, from the first signal on.
//
//   signal -> nothing new is taken, running jobs get `drain` -> every sandbox is removed -> over
//               '--second signal: at once------------------^
//
// Each step has a bound: a sandbox that does not go (a process in state D, a spawner that hangs) holds up the end for
// seconds only, and a watchdog ends the process where even the loop stands still. Loop thread only.
#pragma once

struct drain;
struct server;

// `over` is called once, when all is done that can be done. Owned by the broker, as long as it runs; NULL without memory.
struct drain *drain_new(struct server *srv, void (*over)(void *cookie), void *cookie);

// SIGTERM or SIGINT came.
void drain_signal(struct drain *d, int number);

// The process ends in so many seconds at the latest, with EX_SOFTWARE, whatever it is doing then.
void drain_watchdog(unsigned seconds);
