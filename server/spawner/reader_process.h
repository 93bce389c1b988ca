// SPDX-License-Identifier: Apache-2.0
// The reader's process (../reader/read.h): started when the broker asks, and what it asks for in turn.
#pragma once

#include "spawner.h"

// READ: starts it. Answered with the broker's end of its socket.
void reader_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                          struct answer *a);
// Its socket has something: ROOT, or its end.
void reader_process_asks(struct spawner *s);
// It has ended.
void reader_process_ended(struct spawner *s);
