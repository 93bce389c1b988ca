// SPDX-License-Identifier: Apache-2.0
// See transaction.h: what follows the job of a transaction. First the changes are listed, since a commit ends the sandbox that
// could say them; then the policy is carried out, whether or not a caller waits.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/sandbox/job.h"
#include "compare.h"
#include "transaction_private.h"

struct settling {
    struct transaction *t;
    struct list waiters;
    struct job_follower follower; // of its job
    struct compare *comparing;
    bool success;
    unsigned stop;
};

static struct settling *
settling_of(struct transaction *t)
{
    if (t->settling != NULL)
        return t->settling;
    t->settling = calloc(1, sizeof *t->settling);
    if (t->settling != NULL) {
        t->settling->t = t;
        list_init(&t->settling->waiters);
    }
    return t->settling;
}

// The waiters may let go of the transaction.
static void
settled(struct transaction *t)
{
    struct settling *s = t->settling;
    (void)transaction_hold(t);
    t->settled = true;
    while (s != NULL && !list_empty(&s->waiters)) {
        struct transaction_waiter *w = list_entry(s->waiters.next, struct transaction_waiter, node);
        list_remove(&w->node);
        w->done(w->cookie);
    }
    transaction_let_go(t);
}

void
transaction_unsettle(struct transaction *t)
{
    if (t->settling == NULL)
        return;
    if (t->settling->follower.job != NULL)
        job_unfollow(&t->settling->follower);
    compare_drop(t->settling->comparing);
    free(t->settling);
    t->settling = NULL;
}

static void
on_committed(void *cookie, struct transaction *t, const struct err *e)
{
    (void)cookie;
    (void)e; // `refused` has it
    settled(t);
}

static void
do_policy(struct transaction *t, bool success, unsigned stop)
{
    struct err e;
    if (t->policy == TRANSACTION_ON_SUCCESS && success) {
        if (transaction_commit(t, stop, on_committed, NULL, &e) == 0)
            return;
    } else if (t->policy == TRANSACTION_ON_SUCCESS && t->state == TRANSACTION_OPEN) {
        (void)transaction_discard(t, &e); // refused while a caller commits it
    }
    settled(t);
}

static void
on_changes(void *cookie, const struct compare_page *page, const struct err *failed)
{
    struct settling *s = cookie;
    struct transaction *t = s->t;
    s->comparing = NULL;
    if (failed != NULL) {
        t->unknown = *failed;
    } else if ((t->changes = malloc(page->n + 1)) == NULL) {
        (void)err_sys(&t->unknown, ENOMEM, "list the changes");
    } else {
        memcpy(t->changes, page->bytes, page->n);
        t->changes_n = page->n;
    }
    do_policy(t, s->success, s->stop);
}

void
transaction_settle(struct transaction *t, bool success, unsigned stop)
{
    const struct compare_want want = {.from = t->base_inside, .changes_max = TRANSACTION_CHANGES};
    struct settling *s = settling_of(t);
    struct sandbox *inside = transaction_inside(t, &t->unknown);
    if (t->settled || (s != NULL && s->comparing != NULL))
        return;
    if (s == NULL) {
        (void)err_sys(&t->unknown, ENOMEM, "list the changes");
    } else {
        s->success = success;
        s->stop = stop;
        if (inside != NULL &&
            compare_begin(inside, &want, on_changes, s, &s->comparing, &t->unknown) == 0)
            return;
    }
    do_policy(t, success, stop);
}

static void
on_job(void *cookie)
{
    struct settling *s = cookie;
    struct job_view v;
    if (job_next(&s->follower).kind != JOB_ENDED)
        return;
    job_view(s->follower.job, &v);
    const bool success = v.result->outcome == OUTCOME_EXITED && v.result->exit_code == 0;
    job_unfollow(&s->follower);
    transaction_settle(s->t, success, 0);
}

void
transaction_follow(struct transaction *t, struct job *j)
{
    struct settling *s = settling_of(t);
    if (s == NULL)
        return;
    s->follower = (struct job_follower){.no_output = true, .wake = on_job, .cookie = s};
    job_follow(j, &s->follower, 0, false);
}

void
transaction_await(struct transaction *t, struct transaction_waiter *w)
{
    struct settling *s = settling_of(t);
    list_init(&w->node);
    if (s != NULL)
        list_append(&s->waiters, &w->node);
}

void
transaction_unawait(struct transaction_waiter *w)
{
    if (w->node.next != NULL)
        list_remove(&w->node);
}
