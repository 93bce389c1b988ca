// SPDX-License-Identifier: Apache-2.0
// Shared by pool.c (ready sandboxes, waiting requests) and pool_serve.c (gives a ready sandbox to a request).
#pragma once

#include "server/base/loop.h"
#include "pool.h"
#include "pool_queue.h"
#include "sandbox.h"
#include "template.h"

enum {
    POOL_MAKING_MAX = 4, // at a time, per template: the spawner makes them one after the other
};

// The pool of one template.
struct template_pool {
    struct pool *pool;
    const struct template *template;
    bool to_order; // it has no ready ones: pool_order.c
    struct list ready;
    uint32_t ready_n, making;
    struct list warming;
    uint32_t warming_n, warm_n; // warm_n of the ready ones are warm
    uint64_t warm_bytes;        // of one
    char warm_failed[256];
    uint32_t warm_failed_version;
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
    uint32_t processors;
    struct loop_timer *pace; // set: a request waits because its tenant begins others
    struct pool_warmer warmer;
    uint32_t tpools_n;
    // By template.number; behind them those that are to order.
    struct template_pool tpool[2 * TEMPLATES_MAX];
};

struct pool_request {
    struct pool_entry entry;
    struct template_pool *tpool;
    struct tenant *tenant;
    struct sandbox_spec spec;
    uint64_t since_ns;
    struct loop_timer *too_long;
    struct pool_order *order;   // it is being made for this request
    struct sandbox *sandbox;    // the spawner is changing its limits or its network
    struct pool_request **name; // the caller's pointer, set to NULL at the end
    struct sandbox_waiter waiter;
    void *laying; // of the image: it gets its files, and has been taken
    bool taken;
    void (*done)(void *cookie, struct sandbox *s, const struct err *e);
    void *cookie;
};

// Fails the request and frees it. It must not be in the queue any more.
void pool_refuse(struct pool_request *r, const struct err *e);

// Gives a ready sandbox, which was removed from the pool, to the request.
void pool_serve(struct pool_request *r, struct sandbox *s);

// Removes it from the queue. Does nothing if it is not in it.
void pool_unqueue(struct pool_request *r);

static inline struct pool_request *
pool_request_of(struct pool_entry *p)
{
    return list_entry(p, struct pool_request, entry);
}

// pool_full.c: the words for a queue that is full; for a template that is gone.
int pool_say_full(struct pool *p, struct err *e);
int pool_say_removed(const struct template *t, struct err *e);
// Makes room in the queue for another request of the tenant. If the queue is full, the tenant with the most requests loses its newest one,
// if it still has more than this tenant then.
bool pool_make_room(struct pool *p, const char *tenant);

// pool_pace.c: whether the tenant may begin another sandbox now (pace.h). NULL: a tenant that has nothing yet. If not, the requests that wait are
// tried again later.
bool pool_may_begin(struct pool *p, struct tenant *t);
// A tenant may begin another sandbox: the requests that wait for that are tried in the next turn of the loop.
void pool_has_room(struct pool *p);
// A sandbox that a tenant had is removed completely: the requests that wait for that are tried in the next turn of the loop.
void pool_has_left(struct pool *p);
// Whether the tenant has requests in the queue for that reason: a new one goes behind them.
bool pool_is_behind(const struct template_pool *tpool, const struct tenant *t);
uint32_t pool_processors(void);
// Whether a request waits that may begin.
bool pool_is_wanted(struct template_pool *tpool);

// pool.c: gives ready sandboxes to requests that may begin.
void pool_serve_ready(struct template_pool *tpool);
// pool.c: it is ready. Gives it to the request that has waited longest, if there is one.
void pool_add_ready(struct template_pool *tpool, struct sandbox *s);
void pool_refill(struct template_pool *tpool);
// pool.c: no more can be made at the moment: those that have waited for long fail, and it is tried again later.
void pool_cannot_make(struct template_pool *tpool, const struct err *e);
// pool.c: the next waiting request, removed from the queue; may: NULL, or which ones. NULL: none.
struct pool_request *pool_take(struct template_pool *tpool,
                               bool (*may)(void *cookie, struct pool_entry *p), void *cookie);
// pool.c: of sandboxes that are in a pool, or were.
extern const struct sandbox_maker pool_maker;
// Whether a sandbox matches its template as configured now.
bool pool_is_current(const struct template_pool *tpool, const struct sandbox *s);
void pool_discard(struct sandbox *s);

// pool_warm.c: true if its interpreter is being started: it becomes ready later.
bool pool_warm_begin(struct template_pool *tpool, struct sandbox *s);
// True while the first of a template is made and becomes warm: nobody knows yet how many there is room for.
bool pool_warm_measures(const struct template_pool *tpool);
// It leaves the pool.
void pool_warm_leaves(struct template_pool *tpool, const struct sandbox *s);
// Whether a ready sandbox can be given to a request with these limits: a warm one has used memory already.
bool pool_warm_fits(const struct template_pool *tpool, const struct limits *l);

// pool_order.c: whether no ready sandbox can become what a request wants.
bool pool_is_to_order(const struct sandbox_spec *spec);
// Begins to make those that requests wait for.
void pool_order_refill(struct template_pool *tpool);
// The request is being freed.
void pool_order_forget(struct pool_request *r);
