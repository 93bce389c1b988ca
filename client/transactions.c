// SPDX-License-Identifier: Apache-2.0
// Transactions, and differences between states of files (stockade_transactions.h).
#include <stddef.h>
#include <string.h>

#include "proto/auto.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/transaction_service.pb-c.h"

#define SERVICE "/stockade.v1.TransactionService/"

// All responses but that of List have the same form.
#define IS_LIKE_GET(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__TransactionServiceGetResponse) &&          \
                       offsetof(type, transaction) ==                                              \
                           offsetof(Stockade__V1__TransactionServiceGetResponse, transaction),     \
                   "a response with one transaction")
IS_LIKE_GET(Stockade__V1__TransactionServiceBeginResponse);
IS_LIKE_GET(Stockade__V1__TransactionServiceCommitResponse);
IS_LIKE_GET(Stockade__V1__TransactionServiceDiscardResponse);

// ---- changes

static bool
path_from(struct stockade_path *to, struct arena *a, const ProtobufCBinaryData *from)
{
    char *copy = arena_alloc(a, from->len + 1);
    if (copy == NULL)
        return false;
    if (from->len > 0)
        memcpy(copy, from->data, from->len);
    copy[from->len] = '\0';
    *to = (struct stockade_path){copy, from->len};
    return true;
}

static bool
side_from(struct stockade_changed_file *to, struct arena *a, const Stockade__V1__File *from)
{
    static const Stockade__V1__File none = STOCKADE__V1__FILE__INIT;
    const Stockade__V1__File *m = from != NULL ? from : &none;
    *to =
        (struct stockade_changed_file){.type = (uint32_t)m->type, .mode = m->mode, .size = m->size};
    return path_from(&to->target, a, &m->target);
}

bool
change_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Change *m = (const Stockade__V1__Change *)from;
    struct stockade_change *c = to;
    *c = (struct stockade_change){
        .kind = (uint32_t)m->kind, .contents = m->contents, .unreadable = m->unreadable};
    return path_from(&c->path, a, &m->path) && side_from(&c->before, a, m->before) &&
           side_from(&c->after, a, m->after);
}

static bool
changes_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SnapshotServiceDiffResponse *m =
        (const Stockade__V1__SnapshotServiceDiffResponse *)from;
    struct stockade_changes *all = to;
    return path_from(&all->next_page, a, &m->next_page_token) &&
           LIST_FROM(all->items, all->n, a, m->changes, m->n_changes, change_from);
}

int
stockade_diff(struct stockade *s, const struct stockade_states *states,
              const struct stockade_path *after, const struct stockade_changes **out,
              struct stockade_error *e)
{
    Stockade__V1__SnapshotServiceDiffRequest m = STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_REQUEST__INIT;
    m.sandbox_id = states->sandbox;
    m.first = states->first;
    if (states->second != NULL)
        m.second = states->second;
    if (states->path != NULL)
        m.path = (ProtobufCBinaryData){strlen(states->path), (uint8_t *)(uintptr_t)states->path};
    if (after != NULL)
        m.page_token = (ProtobufCBinaryData){after->n, (uint8_t *)(uintptr_t)after->bytes};
    const struct invocation i = {.method = "/stockade.v1.SnapshotService/Diff",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__snapshot_service_diff_response__descriptor,
                                 .size = sizeof **out,
                                 .read = changes_from};
    return invoke(s, &i, out, e);
}

// ---- transactions

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    static const Stockade__V1__Transaction none = STOCKADE__V1__TRANSACTION__INIT;
    const Stockade__V1__Transaction *m =
        message != NULL ? (const Stockade__V1__Transaction *)message : &none;
    struct stockade_path *paths = arena_alloc(a, (m->n_conflicts + 1) * sizeof *paths);
    bool good = paths != NULL;
    for (size_t i = 0; i < m->n_conflicts && good; i++)
        good = path_from(&paths[i], a, &m->conflicts[i]);
    *(struct stockade_transaction *)to = (struct stockade_transaction){
        .id = m->id,
        .sandbox_id = m->sandbox_id,
        .created_ms = time_from(m->create_time),
        .policy = (uint32_t)m->policy,
        .state = (uint32_t)m->state,
        .refused = m->refused,
        .conflicts = paths,
        .conflicts_n = m->n_conflicts,
    };
    return good;
}

bool
outcome_from(struct stockade_outcome_of_transaction *to, struct arena *a,
             const Stockade__V1__TransactionOutcome *m)
{
    to->more = m->more;
    to->unknown = m->unknown;
    return one_from(&to->transaction, a, m->transaction != NULL ? &m->transaction->base : NULL) &&
           LIST_FROM(to->changes, to->changes_n, a, m->changes, m->n_changes, change_from);
}

static bool
answer_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__TransactionServiceGetResponse *m =
        (const Stockade__V1__TransactionServiceGetResponse *)from;
    return one_from(to, a, m->transaction != NULL ? &m->transaction->base : NULL);
}

static bool
all_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__TransactionServiceListResponse *m =
        (const Stockade__V1__TransactionServiceListResponse *)from;
    struct stockade_transactions *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->transactions, m->n_transactions, one_from);
}

static int
ask(struct stockade *s, const char *method, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *response, const struct stockade_transaction **out,
    struct stockade_error *e)
{
    const struct invocation i = {.method = method,
                                 .request = request,
                                 .response = response,
                                 .size = sizeof **out,
                                 .read = answer_from};
    return invoke(s, &i, out, e);
}

int
stockade_transaction_begin(struct stockade *s, const char *sandbox, bool stop, uint64_t ttl_ms,
                           const struct stockade_transaction **out, struct stockade_error *e)
{
    Stockade__V1__TransactionServiceBeginRequest m =
        STOCKADE__V1__TRANSACTION_SERVICE_BEGIN_REQUEST__INIT;
    m.sandbox = sandbox;
    m.stop = stop;
    m.ttl_ms = ttl_ms;
    return ask(s, SERVICE "Begin", &m.base,
               &stockade__v1__transaction_service_begin_response__descriptor, out, e);
}

int
stockade_transaction_get(struct stockade *s, const char *id,
                         const struct stockade_transaction **out, struct stockade_error *e)
{
    Stockade__V1__TransactionServiceGetRequest m =
        STOCKADE__V1__TRANSACTION_SERVICE_GET_REQUEST__INIT;
    m.id = id;
    return ask(s, SERVICE "Get", &m.base,
               &stockade__v1__transaction_service_get_response__descriptor, out, e);
}

int
stockade_transaction_list(struct stockade *s, const char *sandbox, const char *page,
                          const struct stockade_transactions **out, struct stockade_error *e)
{
    Stockade__V1__TransactionServiceListRequest m =
        STOCKADE__V1__TRANSACTION_SERVICE_LIST_REQUEST__INIT;
    if (sandbox != NULL)
        m.sandbox = sandbox;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__transaction_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = all_from};
    return invoke(s, &i, out, e);
}

int
stockade_transaction_commit(struct stockade *s, const char *id, bool stop,
                            const struct stockade_transaction **out, struct stockade_error *e)
{
    Stockade__V1__TransactionServiceCommitRequest m =
        STOCKADE__V1__TRANSACTION_SERVICE_COMMIT_REQUEST__INIT;
    m.id = id;
    m.stop = stop;
    return ask(s, SERVICE "Commit", &m.base,
               &stockade__v1__transaction_service_commit_response__descriptor, out, e);
}

int
stockade_transaction_discard(struct stockade *s, const char *id,
                             const struct stockade_transaction **out, struct stockade_error *e)
{
    Stockade__V1__TransactionServiceDiscardRequest m =
        STOCKADE__V1__TRANSACTION_SERVICE_DISCARD_REQUEST__INIT;
    m.id = id;
    return ask(s, SERVICE "Discard", &m.base,
               &stockade__v1__transaction_service_discard_response__descriptor, out, e);
}
