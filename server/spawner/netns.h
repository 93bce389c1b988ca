// SPDX-License-Identifier: Apache-2.0
// Handlers of the operations inside a sandbox's network namespace.
#pragma once

#include "spawner.h"

void netns_open(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);
void netns_dial(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);
