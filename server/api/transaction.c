// SPDX-License-Identifier: Apache-2.0
// stockade.v1.TransactionService: translation between its messages and server/snapshot/transaction.h. What the streams of other
// services need of it: transacted.c.
#include "server/snapshot/transaction.h"

#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "page.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"
#include "server/sleep/sleepers.h"
#include "transaction_message.h"

// Begin or Commit, until it is done.
struct pending {
    struct call *call;
    struct transaction_begin *begin;
    struct transaction *t;                    // Commit; held
    const ProtobufCMessageDescriptor *answer; // NULL: done was called before the begin returned
};

Stockade__V1__Transaction *
transaction_message(struct arena *a, const struct transaction *t, uint32_t conflicts_max)
{
    const uint32_t n = t->conflicts.n < conflicts_max ? t->conflicts.n : conflicts_max;
    Stockade__V1__Transaction *m = wire_make(a, &stockade__v1__transaction__descriptor);
    if (m == NULL || (m->conflicts = arena_alloc(a, (n + 1) * sizeof(ProtobufCBinaryData))) == NULL)
        return NULL;
    m->id = t->id;
    m->sandbox_id = t->sandbox;
    m->policy = (Stockade__V1__TransactionPolicy)t->policy;
    m->state = (Stockade__V1__TransactionState)t->state;
    m->refused = t->refused.text;
    for (uint32_t i = 0; i < n; i++)
        m->conflicts[m->n_conflicts++] =
            (ProtobufCBinaryData){t->conflicts.path[i].n, t->conflicts.path[i].bytes};
    m->create_time =
        wire_make_time(a, t->created_ms / 1000, (int32_t)(t->created_ms % 1000) * 1000000);
    return m->create_time != NULL ? m : NULL;
}

// All responses but that of List have one field.
static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct transaction *t)
{
    Stockade__V1__TransactionServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__TransactionServiceBeginResponse) &&
                       sizeof response == sizeof(Stockade__V1__TransactionServiceCommitResponse) &&
                       sizeof response == sizeof(Stockade__V1__TransactionServiceDiscardResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    response.transaction = a == NULL ? NULL : transaction_message(a, t, CONFLICTS_MAX);
    if (response.transaction == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

static struct transaction *
find(const struct server *s, struct call *c, const char *id)
{
    struct err e;
    struct transaction *t = transaction_find(s->transactions, call_tenant(c), id, &e);
    if (t == NULL)
        call_fail(c, &e);
    return t;
}

static struct pending *
pending_new(struct call *c, const ProtobufCMessageDescriptor *answer)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL)
        convert_no_memory(c);
    else
        *p = (struct pending){.call = c, .answer = answer};
    return p;
}

// A commit goes on; a begin leaves nothing.
static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    if (p->begin != NULL)
        transaction_begin_cancel(p->begin);
    if (p->t != NULL)
        transaction_unwait(p->t);
    transaction_let_go(p->t);
    free(p);
}

static void
on_done(void *cookie, struct transaction *t, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply(p->call, p->answer, t);
    transaction_let_go(p->t);
    if (p->begin == NULL && p->t == NULL)
        p->answer = NULL;
    else
        free(p);
}

static void
begin(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TransactionServiceBeginRequest *m =
        (const Stockade__V1__TransactionServiceBeginRequest *)req;
    const struct transaction_want want = {
        .policy = TRANSACTION_ASK, .stop = m->stop, .ttl_ms = m->ttl_ms};
    struct transaction_begin *b = NULL;
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    struct pending *p =
        pending_new(c, &stockade__v1__transaction_service_begin_response__descriptor);
    if (p == NULL)
        return;
    if (transaction_begin(s->transactions, sb, &want, on_done, p, &b, &e) < 0) {
        call_fail(c, &e);
        free(p);
    } else if (p->answer == NULL) {
        free(p);
    } else {
        p->begin = b;
        call_watch(c, on_cancel, NULL, p);
    }
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const struct transaction *t =
        find(s, c, ((const Stockade__V1__TransactionServiceGetRequest *)req)->id);
    if (t != NULL)
        reply(c, &stockade__v1__transaction_service_get_response__descriptor, t);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TransactionServiceListRequest *m =
        (const Stockade__V1__TransactionServiceListRequest *)req;
    Stockade__V1__TransactionServiceListResponse response =
        STOCKADE__V1__TRANSACTION_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    const char *id = NULL;
    struct err e;
    int r = page_begin(&p, m->page_size, m->page_token, &e);
    if (r == 0 && m->sandbox[0] != '\0') {
        id = sleepers_id(s->sleepers, call_tenant(c), m->sandbox, &e);
        r = id == NULL ? err_errno(&e) : 0;
    }
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    list_each(it, transactions_list(s->transactions))
    {
        const struct transaction *t = list_entry(it, struct transaction, node);
        if (t->order <= p.last || strcmp(t->tenant, call_tenant(c)) != 0 ||
            (id != NULL && strcmp(t->sandbox, id) != 0))
            continue;
        if (!page_has_room(&p) || !page_add(&p, t->order, transaction_message(p.arena, t, 0)))
            break;
    }
    response.transactions = p.elements;
    response.n_transactions = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void
commit(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TransactionServiceCommitRequest *m =
        (const Stockade__V1__TransactionServiceCommitRequest *)req;
    struct err e;
    struct transaction *t = find(s, c, m->id);
    struct pending *p =
        t == NULL ? NULL
                  : pending_new(c, &stockade__v1__transaction_service_commit_response__descriptor);
    if (p == NULL)
        return;
    const unsigned stop = m->stop ? TRANSACTION_STOP_INSIDE | TRANSACTION_STOP_OUTSIDE : 0;
    if (transaction_commit(t, stop, on_done, p, &e) < 0) {
        call_fail(c, &e);
        free(p);
        return;
    }
    p->t = transaction_hold(t);
    call_watch(c, on_cancel, NULL, p);
}

static void
discard(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    struct transaction *t =
        find(s, c, ((const Stockade__V1__TransactionServiceDiscardRequest *)req)->id);
    if (t == NULL)
        return;
    if (transaction_discard(t, &e) < 0)
        call_fail(c, &e);
    else
        reply(c, &stockade__v1__transaction_service_discard_response__descriptor, t);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.TransactionService/" name,                                                   \
            &stockade__v1__transaction_service_##message##_request__descriptor,                    \
            &stockade__v1__transaction_service_##message##_response__descriptor, handler           \
    }

const struct call_method transaction_methods[] = {
    METHOD("Begin", begin, begin),       METHOD("Get", get, get),
    METHOD("List", list, list),          METHOD("Commit", commit, commit),
    METHOD("Discard", discard, discard), {0},
};
