// SPDX-License-Identifier: Apache-2.0
// Shared by spawn.c (the socket, open requests) and spawn_requests.c (the operations).
#pragma once

#include "spawn.h"

// Sends a request, or queues it while the socket is full. See the request functions in spawn.h.
int spawn_ask(struct spawn *s, const struct spawn_request *q, spawn_done *done, void *cookie,
              struct err *e);
