// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SnapshotService: translation between its messages and server/snapshot/snapshots.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "diff.h"
#include "page.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/kept.h"
#include "server/snapshot/snapshots.h"
#include "stockade/v1/snapshot_service.pb-c.h"

// Create or Restore, until it is done.
struct pending {
    struct server *s;
    struct call *call;
    struct snapshot_op *op;
    struct kept_op *kept; // NULL: it has not begun
    bool keep;
    char sandbox[ID_TEXT_MAX + 1], name[SNAPSHOT_NAME];
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
make_snapshot(struct arena *a, int64_t created_ms)
{
    const size_t n = sizeof not_included / sizeof not_included[0];
    Stockade__V1__Snapshot *m = wire_make(a, &stockade__v1__snapshot__descriptor);
    if (m == NULL || (m->not_included = arena_alloc(a, n * sizeof(char *))) == NULL)
        return NULL;
    m->create_time = wire_make_time(a, created_ms / 1000, (int32_t)(created_ms % 1000) * 1000000);
    m->n_not_included = n;
    for (size_t i = 0; i < n; i++)
        m->not_included[i] = not_included[i];
    return m->create_time != NULL ? m : NULL;
}

static bool
add_digest(struct arena *a, const struct stored *r, Stockade__V1__Snapshot *m)
{
    char digest[STORE_DIGEST_TEXT];
    store_digest_all(r, digest);
    m->digest = arena_copy(a, digest, strlen(digest));
    return m->digest != NULL;
}

static Stockade__V1__Snapshot *
convert_kept(struct arena *a, const struct stored *r)
{
    Stockade__V1__Snapshot *m = make_snapshot(a, r->created_ms);
    if (m == NULL)
        return NULL;
    m->sandbox_id = r->sandbox;
    m->name = r->name;
    m->total_bytes = stored_bytes(r);
    m->total_inodes = stored_entries(r);
    m->kept_id = r->id;
    m->template_ = r->template;
    m->unreadable = !stored_can_be_read(r);
    return add_digest(a, r, m) ? m : NULL;
}

static Stockade__V1__Snapshot *
convert_snapshot(struct arena *a, const struct sandbox *s, const struct snapshot *p)
{
    const struct store *store = sandboxes_server(s->all)->store;
    const struct stored *r =
        store == NULL ? NULL : store_find(store, s->tenant->name, STORE_SNAPSHOT, p->name);
    Stockade__V1__Snapshot *m = make_snapshot(a, p->created_ms);
    if (m == NULL)
        return NULL;
    m->sandbox_id = s->id.id;
    m->name = p->name;
    m->bytes = p->bytes;
    m->inodes = p->inodes;
    m->total_bytes = p->bytes_in_all;
    m->total_inodes = p->inodes_in_all;
    m->current = snapshots_current(s) == p;
    m->copied_bytes = p->copied_bytes;
    m->frozen_us = p->frozen_us;
    if (r == NULL || strcmp(r->sandbox, s->id.id) != 0)
        return m;
    m->kept_id = r->id;
    m->template_ = r->template;
    return add_digest(a, r, m) ? m : NULL;
}

// Create, Get and Restore respond with a message of one field: a snapshot of a sandbox, or (p NULL) a kept one.
static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct sandbox *s,
      const struct snapshot *p, const struct stored *r, uint32_t ended)
{
    const bool any = p != NULL || r != NULL;
    Stockade__V1__SnapshotServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__SnapshotServiceCreateResponse) &&
                       sizeof response == sizeof(Stockade__V1__SnapshotServiceRestoreResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    if (a != NULL && any)
        response.snapshot = p != NULL ? convert_snapshot(a, s, p) : convert_kept(a, r);
    if (response.snapshot != NULL)
        response.snapshot->operations_ended = ended;
    if (any && response.snapshot == NULL)
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
    if (p->kept != NULL)
        kept_unwait(p->kept);
    else
        snapshot_unwait(p->op);
    free(p);
}

// A snapshot that was to be kept, and is not.
static void
forget(struct pending *p)
{
    struct err ignored;
    struct sandbox *s = sandbox_find(p->s->sandboxes, call_tenant(p->call), p->sandbox, &ignored);
    if (s != NULL && s->state != SANDBOX_DELETING)
        (void)snapshots_delete(s, p->name, &ignored);
}

static void
on_kept(void *cookie, struct stored *r, const struct err *e)
{
    struct pending *p = cookie;
    struct err ignored;
    struct sandbox *s = sandbox_find(p->s->sandboxes, call_tenant(p->call), p->sandbox, &ignored);
    const struct snapshot *made = s == NULL ? NULL : snapshots_find(s, p->name, &ignored);
    if (e != NULL) {
        forget(p);
        call_fail(p->call, e);
    } else {
        reply(p->call, p->answer, s, made, r, p->ended);
    }
    free(p);
}

static int
keep(struct pending *p, struct sandbox *s, const struct snapshot *made, struct err *e)
{
    const struct kept_want want = {.kind = STORE_SNAPSHOT, .id = "", .name = made->name};
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", s->id.id);
    (void)snprintf(p->name, sizeof p->name, "%s", made->name);
    int rc = kept_begin(s, made->layer, &want, on_kept, p, &p->kept, e);
    if (rc < 0)
        forget(p);
    return rc;
}

static void
on_laid(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply(p->call, p->answer, s, NULL,
              store_find(p->s->store, call_tenant(p->call), STORE_SNAPSHOT, p->name), p->ended);
    free(p);
}

static void
on_done(void *cookie, struct sandbox *s, const struct snapshot *made, const struct err *e)
{
    struct pending *p = cookie;
    struct err failed;
    if (e == NULL && made != NULL && p->keep && keep(p, s, made, &failed) == 0)
        return;
    if (e != NULL || (made != NULL && p->keep))
        call_fail(p->call, e != NULL ? e : &failed);
    else
        reply(p->call, p->answer, s, made, NULL, p->ended);
    free(p);
}

static struct pending *
pending_new(struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL)
        convert_no_memory(c);
    else
        *p = (struct pending){.s = s, .call = c, .answer = answer};
    return p;
}

// Operations on files that the new layer cuts off: they end with the reason.
static void
cut_off(struct pending *p, struct sandbox *sb)
{
    struct err e;
    (void)err_set(&e, ERR_ABORTED, "the sandbox is getting another layer of files");
    p->ended = files_cut_off(p->s->files, sb, &e);
}

// Waits for what was begun (rc 0), or fails.
static void
begun(struct pending *p, int rc, const struct err *e)
{
    if (rc == 0) {
        call_watch(p->call, on_cancel, NULL, p);
        return;
    }
    call_fail(p->call, e);
    free(p);
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceCreateRequest *m =
        (const Stockade__V1__SnapshotServiceCreateRequest *)req;
    struct err e;
    struct sandbox *sb = find(s, c, m->sandbox);
    struct pending *p =
        sb == NULL ? NULL
                   : pending_new(s, c, &stockade__v1__snapshot_service_create_response__descriptor);
    if (p == NULL)
        return;
    p->keep = m->keep;
    const struct while_jobs_run how = {m->stop, m->copy, m->copy_bytes_max, m->copy_ms_max};
    const bool copies = m->copy && sb->jobs_n > 0;
    int rc = convert_check_copy(m->copy, m->stop, &e);
    if (rc == 0 && m->keep)
        rc = store_available(s->store, &e);
    if (rc == 0)
        rc = snapshots_create(sb, m->name, &how, on_done, p, &p->op, &e);
    if (rc == 0 && !copies)
        cut_off(p, sb);
    begun(p, rc, &e);
}

static bool
has(const struct sandbox *s, const char *name)
{
    struct err ignored;
    return snapshots_find(s, name, &ignored) != NULL;
}

static void
restore(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceRestoreRequest *m =
        (const Stockade__V1__SnapshotServiceRestoreRequest *)req;
    struct err e, ignored;
    struct sandbox *sb = find(s, c, m->sandbox);
    struct pending *p =
        sb == NULL
            ? NULL
            : pending_new(s, c, &stockade__v1__snapshot_service_restore_response__descriptor);
    if (p == NULL)
        return;
    struct stored *r = has(sb, m->name) ? NULL : kept_find(s, call_tenant(c), m->name, &ignored);
    if (r != NULL)
        (void)snprintf(p->name, sizeof p->name, "%s", r->id);
    int rc = r != NULL ? kept_lay(sb, r, m->stop, on_laid, p, &p->kept, &e)
                       : snapshots_restore(sb, m->name, m->stop, on_done, p, &p->op, &e);
    if (rc == 0)
        cut_off(p, sb);
    begun(p, rc, &e);
}

static void
get_kept(struct server *s, struct call *c, const char *name)
{
    struct err e;
    const struct stored *r = kept_find(s, call_tenant(c), name, &e);
    if (r == NULL)
        call_fail(c, &e);
    else
        reply(c, &stockade__v1__snapshot_service_get_response__descriptor, NULL, NULL, r, 0);
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceGetRequest *m =
        (const Stockade__V1__SnapshotServiceGetRequest *)req;
    struct err e;
    if (m->sandbox[0] == '\0') {
        get_kept(s, c, m->name);
        return;
    }
    const struct sandbox *sb = find(s, c, m->sandbox);
    const struct snapshot *p = sb == NULL ? NULL : snapshots_find(sb, m->name, &e);
    if (p != NULL)
        reply(c, &stockade__v1__snapshot_service_get_response__descriptor, sb, p, NULL, 0);
    else if (sb != NULL)
        call_fail(c, &e);
}

static void
list_of(struct page *p, const struct sandbox *sb)
{
    struct list *all = snapshots_of(sb);
    for (struct list *it = all == NULL ? NULL : all->next; it != all; it = it->next) {
        const struct snapshot *one = list_entry(it, struct snapshot, node);
        if (one->order <= p->last)
            continue;
        if (!page_has_room(p) || !page_add(p, one->order, convert_snapshot(p->arena, sb, one)))
            break;
    }
}

static void
list_kept(struct page *p, const struct server *s, const char *tenant)
{
    if (s->store == NULL)
        return;
    list_each(it, store_records(s->store))
    {
        const struct stored *r = list_entry(it, struct stored, node);
        if (r->order <= p->last || r->dropped || r->kind != STORE_SNAPSHOT ||
            strcmp(r->tenant->name, tenant) != 0)
            continue;
        if (!page_has_room(p) || !page_add(p, r->order, convert_kept(p->arena, r)))
            break;
    }
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceListRequest *m =
        (const Stockade__V1__SnapshotServiceListRequest *)req;
    Stockade__V1__SnapshotServiceListResponse response =
        STOCKADE__V1__SNAPSHOT_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    const struct sandbox *sb = m->sandbox[0] == '\0' ? NULL : find(s, c, m->sandbox);
    if (sb == NULL && m->sandbox[0] != '\0')
        return;
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    if (sb != NULL)
        list_of(&p, sb);
    else
        list_kept(&p, s, call_tenant(c));
    response.snapshots = p.elements;
    response.n_snapshots = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void
reply_deleted(struct call *c)
{
    Stockade__V1__SnapshotServiceDeleteResponse response =
        STOCKADE__V1__SNAPSHOT_SERVICE_DELETE_RESPONSE__INIT;
    call_reply(c, &response.base);
}

static void
on_dropped(void *cookie, struct stored *r, const struct err *e)
{
    struct pending *p = cookie;
    (void)r;
    if (p->call != NULL && e != NULL)
        call_fail(p->call, e);
    else if (p->call != NULL)
        reply_deleted(p->call);
    free(p);
}

static void
on_drop_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    p->call = NULL;
}

static void
delete_kept(struct server *s, struct call *c, const char *name)
{
    struct err e;
    struct stored *r = kept_find(s, call_tenant(c), name, &e);
    struct pending *p = r == NULL ? NULL : pending_new(s, c, NULL);
    if (r == NULL) {
        call_fail(c, &e);
    } else if (p != NULL && store_drop(s->store, r, on_dropped, p, &e) < 0) {
        call_fail(c, &e);
        free(p);
    } else if (p != NULL) {
        call_watch(c, on_drop_cancel, NULL, p);
    }
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SnapshotServiceDeleteRequest *m =
        (const Stockade__V1__SnapshotServiceDeleteRequest *)req;
    struct err e;
    if (m->sandbox[0] == '\0') {
        delete_kept(s, c, m->name);
        return;
    }
    struct sandbox *sb = find(s, c, m->sandbox);
    if (sb == NULL)
        return;
    if (snapshots_delete(sb, m->name, &e) < 0)
        call_fail(c, &e);
    else
        reply_deleted(c);
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
