// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SandboxService.Fork: translation between its messages and server/snapshot/fork.h.
#include "fork.h"

#include <stdlib.h>

#include "convert.h"
#include "server/base/server.h"
#include "server/snapshot/fork.h"

struct pending {
    struct call *call;
    struct fork_op *op;
    bool over; // done was called before fork_begin() returned
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    fork_cancel(p->op);
    free(p);
}

static void
reply(struct call *c, const struct fork_result *r)
{
    const size_t n = r->n;
    Stockade__V1__SandboxServiceForkResponse response =
        STOCKADE__V1__SANDBOX_SERVICE_FORK_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__Sandbox **all = a == NULL ? NULL : arena_alloc(a, (n + 1) * sizeof(void *));
    bool ok = all != NULL;
    for (size_t i = 0; i < n && ok; i++)
        ok = (all[i] = convert_sandbox(a, r->forks[i])) != NULL;
    response.sandboxes = all;
    response.n_sandboxes = n;
    response.copied_bytes = r->cost.bytes;
    response.frozen_us = r->cost.frozen_us;
    if (ok)
        call_reply(c, &response.base);
    else
        convert_no_memory(c);
}

static void
on_done(void *cookie, const struct fork_result *r, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply(p->call, r);
    if (p->op == NULL)
        p->over = true;
    else
        free(p);
}

void
sandbox_fork(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceForkRequest *m =
        (const Stockade__V1__SandboxServiceForkRequest *)req;
    const struct fork_request q = {.snapshot = m->snapshot,
                                   .count = m->count != 0 ? m->count : 1,
                                   .how = {m->stop, m->copy, m->copy_bytes_max, m->copy_ms_max},
                                   .ttl_ms = m->ttl_ms};
    struct err e;
    struct fork_op *op = NULL;
    if (convert_check_copy(m->copy, m->stop, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->id, &e);
    struct pending *p = sb == NULL ? NULL : calloc(1, sizeof *p);
    if (p == NULL) {
        if (sb != NULL)
            convert_no_memory(c);
        else
            call_fail(c, &e);
        return;
    }
    p->call = c;
    if (fork_begin(sb, s->pool, &q, on_done, p, &op, &e) < 0) {
        call_fail(c, &e);
        free(p);
    } else if (p->over) {
        free(p);
    } else {
        p->op = op;
        call_watch(c, on_cancel, NULL, p);
    }
}
