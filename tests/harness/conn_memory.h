// SPDX-License-Identifier: Apache-2.0
// The RPC layer over an in-memory transport, for the tests of conn.c and idempotency.c: they control every byte and
// its time.
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sodium.h>

#include "proto/validate.h"
#include "proto/wire.h"
#include "server/rpc/calls.h"
#include "server/rpc/conn.h"
#include "server/rpc/dispatch.h"
#include "server/rpc/rpc.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"

enum { OUT_MAX = 1 << 20 };

// ---- the transport

struct transport_stream {
    void *conn;
    uint8_t *buf;
    size_t room;
    uint8_t out[OUT_MAX];
    size_t out_n, read_at, write_n;
    bool writing, closed, stalls, held;
};

// ---- the layer, with a method and a stream

struct memory_layer {
    uv_loop_t loop;
    struct server server;
    struct rpc *rpc;
    struct tenants tenants;
    struct call *last; // the handler's last call
    unsigned executed, cancelled;
};

extern struct memory_layer it;
extern const char create_method[];
extern const char watch_method[];

int set_up(void **state);
int tear_down(void **state);

// Delivers the transport's pending events until none is left.
void pump(struct transport_stream *s);
void give(struct transport_stream *s, const void *bytes, size_t n, size_t at_once);
void let_pass(uint64_t ms);
struct transport_stream *arrive(uint32_t uid);
struct transport_stream *open_one(uint32_t uid);
void leave(struct transport_stream *s);
void give_frame(struct transport_stream *s, uint32_t id, const Stockade__V1__Frame *f);
void give_kind(struct transport_stream *s, uint32_t id, Stockade__V1__FrameKind kind);
void give_call(struct transport_stream *s, uint32_t id, const char *key, const char *name);
void assert_next(struct transport_stream *s, uint32_t id, unsigned kind, int32_t code);
void reply(struct transport_stream *s);

#define DATA       STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA
#define END        STOCKADE__V1__FRAME_KIND__FRAME_KIND_END
#define GOAWAY     STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY
#define PONG       STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG
#define ID(n)      (WIRE_ID_REQUEST | (n))
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
