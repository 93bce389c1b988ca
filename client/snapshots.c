// SPDX-License-Identifier: Apache-2.0
// Snapshots (stockade_snapshots.h).
#include <stddef.h>

#include "proto/auto.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/snapshot_service.pb-c.h"

#define SERVICE "/stockade.v1.SnapshotService/"

// Three responses have the same form: one snapshot.
#define IS_LIKE_GET(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__SnapshotServiceGetResponse) &&             \
                       offsetof(type, snapshot) ==                                                 \
                           offsetof(Stockade__V1__SnapshotServiceGetResponse, snapshot),           \
                   "a response with one snapshot")
IS_LIKE_GET(Stockade__V1__SnapshotServiceCreateResponse);
IS_LIKE_GET(Stockade__V1__SnapshotServiceRestoreResponse);

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    static const Stockade__V1__Snapshot none = STOCKADE__V1__SNAPSHOT__INIT;
    const Stockade__V1__Snapshot *from =
        message != NULL ? (const Stockade__V1__Snapshot *)message : &none;
    (void)a;
    *(struct stockade_snapshot *)to = (struct stockade_snapshot){
        .sandbox_id = from->sandbox_id,
        .name = from->name,
        .created_ms = time_from(from->create_time),
        .bytes = from->bytes,
        .inodes = from->inodes,
        .total_bytes = from->total_bytes,
        .total_inodes = from->total_inodes,
        .current = from->current,
        .not_included = from->not_included,
        .not_included_n = from->n_not_included,
        .operations_ended = from->operations_ended,
        .kept_id = from->kept_id,
        .digest = from->digest,
        .template_name = from->template_,
        .copied_bytes = from->copied_bytes,
        .frozen_us = from->frozen_us,
        .unreadable = from->unreadable,
    };
    return true;
}

static bool
answer_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SnapshotServiceGetResponse *m =
        (const Stockade__V1__SnapshotServiceGetResponse *)from;
    return one_from(to, a, m->snapshot != NULL ? &m->snapshot->base : NULL);
}

static bool
all_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SnapshotServiceListResponse *m =
        (const Stockade__V1__SnapshotServiceListResponse *)from;
    struct stockade_snapshots *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->snapshots, m->n_snapshots, one_from);
}

// A call that is answered with a snapshot, or (out NULL) with nothing.
static int
ask(struct stockade *s, const char *method, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *response, const struct stockade_snapshot **out,
    struct stockade_error *e)
{
    const struct invocation i = {.method = method,
                                 .request = request,
                                 .response = response,
                                 .size = sizeof(struct stockade_snapshot),
                                 .read = answer_from};
    return invoke(s, &i, out, e);
}

static int
create(struct stockade *s, Stockade__V1__SnapshotServiceCreateRequest *m, const char *name,
       const struct stockade_snapshot **out, struct stockade_error *e)
{
    if (name != NULL)
        m->name = name;
    return ask(s, SERVICE "Create", &m->base,
               &stockade__v1__snapshot_service_create_response__descriptor, out, e);
}

int
stockade_snapshot_create(struct stockade *s, const char *sandbox, const char *name, bool stop,
                         const struct stockade_snapshot **out, struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceCreateRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    m.sandbox = sandbox;
    m.stop = stop;
    return create(s, &m, name, out, e);
}

int
stockade_snapshot_keep(struct stockade *s, const char *sandbox, const char *name, bool stop,
                       const struct stockade_snapshot **out, struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceCreateRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    m.sandbox = sandbox;
    m.stop = stop;
    m.keep = true;
    return create(s, &m, name, out, e);
}

int
stockade_snapshot_copy(struct stockade *s, const char *sandbox,
                       const struct stockade_copy_options *given,
                       const struct stockade_snapshot **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_copy_options o = STOCKADE_COPY_OPTIONS_INIT;
    Stockade__V1__SnapshotServiceCreateRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_CREATE_REQUEST__INIT;
    if (given != NULL && request_options(&o, sizeof o, given, &e) < 0)
        return error_from_err(error, &e);
    m.sandbox = sandbox;
    m.copy = true;
    m.copy_bytes_max = o.bytes_max;
    m.copy_ms_max = o.ms_max;
    m.keep = o.keep;
    return create(s, &m, o.name, out, error);
}

int
stockade_snapshot_get(struct stockade *s, const char *sandbox, const char *name,
                      const struct stockade_snapshot **out, struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceGetRequest m = STOCKADE__V1__SNAPSHOT_SERVICE_GET_REQUEST__INIT;
    m.sandbox = sandbox;
    m.name = name;
    return ask(s, SERVICE "Get", &m.base, &stockade__v1__snapshot_service_get_response__descriptor,
               out, e);
}

int
stockade_snapshot_list(struct stockade *s, const char *sandbox, const char *page,
                       const struct stockade_snapshots **out, struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceListRequest m = STOCKADE__V1__SNAPSHOT_SERVICE_LIST_REQUEST__INIT;
    m.sandbox = sandbox;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__snapshot_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = all_from};
    return invoke(s, &i, out, e);
}

int
stockade_snapshot_restore(struct stockade *s, const char *sandbox, const char *name, bool stop,
                          const struct stockade_snapshot **out, struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceRestoreRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_RESTORE_REQUEST__INIT;
    m.sandbox = sandbox;
    m.name = name;
    m.stop = stop;
    return ask(s, SERVICE "Restore", &m.base,
               &stockade__v1__snapshot_service_restore_response__descriptor, out, e);
}

int
stockade_snapshot_delete(struct stockade *s, const char *sandbox, const char *name,
                         struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceDeleteRequest m =
        STOCKADE__V1__SNAPSHOT_SERVICE_DELETE_REQUEST__INIT;
    m.sandbox = sandbox;
    m.name = name;
    return ask(s, SERVICE "Delete", &m.base,
               &stockade__v1__snapshot_service_delete_response__descriptor, NULL, e);
}

static bool
fork_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return sandbox_from(to, a, (const Stockade__V1__Sandbox *)from);
}

static bool
forks_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SandboxServiceForkResponse *m =
        (const Stockade__V1__SandboxServiceForkResponse *)from;
    struct stockade_sandboxes *all = to;
    all->next_page = "";
    return LIST_FROM(all->items, all->n, a, m->sandboxes, m->n_sandboxes, fork_from);
}

int
stockade_fork(struct stockade *s, const char *sandbox, const struct stockade_fork_options *given,
              const struct stockade_sandboxes **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_fork_options o = STOCKADE_FORK_OPTIONS_INIT;
    Stockade__V1__SandboxServiceForkRequest m = STOCKADE__V1__SANDBOX_SERVICE_FORK_REQUEST__INIT;
    if (given != NULL && request_options(&o, sizeof o, given, &e) < 0)
        return error_from_err(error, &e);
    m.id = sandbox;
    m.count = o.count;
    if (o.snapshot != NULL)
        m.snapshot = o.snapshot;
    m.stop = o.stop;
    m.ttl_ms = o.ttl_ms;
    m.copy = o.copy;
    m.copy_bytes_max = o.copy_bytes_max;
    m.copy_ms_max = o.copy_ms_max;
    const struct invocation i = {.method = "/stockade.v1.SandboxService/Fork",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__sandbox_service_fork_response__descriptor,
                                 .size = sizeof **out,
                                 .read = forks_from};
    return invoke(s, &i, out, error);
}
