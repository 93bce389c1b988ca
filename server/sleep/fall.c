// SPDX-License-Identifier: Apache-2.0
// See sleepers_private.h: a sandbox falls asleep. Until its record is on the disk it stays as it was, and any call keeps it awake.
//
//   SEALING   jobs are cancelled, and what it has written becomes a layer. A call waits for that, and then keeps it awake
//   KEEPING   keepers copy its layers to the disk, and the record is written. A call keeps it awake at once
//   leaving   it is asleep; the sandbox that it was is being removed
//
// The sandbox may end at any time, and is found again by its id. One that is deleted dooms the record, and its caller waits until
// nothing is left of it; otherwise a crash could bring the sandbox back.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/agent.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/snapshots.h"
#include "server/snapshot/transaction.h"
#include "sleepers_private.h"

struct fall {
    struct sleepers *all;
    char sandbox[ID_TEXT_MAX + 1], tenant[32], name[65], template[64];
    uint64_t order, began_ns;
    int64_t created_ms, expires_ms;
    bool cancelled, doomed;
    struct kept_op *keeping; // NULL: not in this step
    struct kept_tree tree;
    struct sleep_facts facts;
    struct list waiters, dooming; // struct sleep_waiter
    struct list parked;           // calls
    struct sandbox_waiter gone;
};

static void
report_to(struct list *waiters, const struct sleeper *sl, const struct err *e)
{
    while (!list_empty(waiters)) {
        struct sleep_waiter *w = list_entry(waiters->next, struct sleep_waiter, node);
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): list_remove() has taken the one before from the list
        sleep_done *done = w->done;
        list_remove(&w->node);
        if (done != NULL)
            done(w->cookie, sl, e);
        free(w);
    }
}

// What an earlier sleep has left of a sandbox that is deleted.
static void
forget_all(struct fall *f)
{
    struct err e;
    const struct err *failed = NULL;
    struct sleeper *sl = sleeper_by_id(f->all, f->sandbox);
    if (sl != NULL && !list_empty(&f->dooming)) {
        struct sleep_waiter *w = list_entry(f->dooming.next, struct sleep_waiter, node);
        list_remove(&w->node); // it hears when the record is gone
        if (sleeper_forget(sl, w, &e) < 0) {
            failed = &e;
            list_append(&f->dooming, &w->node);
        }
    }
    report_to(&f->dooming, NULL, failed);
}

static void
end(struct fall *f, const struct err *failed)
{
    struct err e;
    struct list parked;
    struct sandbox *s = sleepers_box(f->all, f->tenant, f->sandbox);
    if (s != NULL && s->nap != NULL && s->nap->fall == f)
        s->nap->fall = NULL;
    if (failed != NULL) {
        e = *failed;
        (void)err_wrap(&e, "put sandbox %s to sleep", f->sandbox);
        metrics_add(METRIC_SLEEPS_FAILED, 1);
    } else {
        metrics_observe(METRIC_SLEEP_TIME, 0, uv_hrtime() - f->began_ns);
    }
    list_init(&parked);
    while (!list_empty(&f->parked)) {
        struct list *it = f->parked.next;
        list_remove(it);
        list_append(&parked, it);
    }
    forget_all(f);
    report_to(&f->waiters, sleeper_by_id(f->all, f->sandbox), failed != NULL ? &e : NULL);
    kept_tree_clear(&f->tree);
    free(f);
    unpark(&parked, NULL);
}

static void
end_cancelled(struct fall *f)
{
    struct err e;
    if (f->doomed)
        (void)err_set(&e, ERR_ABORTED, "it was deleted meanwhile");
    else
        (void)err_set(&e, ERR_ABORTED, "another call needed it meanwhile");
    if (!f->doomed)
        err_detail(&e, "SANDBOX_USED", f->sandbox, "try again when nobody uses it");
    end(f, &e);
}

// ---- it is asleep

static void
on_removed(void *cookie, struct sandbox *s, const struct err *e)
{
    (void)s;
    end(cookie, e);
}

static void
say(const struct fall *f, struct err *out)
{
    const struct sleep_facts *n = &f->facts;
    (void)err_set(out, ERR_CANCELLED,
                  "it fell asleep%s: %u %s, %u %s, %u %s on files and %u %s ended",
                  n->idle ? " because nobody used it" : "", n->processes,
                  plural(n->processes, "process", "processes"), n->contexts,
                  plural(n->contexts, "context", "contexts"), n->operations,
                  plural(n->operations, "operation", "operations"), n->connections,
                  plural(n->connections, "connection", "connections"));
}

static void
commit(struct fall *f, struct sandbox *s, struct stored *r)
{
    struct err why;
    struct sleeper *sl = sleeper_add(f->all, f->sandbox, f->order);
    if (sl == NULL) {
        (void)err_sys(&why, ENOMEM, "list it");
        (void)store_drop(f->all->srv->store, r, NULL, NULL, &why);
        end(f, &why);
        return;
    }
    sleeper_set_record(sl, r);
    sleeper_move(sl, SLEEPER_ASLEEP);
    sl->created_ms = f->created_ms;
    sl->expires_ms = s != NULL ? s->expires_ms : f->expires_ms;
    sl->facts = f->facts;
    memcpy(sl->tenant, f->tenant, sizeof sl->tenant);
    memcpy(sl->name, f->name, sizeof sl->name);
    memcpy(sl->template, f->template, sizeof sl->template);
    metrics_add(METRIC_SLEEPS, 1);
    idle_tick_start(f->all);
    say(f, &why);
    log_event_about(LOG_INFO, "sandbox-asleep",
                    &(struct log_about){.sandbox = f->sandbox, .tenant = f->tenant}, "%s: %s",
                    f->sandbox, why.text);
    if (s == NULL) { // it was lost meanwhile
        sleeper_check_left(sl);
        end(f, NULL);
        return;
    }
    sl->leaving = true;
    s->nap->fall = NULL;
    f->gone.done = on_removed;
    f->gone.cookie = f;
    sandbox_fall_asleep(s, &why, &f->gone);
}

// ---- its record

static void
on_dropped(void *cookie, struct stored *r, const struct err *e)
{
    struct fall *f = cookie;
    (void)r;
    if (e != NULL)
        log_err(LOG_WARNING, "sleep", e);
    end_cancelled(f);
}

static void
undo(struct fall *f, struct stored *r)
{
    struct err e;
    if (store_drop(f->all->srv->store, r, on_dropped, f, &e) < 0)
        on_dropped(f, NULL, &e);
}

// Still as it was when it was sealed, but for agents whose end the guest has not reported yet. NULL is, too: it was lost.
static bool
is_unchanged(const struct sandbox *s)
{
    return s == NULL || (s->state == SANDBOX_RUNNING && s->jobs_n == 0 && !agents_live(s));
}

static void
on_kept(void *cookie, struct stored *r, const struct err *e)
{
    struct fall *f = cookie;
    struct sandbox *s = sleepers_box(f->all, f->tenant, f->sandbox);
    f->keeping = NULL;
    if (e != NULL)
        end(f, e);
    else if (f->doomed || f->cancelled || !is_unchanged(s))
        undo(f, r);
    else
        commit(f, s, r);
}

static int
keep(struct fall *f, struct sandbox *s, struct err *e)
{
    int rc = kept_tree_of(s, &f->tree, e);
    if (rc < 0)
        return rc;
    size_t n = 0;
    f->facts.sleep_ms = now_wall_ms();
    uint8_t *auto_free about = describe_pack(f->all, s, &f->tree, &f->facts, &n, e);
    if (about == NULL)
        return err_errno(e);
    const struct kept_want want = {.kind = STORE_SLEEPER,
                                   .tree = &f->tree,
                                   .id = "",
                                   .name = "",
                                   .about = about,
                                   .about_n = n};
    return kept_begin(s, 0, &want, on_kept, f, &f->keeping, e);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct fall *f = cookie;
    struct err e;
    (void)p;
    if (failed != NULL)
        end(f, failed);
    else if (f->doomed || f->cancelled)
        end_cancelled(f);
    else if (keep(f, s, &e) < 0)
        end(f, &e);
}

// ---- its begin

// Its files are about to belong to others, too.
static int
check_files(const struct sleepers *all, const struct sandbox *s, struct err *e)
{
    int r = 0;
    const uint32_t open = transactions_open(all->srv->transactions, s);
    if (open > 0) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%u %s of sandbox %s %s open", open,
                    plural(open, "transaction", "transactions"), s->id.id,
                    plural(open, "is", "are"));
        err_detail(e, "TRANSACTIONS_OPEN", s->id.id, "commit or discard them first");
    } else if (snapshots_busy(s)) {
        r = err_set(e, ERR_ABORTED, "the files of sandbox %s are being used by another call",
                    s->id.id);
        err_detail(e, "SANDBOX_USED", s->id.id, "try again when nobody uses it");
    }
    return r;
}

static int
check(const struct sleepers *all, const struct sandbox *s, bool stop, struct sleep_facts *f,
      struct err *e)
{
    int r = store_available(all->srv->store, e);
    if (r == 0)
        r = sandbox_check_running(s, e);
    if (r == 0)
        r = check_files(all, s, e);
    if (r == 0 && (!idle_count(all, s, f) || stop))
        // a layer cannot be taken back, and would be in the way of the next attempt
        return store_has_room(all->srv->store, s->tenant->name, kept_missing(s), e);
    if (r < 0)
        return r;
    const uint32_t n = f->processes > 0 ? f->processes : s->jobs_n;
    r = err_set(e, ERR_FAILED_PRECONDITION, "%u %s in sandbox %s", n,
                plural(n, "process runs", "processes run"), s->id.id);
    err_detail(e, "JOBS_RUN", s->id.id,
               "wait for them to end, delete checkpoints of contexts, or stop all");
    return r;
}

static void
stop_jobs(struct sandbox *s)
{
    struct list *next = NULL;
    for (struct list *it = s->jobs.next; it != &s->jobs; it = next) {
        next = it->next;
        job_cancel(job_of_sandbox(it), "its sandbox falls asleep");
    }
}

static struct fall *
make(struct sleepers *all, const struct sandbox *s)
{
    struct fall *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    *f = (struct fall){.all = all,
                       .order = s->order,
                       .began_ns = uv_hrtime(),
                       .created_ms = s->created_ms,
                       .expires_ms = s->expires_ms};
    list_init(&f->waiters);
    list_init(&f->dooming);
    list_init(&f->parked);
    list_init(&f->gone.node);
    memcpy(f->sandbox, s->id.id, sizeof f->sandbox);
    memcpy(f->tenant, s->tenant->name, sizeof f->tenant);
    memcpy(f->name, s->spec.name, sizeof f->name);
    memcpy(f->template, s->spec.template->name, sizeof f->template);
    return f;
}

int
fall_begin(struct sleepers *all, struct sandbox *s, bool stop, bool idle, struct err *e)
{
    struct snapshot_op *sealing = NULL;
    struct sleep_facts facts = {.idle = idle};
    struct err ended;
    int r = check(all, s, stop, &facts, e);
    if (r < 0)
        return r;
    struct nap *n = nap_of(all, s);
    struct fall *f = n == NULL ? NULL : make(all, s);
    if (f == NULL)
        return err_sys(e, ENOMEM, "put a sandbox to sleep");
    stop_jobs(s);
    r = snapshots_seal(s, true, on_sealed, f, &sealing, e);
    if (r < 0) {
        free(f);
        return r;
    }
    (void)err_set(&ended, ERR_ABORTED, "the sandbox falls asleep");
    facts.operations = files_cut_off(all->srv->files, s, &ended);
    f->facts = facts;
    n->fall = f;
    return 0;
}

bool
fall_cancel(struct fall *f, struct list **waiting)
{
    if (f->doomed)
        return true;
    f->cancelled = true;
    *waiting = &f->parked;
    if (f->keeping == NULL)
        return false;
    kept_unwait(f->keeping);
    end_cancelled(f);
    return true;
}

void
fall_wait(struct fall *f, struct sleep_waiter *w)
{
    list_append(&f->waiters, &w->node);
}

void
fall_doom(struct fall *f, struct sleep_waiter *w)
{
    f->doomed = true;
    if (w != NULL)
        list_append(&f->dooming, &w->node);
}

int
sleepers_sleep(struct sleepers *all, struct sandbox *s, bool stop, sleep_done *done, void *cookie,
               struct sleep_waiter **out, struct err *e)
{
    struct sleep_waiter *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "put a sandbox to sleep");
    int r = s->nap != NULL && s->nap->fall != NULL ? 0 : fall_begin(all, s, stop, false, e);
    if (r < 0) {
        free(w);
        return err_wrap(e, "put sandbox %s to sleep", s->id.id);
    }
    *w = (struct sleep_waiter){.done = done, .cookie = cookie};
    list_init(&w->node);
    fall_wait(s->nap->fall, w);
    *out = w;
    return 0;
}
