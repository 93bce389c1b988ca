// SPDX-License-Identifier: Apache-2.0
// Between pool.c (what is ready, who waits) and pool_serve.c (a ready sandbox becomes a request's).
#pragma once

#include "config.h"
#include "loop.h"
#include "pool.h"
#include "pool_queue.h"
#include "sandbox.h"

// What there is of one template.
struct shelf {
    struct pool *pool;
    const struct config_template *template;
    struct list ready;
    uint32_t ready_n, making;
    struct pool_queue waiting;
    uint64_t back_off_ms; // 0: none
    uint32_t failures;    // in a row
    struct err last;      // what the last of them was
    struct loop_timer *timer;
};

struct pool {
    struct server *srv;
    struct sandboxes *all;
    bool stopped;
    uint32_t waiting_n;
    uint32_t shelves_n;
    struct shelf shelf[CONFIG_TEMPLATES_MAX];
};

struct pool_request {
    struct pool_place place;
    struct shelf *shelf;
    struct owner *tenant;
    struct sandbox_spec spec;
    uint64_t since_ns;
    struct loop_timer *too_long;
    struct sandbox *sandbox;    // gets its limits or its network
    struct pool_request **name; // the caller's, emptied at the end
    struct sandbox_waiter waiter;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e);
    void *cookie;
};

// Tells the request that it failed; it is gone. It must not wait in the queue any more.
void pool_refuse(struct pool_request *r, const struct err *e);

// A ready sandbox, off the shelf, becomes the request's.
void pool_serve(struct pool_request *r, struct sandbox *s);

// Out of the queue; fine when it is not in it.
void pool_unqueue(struct pool_request *r);
