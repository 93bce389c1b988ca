// SPDX-License-Identifier: Apache-2.0
// What is done inside a sandbox's network namespace.
#pragma once

#include "spawner.h"

// By /proc/net/sockstat of a namespace, open: no socket exists there.
bool netns_has_no_sockets(int sockets_fd);

void netns_open(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);
void netns_dial(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct answer *a);
