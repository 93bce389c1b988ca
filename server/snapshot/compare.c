// SPDX-License-Identifier: Apache-2.0
// See compare.h. The sandbox is held by the request to the spawner until its answer, and the operation on files ends with it.
#include "compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/fdpass.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/sandbox/sandbox.h"

enum { ARENA_MAX = 512 * 1024 };

struct compare {
    struct server *srv;
    struct sandbox *sandbox; // until the spawner has answered
    struct sandbox_states states;
    struct files_op *op; // NULL: not yet
    compare_done *done;
    void *cookie;
    uint32_t changes_max;
    size_t after_n;
    uint8_t after[];
};

void
compare_drop(struct compare *c)
{
    if (c == NULL)
        return;
    sandbox_states_forget(&c->states);
    if (c->op != NULL)
        files_drop(c->op);
    free(c);
}

static void
end(struct compare *c, const struct compare_page *page, const struct err *e)
{
    compare_done *done = c->done;
    void *cookie = c->cookie;
    free(c);
    done(cookie, page, e);
}

// The operation is dropped before `done` may begin another one.
static int
on_message(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct compare *c = cookie;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    ProtobufCMessage *m = NULL;
    if (a == NULL)
        return err_sys(e, ENOMEM, "compare files");
    int r =
        wire_unpack(&stockade__v1__snapshot_service_diff_response__descriptor, bytes, n, a, &m, e);
    if (r < 0) {
        e->code = ERR_INTERNAL;
        return r;
    }
    uint8_t *copy = malloc(n + 1);
    if (copy == NULL)
        return err_sys(e, ENOMEM, "compare files");
    memcpy(copy, bytes, n);
    const struct compare_page page = {(const Stockade__V1__SnapshotServiceDiffResponse *)m, copy,
                                      n};
    files_drop(c->op);
    end(c, &page, NULL);
    free(copy);
    return 0;
}

static int
on_data(void *cookie, const void *bytes, size_t n, struct err *e)
{
    (void)cookie;
    (void)bytes;
    (void)n;
    return err_set(e, ERR_INTERNAL, "stockade-files sent bytes that were not requested");
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct err none;
    (void)err_set(&none, ERR_INTERNAL, "stockade-files sent no response");
    end(cookie, NULL, why != NULL ? why : &none);
}

static const struct files_events events = {
    .message = on_message, .data = on_data, .ended = on_ended};

static void
on_states(void *cookie, int fds[SPAWN_FDS_MAX], const struct err *failed)
{
    struct compare *c = cookie;
    struct err e;
    Stockade__V1__SnapshotServiceDiffRequest m = STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_REQUEST__INIT;
    m.page_size = c->changes_max;
    m.page_token = (ProtobufCBinaryData){c->after_n, c->after};
    if (failed != NULL) {
        end(c, NULL, failed);
        return;
    }
    c->op = files_begin(c->srv->files, c->sandbox, FILES_DIFF, &m.base, &events, c, &e);
    if (c->op != NULL && files_pass(c->op, fds, STATE_FDS, &e) == 0)
        return;
    fdpass_close(fds, SPAWN_FDS_MAX);
    if (c->op != NULL)
        files_drop(c->op);
    end(c, NULL, &e);
}

int
compare_begin(struct sandbox *s, const struct compare_want *want, compare_done *done, void *cookie,
              struct compare **out, struct err *e)
{
    struct compare *c = calloc(1, sizeof *c + want->after_n);
    if (c == NULL)
        return err_sys(e, ENOMEM, "compare files");
    *c = (struct compare){.srv = sandboxes_server(s->all),
                          .sandbox = s,
                          .states = {.done = on_states, .cookie = c},
                          .done = done,
                          .cookie = cookie,
                          .changes_max = want->changes_max,
                          .after_n = want->after_n};
    if (want->after_n > 0)
        memcpy(c->after, want->after, want->after_n);
    int r = sandbox_states(s, want->from, want->to, &c->states, e);
    if (r < 0)
        free(c);
    else
        *out = c;
    return r;
}
