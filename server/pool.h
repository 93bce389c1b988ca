// SPDX-License-Identifier: Apache-2.0
// Ready sandboxes, kept per template, and the queue of those who want one.
//
// A request takes a ready sandbox; where its limits are others than the template's, the spawner applies them first.
// What was taken is made again in the background, a few at a time, and slower after each failure. When none is ready
// the request waits its turn; beyond quotas.queue it is refused. It waits no longer than the time that it asked for to run
// in, within POOL_WAIT_MIN_MS and POOL_WAIT_MAX_MS, and not at all while the spawner hangs. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../proto/err.h"

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
struct config_template;

// One for the broker, as long as it runs. Begins to fill.
struct pool *pool_new(struct server *srv, struct sandboxes *all);

// The spawner hangs: waiting requests fail (UNAVAILABLE). Or it answers again: missing sandboxes are made at once.
void pool_spawner(struct pool *p, bool hangs);

// True when sandboxes of a template cannot be made: the last POOL_FAILURES attempts failed, and none is ready. *why is what
// the last of them failed with.
bool pool_fails(const struct pool *p, struct err *why);

// No more sandboxes are made, waiting requests fail (UNAVAILABLE).
void pool_stop(struct pool *p);

// Gets a sandbox for `tenant`: done is called once, later or at once, with a RUNNING sandbox or with the failure. Takes
// spec->labels. On success *out names the request for pool_cancel(); it is set to NULL
// before done is called, so it must stay where it is until then.
int pool_acquire(struct pool *p, const char *tenant, struct sandbox_spec *spec,
                 void (*done)(void *cookie, struct sandbox *s, const struct err *e), void *cookie,
                 struct pool_request **out, struct err *e);

// The request is no longer wanted: `done` will not be called.
void pool_cancel(struct pool_request *r);

// For sandbox.c: a ready one is going away.
void pool_lost(struct pool *p, struct sandbox *s);

// Ready now, for a template.
// The configuration was read again: fills up to what it says now.
void pool_reloaded(struct pool *p);

uint32_t pool_ready(const struct pool *p, const struct config_template *t);
