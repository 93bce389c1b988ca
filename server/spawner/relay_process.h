// SPDX-License-Identifier: Apache-2.0
// The relay's process (../relay): started with the programs, and again on request of the broker.
#pragma once

#include "spawner.h"

// Starts it. Returns its socket for the broker (*owned* by the caller), or a negative errno.
int relay_process_start(struct spawner *s, struct err *e);

// Adds a feature line about the relay.
void relay_process_feature(struct spawn_features *f, bool runs, const struct err *why);

// RELAY: starts a new relay, after killing one that still runs.
void relay_process_again(struct spawner *s, struct slot *none, const struct spawn_request *q,
                         struct answer *a);
// At the spawner's end: kills the relay, because it would wait for the broker, which waits for the spawner.
void relay_process_stop(struct spawner *s);
// It has ended.
void relay_process_ended(struct spawner *s);
