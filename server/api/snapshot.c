// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SnapshotService: translation between its messages and server/snapshot/snapshots.h.
#include <errno.h>
#include <stdlib.h>

#include "api.h"
#include "convert.h"
#include "diff.h"
#include "page.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/snapshot/snapshots.h"
#include "stockade/v1/snapshot_service.pb-c.h"

// Create or Restore, until it is done.
struct pending {
    struct call *call;
    struct snapshot_op *op;
    const ProtobufCMessageDescriptor *answer;
    uint32_t ended; // operations on files
};

// What snapshot_service.proto says in its head, for the answer.
static const char *const not_included[] = {
    "processes and their memory",
    "System V IPC objects and POSIX message queues",
    "open connections and terminals",
    "limits, labels and the network policy with its counters",
};

// NULL: out of memory.
static Stockade__V1__Snapshot *
convert_snapshot(struct arena *a, const struct sandbox *s, const struct snapshot *p)
{
    const size_t n = sizeof not_included / sizeof not_included[0];
    Stockade__V1__Snapshot *m = wire_make(a, &stockade__v1__snapshot__descriptor);
    if (m == NULL || (m->not_included = arena_alloc(a, n * sizeof(char *))) == NULL)
        return NULL;
    m->sandbox_id = s->id.id;
    m->name = p->name;
    m->create_time =
        wire_make_time(a, p->created_ms / 1000, (int32_t)(p->created_ms % 1000) * 1000000);
    m->bytes = p->bytes;
    m->inodes = p->inodes;
    m->total_bytes = p->bytes_in_all;
    m->total_inodes = p->inodes_in_all;
    m->current = snapshots_current(s) == p;
    m->n_not_included = n;
    for (size_t i = 0; i < n; i++)
        m->not_included[i] = not_included[i];
    return m->create_time != NULL ? m : NULL;
}

// Create, Get and Restore respond with a message of one field.
static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct sandbox *s,
      const struct snapshot *p, uint32_t ended)
{
    Stockade__V1__SnapshotServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__SnapshotServiceCreateResponse) &&
                       sizeof response == sizeof(Stockade__V1__SnapshotServiceRestoreResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    response.snapshot = a != NULL && p != NULL ? convert_snapshot(a, s, p) : NULL;
    if (response.snapshot != NULL)
        response.snapshot->operations_ended = ended;
    if (p != NULL && response.snapshot == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

// The sandbox that a request names; NULL: the call has failed.
static struct sandbox *
find(const struct server *s, struct call *c, const char *id)
{
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), id, &e);
    if (sb == NULL)
        call_fail(c, &e);
    return sb;
}

// It goes on; nobody waits for it.
static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    snapshot_unwait(p->op);
    free(p);
}

static void
on_done(void *cookie, struct sandbox *s, const struct snapshot *made, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply(p->call, p->answer, s, made, p->ended);
    free(p);
}

static void
begin(struct server *s, struct call *c, struct sandbox *sb, const char *name, bool stop,
      const ProtobufCMessageDescriptor *answer,
      int (*fn)(struct sandbox *, const char *, bool, snapshot_done *, void *,
                struct snapshot_op **, struct err *))
{
    struct err e;
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        convert_no_memory(c);
        return;
    }
    *p = (struct pending){.call = c, .answer = answer};
    if (fn(sb, name, stop, on_done, p, &p->op, &e) < 0) {
        call_fail(c, &e);
        free(p);
        return;
    }
    (void)err_set(&e, ERR_ABORTED, "the sandbox is getting another layer of files");
    p->ended = files_cut_off(s->files, sb, &e);
    call_watch(c, on_cancel, NULL, p);
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceCreateRequest *m =
        (const Stockade__V1__SnapshotServiceCreateRequest *)req;
    struct sandbox *sb = find(s, c, m->sandbox);
    if (sb != NULL)
        begin(s, c, sb, m->name, m->stop,
              &stockade__v1__snapshot_service_create_response__descriptor, snapshots_create);
}

static void
restore(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceRestoreRequest *m =
        (const Stockade__V1__SnapshotServiceRestoreRequest *)req;
    struct sandbox *sb = find(s, c, m->sandbox);
    if (sb != NULL)
        begin(s, c, sb, m->name, m->stop,
              &stockade__v1__snapshot_service_restore_response__descriptor, snapshots_restore);
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceGetRequest *m =
        (const Stockade__V1__SnapshotServiceGetRequest *)req;
    struct err e;
    const struct sandbox *sb = find(s, c, m->sandbox);
    const struct snapshot *p = sb == NULL ? NULL : snapshots_find(sb, m->name, &e);
    if (p != NULL)
        reply(c, &stockade__v1__snapshot_service_get_response__descriptor, sb, p, 0);
    else if (sb != NULL)
        call_fail(c, &e);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceListRequest *m =
        (const Stockade__V1__SnapshotServiceListRequest *)req;
    Stockade__V1__SnapshotServiceListResponse response =
        STOCKADE__V1__SNAPSHOT_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    struct err e;
    const struct sandbox *sb = find(s, c, m->sandbox);
    if (sb == NULL)
        return;
    if (page_begin(&p, m->page_size, m->page_token, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct list *all = snapshots_of(sb);
    for (struct list *it = all == NULL ? NULL : all->next; it != all; it = it->next) {
        const struct snapshot *one = list_entry(it, struct snapshot, node);
        if (one->order <= p.last)
            continue;
        if (!page_has_room(&p) || !page_add(&p, one->order, convert_snapshot(p.arena, sb, one)))
            break;
    }
    response.snapshots = p.elements;
    response.n_snapshots = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceDeleteRequest *m =
        (const Stockade__V1__SnapshotServiceDeleteRequest *)req;
    Stockade__V1__SnapshotServiceDeleteResponse response =
        STOCKADE__V1__SNAPSHOT_SERVICE_DELETE_RESPONSE__INIT;
    struct err e;
    struct sandbox *sb = find(s, c, m->sandbox);
    if (sb == NULL)
        return;
    if (snapshots_delete(sb, m->name, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, &response.base);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.SnapshotService/" name,                                                      \
            &stockade__v1__snapshot_service_##message##_request__descriptor,                       \
            &stockade__v1__snapshot_service_##message##_response__descriptor, handler              \
    }

const struct call_method snapshot_methods[] = {
    METHOD("Create", create, create),  METHOD("Get", get, get),
    METHOD("List", list, list),        METHOD("Restore", restore, restore),
    METHOD("Diff", diff, diff_states), METHOD("DiffFile", diff_file, diff_file),
    METHOD("Delete", delete, delete),  {0},
};
