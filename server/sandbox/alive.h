// SPDX-License-Identifier: Apache-2.0
// The health of the broker, for HealthService and systemd's watchdog.
//
// It is not healthy while it shuts down, while the spawner does not respond, while sandboxes of a template cannot be
// created, and after its state directory was removed. Loop thread only.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

struct alive;
struct server;

// Starts to check, once a second. With WATCHDOG_USEC (sd_watchdog_enabled(3)) it sends keep-alive messages to systemd
// as long as the spawner responds; without them systemd restarts the unit. state_dir is borrowed. NULL: out of memory.
struct alive *alive_new(struct server *srv, const char *state_dir);

// False: *why is the reason, in one sentence.
bool alive_serves(const struct alive *a, struct err *why);

// Checks now, because something has changed.
void alive_look(struct alive *a);

// Stops the checks and the messages to systemd. Accepts NULL.
void alive_stop(struct alive *a);
void alive_free(struct alive *a); // accepts NULL
