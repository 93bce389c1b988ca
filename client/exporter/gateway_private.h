// SPDX-License-Identifier: Apache-2.0
// What gateway.c and gateway_request.c share. An exchange is one HTTP request, with one call, or up to GATEWAY_PARTS streams. It ends
// when its client is answered or gone and none of its calls is left.
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "client/stockade.h"
#include "server/base/list.h"
#include "gateway.h"

enum { GATEWAY_NAME_BYTES = 16 };

struct gateway {
    uv_loop_t *loop;
    struct stockade *s;
    uv_poll_t poll;
    uv_timer_t alive;
    bool closing, pumping, open;
    uint32_t streams_max;
    char *own; // "Bearer ..." of the environment; NULL: none. Owned
    struct arena *arena;
    struct list exchanges;
    uint32_t calls, streams;
    uint64_t count[GATEWAY_COUNTS];
};

struct gateway_exchange;

struct gateway_part {
    struct gateway_exchange *x;
    const struct gateway_method *method;
    char name[GATEWAY_NAME_BYTES];
    uint64_t call; // 0: it is not open
};

struct gateway_exchange {
    struct list node;
    struct gateway *g;
    struct http_request *r; // NULL: answered, ended or gone
    struct gateway_part part[GATEWAY_PARTS];
    uint32_t open; // parts
    bool stream, held;
};

// Refuses a request by the gateway itself. code: enum stockade_code.
void gateway_refuse(struct http_request *r, int code, const char *text, const char *hint);

// Answers with an error.
void gateway_answer_error(struct http_request *r, const struct stockade_error *e);

// A new exchange for a request; NULL: it was refused. The cookie of the request is not set.
struct gateway_exchange *gateway_exchange_new(struct gateway *g, struct http_request *r,
                                              bool stream);
void gateway_exchange_free(struct gateway_exchange *x);
void gateway_free_if_over(struct gateway_exchange *x);

// Ends the stream of an exchange; what is left of its calls ends later.
void gateway_end_stream(struct gateway_exchange *x);

// Begins the call of a part, whose method is set. bearer NULL: none.
int gateway_begin(struct gateway_part *p, const ProtobufCMessage *request, const char *bearer,
                  struct stockade_error *e);

// Says to the client of a stream that a part has ended, and ends the stream with the last of them.
void gateway_end_part(struct gateway_part *p, const struct stockade_error *e);
