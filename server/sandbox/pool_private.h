// SPDX-License-Identifier: Apache-2.0
// Shared by pool.c (ready sandboxes, waiting requests) and pool_serve.c (gives a ready sandbox to a request).
#pragma once

#include "server/base/loop.h"
#include "pool.h"
#include "pool_queue.h"
#include "sandbox.h"
#include "template.h"

// The pool of one template.
struct template_pool {
    struct pool *pool;
    const struct template *template;
    struct list ready;
    uint32_t ready_n, making;
    struct pool_queue waiting;
    uint64_t back_off_ms; // 0: no delay
    uint32_t failures;    // consecutive
    struct err last;      // the last failure
    struct loop_timer *timer;
};

struct pool {
    struct server *srv;
    struct sandboxes *all;
    bool stopped;
    uint32_t waiting_n;
    uint32_t tpools_n;
    struct template_pool tpool[TEMPLATES_MAX]; // by template.number
};

struct pool_request {
    struct pool_entry place;
    struct template_pool *tpool;
    struct tenant *tenant;
    struct sandbox_spec spec;
    uint64_t since_ns;
    struct loop_timer *too_long;
    struct sandbox *sandbox;    // the spawner is changing its limits or its network
    struct pool_request **name; // the caller's pointer, set to NULL at the end
    struct sandbox_waiter waiter;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e);
    void *cookie;
};

// Fails the request and frees it. It must not be in the queue any more.
void pool_refuse(struct pool_request *r, const struct err *e);

// Gives a ready sandbox, which was removed from the pool, to the request.
void pool_serve(struct pool_request *r, struct sandbox *s);

// Removes it from the queue. Does nothing if it is not in it.
void pool_unqueue(struct pool_request *r);
