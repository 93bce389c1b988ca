// SPDX-License-Identifier: Apache-2.0
// The fetchers' processes (../fetcher/fetch.h), started on request of the broker, without any right.
#pragma once

#include "spawner.h"

// FETCHER: starts one. The reply has the broker's end of its socket.
void fetcher_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                           struct answer *a);
// One has ended: reaps it.
void fetcher_process_ended(struct spawner *s, int pid_fd);
