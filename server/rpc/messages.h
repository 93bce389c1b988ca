// SPDX-License-Identifier: Apache-2.0
// Converts between the SP wire of tcp, a stream, and the whole messages of a websocket. Adds to the input, and removes
// from the output, the hello (the negotiated subprotocol replaces it) and the length before each message. Independent
// of the transport, so that tests can try every split of the bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire.h"

enum { MESSAGES_LENGTH_BYTES = 8 };

// Input. Call messages_in_init() before first use; it starts with the hello of a REQ socket.
struct messages_in {
    uint8_t head[MESSAGES_LENGTH_BYTES];
    size_t head_n, head_at;
    const uint8_t *body; // borrowed until it is read
    size_t body_n, body_at;
};
void messages_in_init(struct messages_in *m);

// Sets the next message, when the previous one was read completely.
void messages_in_put(struct messages_in *m, const uint8_t *body, size_t n);

// Reads up to `room` bytes of the stream. 0: the next message is needed.
size_t messages_in_read(struct messages_in *m, uint8_t *buf, size_t room);
bool messages_in_empty(const struct messages_in *m);

// Output. Zeroed before first use.
struct messages_out {
    bool greeted; // our hello was removed
    uint8_t length[MESSAGES_LENGTH_BYTES];
    size_t length_n;
    uint8_t *body; // memory of the message in progress; NULL: none
    size_t body_n, body_at;
};

// Consumes bytes of the stream, up to the end of a message. Returns how many, or -1 if `alloc`, which is called once
// for the memory of each message, returned NULL. The stream is our own, so its lengths are right.
ptrdiff_t messages_out_take(struct messages_out *m, const uint8_t *p, size_t n,
                            uint8_t *(*alloc)(void *cookie, size_t n), void *cookie);

// True: the message is complete and belongs to the caller; messages_out_next() begins the next one.
bool messages_out_whole(const struct messages_out *m);
void messages_out_next(struct messages_out *m);
