// SPDX-License-Identifier: Apache-2.0
// The relay's process (../relay): started with the programs, and again when the broker asks.
#pragma once

#include "spawner.h"

// Starts it. Its socket, for the broker, or a negative errno. *owned* by the caller.
int relay_process_start(struct spawner *s, struct err *e);

// Says in the features whether there is one.
void relay_process_tell(struct spawn_features *f, bool runs, const struct err *why);

// RELAY: a new one; one that runs still is killed first.
void relay_process_again(struct spawner *s, struct slot *none, const struct spawn_request *q,
                         struct answer *a);
// At our own end: kills it, since it would wait for the broker, who waits for us.
void relay_process_stop(struct spawner *s);
// It has ended.
void relay_process_ended(struct spawner *s);
