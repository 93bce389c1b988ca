// SPDX-License-Identifier: Apache-2.0
// Whether the broker can do its work, said to whoever asks: HealthService, and systemd's watchdog.
//
// It cannot while it drains, while the spawner hangs, while sandboxes of a template cannot be made, and once its state
// directory was deleted. Loop thread only.
#pragma once

#include <stdbool.h>

#include "../proto/err.h"

struct alive;
struct server;

// Begins to look, once a second. With WATCHDOG_USEC (sd_watchdog_enabled(3)) systemd is told so as long as the spawner
// answers; without that it restarts the unit. NULL without memory.
struct alive *alive_new(struct server *srv);

// False: *why is the reason, one sentence.
bool alive_serves(const struct alive *a, struct err *why);

// Looks now: something has changed.
void alive_look(struct alive *a);

// No more looks, and nothing is told to systemd from now on. NULL is fine.
void alive_stop(struct alive *a);
