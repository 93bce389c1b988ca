// SPDX-License-Identifier: Apache-2.0
// See rate.h.
#include "rate.h"

enum { NS_PER_MS = 1000000, DATAGRAM_LEAST = 28 }; // the cost of an empty datagram: its headers

static const double ns_per_second = 1e9;

static double
most(const struct rate *r)
{
    double saved = (double)r->per_second * RATE_SAVED_MS * NS_PER_MS / ns_per_second;
    return saved > RATE_LEAST ? saved : RATE_LEAST;
}

void
rate_set(struct rate *r, uint64_t per_second, uint64_t now_ns)
{
    if (r->per_second == 0)
        *r = (struct rate){.at_ns = now_ns};
    r->per_second = per_second;
}

static double
fill(struct rate *r, uint64_t now_ns)
{
    double more = (double)(now_ns - r->at_ns) * (double)r->per_second / ns_per_second;
    r->at_ns = now_ns;
    r->level = r->level + more < most(r) ? r->level + more : most(r);
    return r->level;
}

size_t
rate_left(struct rate *r, uint64_t now_ns)
{
    if (r->per_second == 0)
        return SIZE_MAX;
    double level = fill(r, now_ns);
    return level >= RATE_LEAST ? (size_t)level : 0;
}

void
rate_take(struct rate *r, size_t n)
{
    if (r->per_second != 0)
        r->level -= (double)n;
}

bool
rate_datagram(struct sandbox *s, bool out, size_t n)
{
    struct rate *r = out ? &s->rate_out : &s->rate_in;
    if (r->per_second == 0)
        return true;
    if (fill(r, clock_ns()) <= 0 || (!list_empty(&s->waiting) && !s->datagrams_turn))
        return false;
    rate_take(r, n > DATAGRAM_LEAST ? n : DATAGRAM_LEAST);
    return true;
}

// Turns alternate between flows and datagrams. In a turn of flows, each waiting flow gets its share once, while bytes
// are left.
static void
serve(struct sandbox *s)
{
    uint32_t n = 0;
    s->datagrams_turn = !s->datagrams_turn;
    if (s->datagrams_turn)
        return;
    list_each(it, &s->waiting) n++;
    s->serving = true;
    for (; n > 0 && !list_empty(&s->waiting); n--) {
        uint64_t now = clock_ns();
        if (rate_left(&s->rate_out, now) == 0 && rate_left(&s->rate_in, now) == 0)
            break;
        struct list *waits = s->waiting.next;
        list_remove(waits);
        s->relay->rate_turn(waits);
    }
    s->serving = false;
}

static void
on_timer(uv_timer_t *timer)
{
    struct relay *r = timer->data;
    bool more = false;
    r->now_ms = clock_ms();
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->open && !list_empty(&s->waiting))
            serve(s);
        more = more || !list_empty(&s->waiting);
    }
    if (!more)
        (void)uv_timer_stop(timer);
}

void
rate_wait(struct sandbox *s, struct list *node)
{
    if (list_empty(node)) // otherwise it keeps its place
        list_append(&s->waiting, node);
    if (!uv_is_active((const uv_handle_t *)&s->relay->rates))
        (void)uv_timer_start(&s->relay->rates, on_timer, RATE_TICK_MS, RATE_TICK_MS);
}

void
rate_init(struct relay *r, void (*turn)(struct list *waits))
{
    (void)uv_timer_init(&r->loop, &r->rates);
    r->rates.data = r;
    r->rate_turn = turn;
}
