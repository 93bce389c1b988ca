// SPDX-License-Identifier: Apache-2.0
// SP over tcp, which is a stream, from and to the whole messages that a websocket has: the peer's hello, which the
// negotiated subprotocol stands for, and the length before each message are added to what comes in, and taken off what
// goes out. Knows no transport, so that every split of the bytes can be tested.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/wire.h"

enum { MESSAGES_LENGTH_BYTES = 8 };

// What comes in. messages_in_init() before first use; it begins with the hello of a REQ socket.
struct messages_in {
    uint8_t head[MESSAGES_LENGTH_BYTES];
    size_t head_n, head_at;
    const uint8_t *body; // borrowed until it is read
    size_t body_n, body_at;
};
void messages_in_init(struct messages_in *m);

// The next message, when nothing is left of the last.
void messages_in_put(struct messages_in *m, const uint8_t *body, size_t n);

// Up to `room` bytes of the stream. 0: a message is needed.
size_t messages_in_read(struct messages_in *m, uint8_t *buf, size_t room);
bool messages_in_empty(const struct messages_in *m);

// What goes out. Zeroed before first use.
struct messages_out {
    bool greeted; // our hello has been taken off
    uint8_t length[MESSAGES_LENGTH_BYTES];
    size_t length_n;
    uint8_t *body; // where the message in progress goes; NULL: none is
    size_t body_n, body_at;
};

// Takes bytes of the stream, up to the end of a message. How many, or -1 when `alloc`, which is asked once for the room
// of each message, gave NULL. The stream is our own, so its lengths are right.
ptrdiff_t messages_out_take(struct messages_out *m, const uint8_t *p, size_t n,
                            uint8_t *(*alloc)(void *cookie, size_t n), void *cookie);

// The message is whole: it is the caller's, and the next one begins.
bool messages_out_whole(const struct messages_out *m);
void messages_out_next(struct messages_out *m);
