// SPDX-License-Identifier: Apache-2.0
// Ready sandboxes, kept per template, and the queue of requests for one.
//
// A request takes a ready sandbox; if its limits differ from the template's, the spawner applies them first. Sandboxes
// that were taken are replaced in the background, a few at a time, and more slowly after each failure. If none is
// ready, the request waits its turn; beyond quotas.queue it is refused. It waits at most for its own timeout, within
// POOL_WAIT_MIN_MS and POOL_WAIT_MAX_MS, and not at all while the spawner does not respond. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    POOL_WAIT_MIN_MS = 10 * 1000,
    POOL_WAIT_MAX_MS = 60 * 1000,
    POOL_FAILURES = 3,
};

struct pool;
struct pool_request;
struct sandbox;
struct sandbox_spec;
struct sandboxes;
struct server;
struct template;

// Creates the pool of the broker. It stays empty until pool_reloaded().
struct pool *pool_new(struct server *srv, struct sandboxes *all);

// The spawner does not respond: waiting requests fail (UNAVAILABLE). Or it responds again: missing sandboxes are
// created at once.
void pool_spawner(struct pool *p, bool hangs);

// True if sandboxes of a template cannot be created: the last POOL_FAILURES attempts failed, and none is ready. *why is
// the last failure.
bool pool_fails(const struct pool *p, struct err *why);

// Stops: no more sandboxes are created, waiting requests fail (UNAVAILABLE).
void pool_stop(struct pool *p);
// Call it when no sandbox is left. Accepts NULL.
void pool_free(struct pool *p);

// Gets a sandbox for `tenant`: calls done once, later or immediately, with a RUNNING sandbox or with the failure. Takes
// spec->labels. On success *out is the request for pool_cancel(); it is set to NULL before done is called, so it must
// not move until then.
int pool_acquire(struct pool *p, const char *tenant, struct sandbox_spec *spec,
                 void (*done)(void *cookie, struct sandbox *s, const struct err *e), void *cookie,
                 struct pool_request **out, struct err *e);

// Cancels a request: `done` will not be called.
void pool_cancel(struct pool_request *r);

// The configuration was read: fills the pools accordingly. Ready sandboxes whose template now has another root or
// other limits are replaced. Requests for a template that has no root any more fail (NOT_FOUND).
void pool_reloaded(struct pool *p);

// Requests wait, and the broker has as many sandboxes as it may have: who keeps one for further use should give it up.
bool pool_is_short(const struct pool *p);

// Time that the oldest waiting request has waited, in nanoseconds; 0: none waits.
uint64_t pool_oldest_wait_ns(struct pool *p);

// Number of ready sandboxes of a template.
uint32_t pool_ready(const struct pool *p, const struct template *t);

// ---- pool_warm.c: sandboxes with an interpreter that runs already (template.warm)

// What the layer above does for a new sandbox before it is ready. Registered once, at start; without it none is warm.
struct pool_warmer {
    // Starts its interpreter. Negative: it cannot; otherwise pool_warmed() follows, unless the sandbox is destroyed before.
    int (*begin)(void *cookie, struct sandbox *s, struct err *e);
    void *cookie;
};
void pool_set_warmer(struct pool *p, const struct pool_warmer *w);

// e NULL: it is warm; otherwise it is ready without an interpreter.
void pool_warmed(struct pool *p, struct sandbox *s, const struct err *e);

// For people: a module could not be imported. Shown until the template's list changes.
void pool_warm_failed(struct pool *p, const struct template *t, const char *why);

struct pool_warmth {
    uint32_t n; // warm ones that are ready
    // Memory of the last one when it had become warm; 0: not known.
    uint64_t bytes_each;
    const char *failed; // ""; or why something could not be imported, or sandboxes are not warm
};
void pool_warmth(const struct pool *p, const struct template *t, struct pool_warmth *out);
