// SPDX-License-Identifier: Apache-2.0
// The reader's process (../reader/read.h): started on request of the broker, and its own requests.
#pragma once

#include "spawner.h"

// READ: starts it. The reply has the broker's end of its socket.
void reader_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                          struct answer *a);
// Its socket is readable: ROOT, or end of file.
void reader_process_asks(struct spawner *s);
// It has ended.
void reader_process_ended(struct spawner *s);
