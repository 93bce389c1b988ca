// SPDX-License-Identifier: Apache-2.0
// Between spawn.c (the socket, what is without an answer) and spawn_requests.c (the operations).
#pragma once

#include "spawn.h"

// Sends a request, or queues it while the socket is full. What is promised is that of the request functions in spawn.h.
int spawn_ask(struct spawn *s, const struct spawn_request *q, spawn_done *done, void *cookie,
              struct err *e);
