// SPDX-License-Identifier: Apache-2.0
// The fetcher's process (../fetcher/fetch.h), started on request of the broker, without any right.
#pragma once

#include "spawner.h"

// FETCHER: starts one. The reply has the broker's end of its socket.
void fetcher_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                           struct answer *a);
// Kills one that has had its time. Returns the milliseconds until then; -1: none runs.
int fetcher_process_look(struct spawner *s);
// It has ended: reaps it.
void fetcher_process_ended(struct spawner *s, int pid_fd);
