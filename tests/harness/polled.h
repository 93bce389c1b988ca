// SPDX-License-Identifier: Apache-2.0
// A program with a poll loop, for tests of libstockade without a broker: one handle, one peer (peer.h), and what came.
#pragma once

#include "tests/harness/peer.h"

struct program {
    struct stockade *s;
    uint64_t call;
    int messages, ended;
    struct stockade_error error; // of the last end that failed
    bool ok;                     // the last end did not fail
    uint8_t response[8];
    size_t response_n;
    int (*on_first)(struct program *p); // called with the first message
};

// A call of METHOD, with the program's callbacks. Each message of a stream must be "data".
int program_begin(struct program *p, bool stream, uint32_t deadline_ms, uint32_t credit,
                  struct stockade_bytes body, struct stockade_error *e);
void program_begin_stream(struct program *p, uint32_t credit);
void program_on_end(void *cookie, const struct stockade_end *end);

// Sleeps in poll(2) only; the descriptor alone says when there is something to do.
void program_loop_until_ended(struct program *p, int ended);

void program_start(struct program *p, struct peer *peer, script *fn, int connections);
void program_stop(struct program *p, struct peer *peer);

// Greets, and sends one message to the first call.
void script_one_message(struct peer *p, int fd);
