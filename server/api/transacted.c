// SPDX-License-Identifier: Apache-2.0
// See transacted.h.
#include "transacted.h"

#include <string.h>

#include "proto/wire.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"
#include "convert.h"
#include "transaction_message.h"

enum { CHANGES_BYTES_MAX = 24 * 1024, OUTCOME_CONFLICTS = 4 };

static void
on_begun(void *cookie, struct transaction *t, const struct err *failed)
{
    struct transacted *x = cookie;
    struct err e;
    x->begin = NULL;
    if (failed != NULL) {
        x->on_ready(x->cookie, NULL, failed);
        return;
    }
    x->t = transaction_hold(t);
    struct sandbox *inside = transaction_inside(t, &e);
    x->on_ready(x->cookie, inside, inside == NULL ? &e : NULL);
}

int
transacted_begin(struct transacted *x, struct server *s, struct sandbox *sb,
                 Stockade__V1__TransactionPolicy policy, struct err *e)
{
    const struct transaction_want want = {.policy = (enum transaction_policy)policy};
    return transaction_begin(s->transactions, sb, &want, on_begun, x, &x->begin, e);
}

bool
transacted_wait(struct transacted *x, void (*on_settled)(void *cookie))
{
    if (x->t->settled)
        return true;
    if (!x->waits) {
        x->waits = true;
        x->waiter.done = on_settled;
        x->waiter.cookie = x->cookie;
        transaction_await(x->t, &x->waiter);
    }
    return false;
}

// As many changes as a message of a stream has room for.
static void
add_changes(const Stockade__V1__SnapshotServiceDiffResponse *page,
            Stockade__V1__TransactionOutcome *m)
{
    size_t bytes = 0;
    m->changes = page->changes;
    while (m->n_changes < page->n_changes) {
        bytes += protobuf_c_message_get_packed_size(&page->changes[m->n_changes]->base);
        if (bytes > CHANGES_BYTES_MAX)
            break;
        m->n_changes++;
    }
    m->more = m->n_changes < page->n_changes || page->next_page_token.len > 0;
}

Stockade__V1__TransactionOutcome *
transacted_outcome(struct arena *a, const struct transacted *x)
{
    struct err e;
    const struct transaction *t = x->t;
    ProtobufCMessage *page = NULL;
    Stockade__V1__TransactionOutcome *m =
        wire_make(a, &stockade__v1__transaction_outcome__descriptor);
    if (m == NULL || (m->transaction = transaction_message(a, t, OUTCOME_CONFLICTS)) == NULL)
        return NULL;
    if (t->changes == NULL)
        m->unknown = t->unknown.text;
    else if (wire_unpack(&stockade__v1__snapshot_service_diff_response__descriptor, t->changes,
                         t->changes_n, a, &page, &e) < 0)
        return NULL;
    else
        add_changes((const Stockade__V1__SnapshotServiceDiffResponse *)page, m);
    return m;
}

void
transacted_drop(struct transacted *x)
{
    if (x->begin != NULL)
        transaction_begin_cancel(x->begin);
    x->begin = NULL;
    if (x->waits)
        transaction_unawait(&x->waiter);
    x->waits = false;
    transaction_let_go(x->t);
    x->t = NULL;
}

void
transacted_fail(struct transacted *x)
{
    struct err ignored;
    if (x->t != NULL)
        (void)transaction_discard(x->t, &ignored);
}
