// SPDX-License-Identifier: Apache-2.0
// SnapshotService.Diff and DiffFile: two states of the files of a sandbox from the spawner go to stockade-files, the program
// inside the sandbox, which compares them. What it sends is unpacked and checked like a client's message.
#include "diff.h"

#include <errno.h>
#include <stdlib.h>

#include "convert.h"
#include "proto/fdpass.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/snapshot/snapshots.h"
#include "stockade/v1/snapshot_service.pb-c.h"

enum { ARENA_MAX = 512 * 1024 };

// Both requests begin like this.
struct between {
    ProtobufCMessage base;
    const char *sandbox_id, *first, *second;
};
#define BEGINS_LIKE_IT(name)                                                                       \
    _Static_assert(offsetof(Stockade__V1__SnapshotService##name##Request, second) ==               \
                       offsetof(struct between, second),                                           \
                   "its first fields are the sandbox and the two states")
BEGINS_LIKE_IT(Diff);
BEGINS_LIKE_IT(DiffFile);

// A call, first until the spawner answers, then until the program does.
struct comparison {
    struct call *call;
    struct server *server;
    struct sandbox *sandbox; // until the spawner has answered
    struct sandbox_states states;
    const ProtobufCMessage *request; // of the call
    enum files_method method;
    struct files_op *op; // NULL: not yet
    const ProtobufCMessageDescriptor *response;
};

static bool
is_stream(const struct comparison *w)
{
    return w->method == FILES_DIFF_FILE;
}

static int
on_message(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct comparison *w = cookie;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    ProtobufCMessage *m = NULL;
    int r = convert_unpack(w->response, bytes, n, a, &m, e);
    if (r < 0)
        return r;
    if (is_stream(w))
        return call_send(w->call, m);
    struct files_op *op = w->op;
    call_reply(w->call, m);
    free(w);
    files_drop(op);
    return 0;
}

static int
on_data(void *cookie, const void *bytes, size_t n, struct err *e)
{
    const struct comparison *w = cookie;
    Stockade__V1__SnapshotServiceDiffFileResponse m =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_FILE_RESPONSE__INIT;
    if (!is_stream(w))
        return err_set(e, ERR_INTERNAL, "stockade-files sent bytes that were not requested");
    m.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
    return call_send(w->call, &m.base);
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct comparison *w = cookie;
    convert_end(w->call, is_stream(w), why);
    free(w);
}

static const struct files_events events = {
    .message = on_message, .data = on_data, .ended = on_ended};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct comparison *w = cookie;
    (void)why;
    sandbox_states_forget(&w->states);
    if (w->op != NULL)
        files_drop(w->op);
    free(w);
}

static void
on_writable(void *cookie)
{
    const struct comparison *w = cookie;
    if (w->op != NULL)
        files_go_on(w->op);
}

static void
on_states(void *cookie, int fds[SPAWN_FDS_MAX], const struct err *failed)
{
    struct comparison *w = cookie;
    struct err e;
    if (failed != NULL) {
        e = *failed;
    } else {
        w->op = files_begin(w->server->files, w->sandbox, w->method, w->request, &events, w, &e);
        if (w->op != NULL && files_pass(w->op, fds, STATE_FDS, &e) == 0)
            return;
        fdpass_close(fds, SPAWN_FDS_MAX);
        if (w->op != NULL)
            files_drop(w->op);
    }
    call_fail(w->call, &e);
    free(w);
}

// 0 stands for the files of now.
static int
layer_of(const struct sandbox *s, const char *name, uint32_t *layer, struct err *e)
{
    const struct snapshot *p = name[0] != '\0' ? snapshots_find(s, name, e) : NULL;
    *layer = p != NULL ? p->layer : 0;
    return name[0] != '\0' && p == NULL ? err_errno(e) : 0;
}

static void
begin(struct server *s, struct call *c, enum files_method method, const ProtobufCMessage *request,
      const ProtobufCMessageDescriptor *response)
{
    const struct between *m = (const struct between *)request;
    struct err e;
    uint32_t first, second;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox_id, &e);
    if (sb == NULL || layer_of(sb, m->first, &first, &e) < 0 ||
        layer_of(sb, m->second, &second, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct comparison *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    *w = (struct comparison){.call = c,
                             .server = s,
                             .sandbox = sb,
                             .states = {.done = on_states, .cookie = w},
                             .request = request,
                             .method = method,
                             .response = response};
    if (sandbox_states(sb, first, second, &w->states, &e) < 0) {
        call_fail(c, &e);
        free(w);
        return;
    }
    call_watch(c, on_cancel, on_writable, w);
}

void
diff_states(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    begin(s, c, FILES_DIFF, req, &stockade__v1__snapshot_service_diff_response__descriptor);
}

void
diff_file(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    begin(s, c, FILES_DIFF_FILE, req,
          &stockade__v1__snapshot_service_diff_file_response__descriptor);
}
