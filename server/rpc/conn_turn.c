// SPDX-License-Identifier: Apache-2.0
// See conn_private.h: which connections may go on. While several tenants are active (fair.h), the loop's CPU time is measured and
// charged to the tenant whose bytes it handles. One that has used more than its share is not read from, so its callers wait in
// their own send or receive, and use no processor either. Nothing is refused and nothing is lost.
//
//   bytes -> conn_process --(before each frame)--> conn_must_wait --yes--> tenant.held --(tenant.turn)--> conn_process ...
//
// Bytes that were read stay in the buffer; if the peer leaves meanwhile (transport.h, hold), they are dropped. Streams of output wait in
// the same way, except those that only watch: a feed that waits would lose events.
//
// What is measured is the handling of frames and the writing of output. At the end of a turn of the loop, the rest of it (waking up,
// callbacks of what was requested earlier) is charged to the same tenants, and what the broker's other threads do for calls (keys, the
// audit log), too, by the ratio of the process's CPU time to the loop's.
#include "conn_private.h"

#include <stdlib.h>
#include <time.h>

#include "proto/now.h"
#include "server/base/metrics.h"

enum {
    FACTOR_ONE = 256,
    FACTOR_MAX = 4 * FACTOR_ONE,
    COMPARE_NS = 10000000, // of CPU time of the loop
    LOOK_MS = 100,         // others may have become silent
    EARLY_READS = 2,       // the greeting, and a call
};

static struct fair *
fair_of(const struct conn *c)
{
    return &c->rpc->tenants->fair;
}

static uint64_t
cpu_ns(clockid_t clock)
{
    return (uint64_t)now_ns(clock);
}

// ---- what it costs

bool
conn_meter_begin(struct conn *c)
{
    struct meter *m = &c->rpc->meter;
    struct fair *f = fair_of(c);
    if (m->prepare == NULL || m->from_ns != 0 || f->active_n < 2 || !fair_counts(f, uv_hrtime()))
        return false;
    m->from_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    return true;
}

void
conn_meter_lap(struct conn *c)
{
    struct meter *m = &c->rpc->meter;
    struct fair_use *u = &c->payer->use;
    if (m->from_ns == 0)
        return;
    const uint64_t at_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t took_ns = at_ns - m->from_ns;
    if (took_ns > 0 && u->turn_ns == 0)
        list_append(&m->charged, &u->charged);
    u->turn_ns += took_ns;
    m->measured_ns += took_ns;
    m->from_ns = at_ns;
    fair_charge(fair_of(c), u, (int64_t)took_ns, uv_hrtime());
}

void
conn_meter_end(struct conn *c)
{
    conn_meter_lap(c);
    c->rpc->meter.from_ns = 0;
}

static void
compare(struct meter *m, uint64_t thread_ns)
{
    if (thread_ns - m->thread_ns < COMPARE_NS)
        return;
    const uint64_t process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
    const uint64_t factor = (process_ns - m->process_ns) * FACTOR_ONE / (thread_ns - m->thread_ns);
    m->factor = factor < FACTOR_ONE ? FACTOR_ONE : factor < FACTOR_MAX ? factor : FACTOR_MAX;
    m->thread_ns = thread_ns;
    m->process_ns = process_ns;
}

// The rest of a turn is theirs whose requests it handled, in proportion to what was measured: the loop woke up for them. Turns without a
// request are mostly those in which a thread reports what it has done for one, so the next requests pay for them, but at most
// as much again: jobs make work, too.
static void
charge_rest(struct rpc *r, uint64_t thread_ns, uint64_t now_ns)
{
    struct meter *m = &r->meter;
    const uint64_t turn_ns = m->turn_ns != 0 ? thread_ns - m->turn_ns : 0;
    if (list_empty(&m->charged)) {
        m->loose_ns += turn_ns;
        return;
    }
    const uint64_t more_ns = m->loose_ns < turn_ns ? m->loose_ns : turn_ns;
    const uint64_t all_ns = (turn_ns + more_ns) * m->factor / FACTOR_ONE;
    list_each(it, &m->charged)
    {
        struct fair_use *u = list_entry(it, struct fair_use, charged);
        const uint64_t part_ns =
            (uint64_t)((double)all_ns * (double)u->turn_ns / (double)m->measured_ns);
        if (part_ns > u->turn_ns)
            fair_charge(&r->tenants->fair, u, (int64_t)(part_ns - u->turn_ns), now_ns);
        fair_leave_turn(u);
    }
    m->loose_ns = m->measured_ns = 0;
}

// Before the loop waits.
static void
on_prepare(uv_prepare_t *prepare)
{
    struct rpc *r = prepare->data;
    struct meter *m = &r->meter;
    const uint64_t at_ns = r->tenants->fair.active_n > 1 ? uv_hrtime() : 0;
    if (!fair_counts(&r->tenants->fair, at_ns)) {
        m->turn_ns = m->loose_ns = 0;
        return;
    }
    const uint64_t thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    compare(m, thread_ns);
    charge_rest(r, thread_ns, at_ns);
    m->turn_ns = thread_ns;
}

static void
on_stopped(uv_handle_t *handle)
{
    free(handle);
}

bool
meter_start(struct rpc *r)
{
    struct meter *m = &r->meter;
    m->factor = FACTOR_ONE;
    list_init(&m->charged);
    m->prepare = calloc(1, sizeof *m->prepare);
    if (m->prepare == NULL)
        return false;
    (void)uv_prepare_init(r->loop, m->prepare);
    m->prepare->data = r;
    (void)uv_prepare_start(m->prepare, on_prepare);
    uv_unref((uv_handle_t *)m->prepare);
    return true;
}

void
meter_stop(struct rpc *r)
{
    struct meter *m = &r->meter;
    if (m->prepare == NULL)
        return;
    uv_close((uv_handle_t *)m->prepare, on_stopped);
    m->prepare = NULL;
    m->from_ns = 0;
    list_each(it, &m->charged)
        fair_leave_turn(list_entry(it, struct fair_use, charged)); // tenants may outlast this
}

// ---- who waits

static void
count_held(struct tenant *t, uint64_t now_ns)
{
    const uint32_t value = t->all->named != NULL ? metrics_tenant(t->name, *t->all->named) : 0;
    metrics_add_by(METRIC_TENANT_HELD, value, 0, now_ns - t->held_ns);
    t->held_ns = now_ns;
}

static void
turn_resume(struct conn *c)
{
    conn_wake_waiting(c);
    if (!c->reading && (c->state == CONN_HELLO || c->state == CONN_OPEN) && list_empty(&c->turn))
        conn_process(c);
}

// False: there is no memory for the timer, so nobody may wait, and the tenant begins again.
static bool
look_later(struct tenant *t, uint64_t wait_ns, uint64_t now_ns)
{
    const uint64_t most = LOOK_MS * NS_PER_MS;
    if (timers_set(t->rpc->timers, &t->turn, now_ns + (wait_ns < most ? wait_ns : most)) == 0)
        return true;
    t->use.used_ns = 0;
    return false;
}

// The connections go on in the order in which they began to wait; each may use up the share again.
static void
on_turn(struct timer *timer)
{
    struct tenant *t = container_of(timer, struct tenant, turn);
    struct fair *f = &t->all->fair;
    uint64_t now_ns = uv_hrtime();
    (void)tenant_hold_again(t);
    count_held(t, now_ns);
    while (!list_empty(&t->held)) {
        const uint64_t wait_ns = fair_wait_ns(f, &t->use, true, now_ns);
        if (wait_ns > 0 && look_later(t, wait_ns, now_ns))
            break;
        struct conn *c = container_of(t->held.next, struct conn, turn);
        list_remove(&c->turn);
        turn_resume(c);
        now_ns = uv_hrtime();
    }
    tenant_drop(t);
}

static void
seen(struct conn *c, uint64_t now_ns)
{
    struct fair_use *u = &c->payer->use;
    fair_seen(fair_of(c), u, u->weight > 0 ? u->weight : tenant_weight(c->payer), now_ns);
}

// Until its first call nobody knows whose the connection is, if it is not local: the first bytes of each new connection would make
// all strangers together count as one more active tenant.
void
conn_seen(struct conn *c, uint64_t now_ns)
{
    if (c->local || c->last_id != 0 || c->early_reads++ >= EARLY_READS)
        seen(c, now_ns);
}

bool
conn_must_wait(struct conn *c)
{
    struct tenant *t = c->payer;
    if (!list_empty(&c->turn))
        return true;
    if (t->use.used_ns == 0)
        return false;
    const uint64_t now_ns = uv_hrtime();
    const uint64_t wait_ns = fair_wait_ns(fair_of(c), &t->use, !list_empty(&t->held), now_ns);
    if (wait_ns == 0)
        return false;
    if (list_empty(&t->held)) {
        t->rpc = c->rpc;
        t->turn.fire = on_turn;
        t->held_ns = now_ns;
        if (!look_later(t, wait_ns, now_ns))
            return false;
    }
    list_append(&t->held, &c->turn);
    return true;
}

bool
conn_has_turn(struct conn *c)
{
    seen(c, uv_hrtime());
    return !conn_must_wait(c);
}

void
conn_pays(struct conn *c, struct tenant *t)
{
    if (c->payer != t) {
        conn_turn_drop(c);
        (void)tenant_hold_again(t);
        tenant_drop(c->payer);
        c->payer = t;
    }
    seen(c, uv_hrtime());
}

void
conn_turn_drop(struct conn *c)
{
    struct tenant *t = c->payer;
    if (list_empty(&c->turn))
        return;
    list_remove(&c->turn);
    if (!list_empty(&t->held))
        return;
    count_held(t, uv_hrtime());
    timers_clear(t->rpc->timers, &t->turn);
}
