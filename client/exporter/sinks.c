// SPDX-License-Identifier: Apache-2.0
// See sinks.h.
#include "sinks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/now.h"

// ---- One sink

static void
drop_held(struct sink *s)
{
    free(s->held.bytes);
    s->held = (struct sink_bytes){0};
}

static int
store(struct sink *s, const struct sink_bytes *b, int64_t time_ns)
{
    int r = b->n > 0 ? s->store(s->cookie, b, time_ns) : 0;
    s->failed += r < 0;
    return r;
}

static void
note(struct sink *s, const char *instance, uint64_t sequence)
{
    s->failed += position_note(&s->position, instance, sequence) < 0;
}

// Keeps the event. One that is too large for any attempt is given up.
static void
fall_behind(struct sinks *all, struct sink *s, const struct stockade_event *event,
            struct sink_bytes *b, int r)
{
    if (r == -EMSGSIZE) {
        s->missed++;
        note(s, event->instance, event->sequence);
        return;
    }
    s->behind = true;
    s->held = *b;
    *b = (struct sink_bytes){0};
    s->held_ns = event->time_ns;
    s->held_sequence = event->sequence;
    (void)snprintf(s->held_instance, sizeof s->held_instance, "%s", event->instance);
    if (!uv_is_active((uv_handle_t *)&all->timer))
        (void)uv_timer_again(&all->timer);
}

static void
take(struct sinks *all, struct sink *s, const struct stockade_event *event)
{
    struct sink_bytes b = {0};
    if (s->behind || position_has(&s->position, event->instance, event->sequence))
        return;
    int r = event->severity >= s->severity ? s->encode(s->cookie, event, &b) : 0;
    if (r == 0)
        r = store(s, &b, event->time_ns);
    if (r < 0) {
        fall_behind(all, s, event, &b, r);
    } else {
        s->events += b.n > 0;
        note(s, event->instance, event->sequence);
    }
    free(b.bytes);
}

// True: it has caught up to the event that failed. Without bytes, memory was short: the event is requested again.
static bool
try_held(struct sink *s)
{
    if (s->held.n > 0) {
        if (store(s, &s->held, s->held_ns) < 0)
            return false;
        s->events++;
        note(s, s->held_instance, s->held_sequence);
    }
    drop_held(s);
    s->behind = false;
    return true;
}

// ---- All

static void
on_time(uv_timer_t *timer)
{
    struct sinks *all = timer->data;
    bool caught_up = false, left = false;
    for (size_t i = 0; i < all->n; i++) {
        struct sink *s = &all->sink[i];
        caught_up |= s->behind && try_held(s);
        left |= s->behind;
    }
    if (!left)
        (void)uv_timer_stop(timer);
    if (caught_up)
        all->on_rewind(all->cookie);
}

void
sinks_begin(struct sinks *all, uv_loop_t *loop)
{
    (void)uv_timer_init(loop, &all->timer); // cannot fail
    all->timer.data = all;
    (void)uv_timer_start(&all->timer, on_time, SINKS_AGAIN_MS, SINKS_AGAIN_MS);
    (void)uv_timer_stop(&all->timer);
}

void
sinks_close(struct sinks *all)
{
    if (all->timer.data == NULL || uv_is_closing((uv_handle_t *)&all->timer))
        return;
    uv_close((uv_handle_t *)&all->timer, NULL);
    for (size_t i = 0; i < all->n; i++) {
        drop_held(&all->sink[i]);
        position_close(&all->sink[i].position);
    }
}

void
sinks_event(struct sinks *all, const struct stockade_event *event)
{
    for (size_t i = 0; i < all->n; i++)
        take(all, &all->sink[i], event);
}

// Whether the sink lacks something of a gap.
static bool
lacks(const struct sinks *all, const struct sink *s, uint64_t to)
{
    if (s->behind || s->position.instance[0] == '\0')
        return false;
    return to == 0 ? strcmp(s->position.instance, all->asked) == 0 : s->position.sequence < to;
}

void
sinks_gap(struct sinks *all, uint64_t to, uint64_t count, const char *reason)
{
    const int64_t now = now_ns(CLOCK_REALTIME);
    for (size_t i = 0; i < all->n; i++) {
        struct sink *s = &all->sink[i];
        struct sink_bytes b = {0};
        if (!lacks(all, s, to))
            continue;
        s->gaps++;
        s->missed += count;
        if (to != 0 && strcmp(s->position.instance, all->asked) == 0)
            note(s, all->asked, to);
        if (s->encode_gap != NULL && s->encode_gap(s->cookie, count, reason, &b) == 0)
            (void)store(s, &b, now);
        free(b.bytes);
    }
}

// The lowest position, of the sinks that are behind too or not. *mixed: they belong to several runs of the broker.
static const struct position *
first_of(const struct sinks *all, bool behind, bool *mixed)
{
    const struct position *first = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const struct position *p = &all->sink[i].position;
        if (p->instance[0] == '\0' || (all->sink[i].behind && !behind))
            continue;
        *mixed |= first != NULL && strcmp(first->instance, p->instance) != 0;
        if (first == NULL || p->sequence < first->sequence)
            first = p;
    }
    return first;
}

bool
sinks_position(struct sinks *all, char instance[POSITION_INSTANCE], uint64_t *next)
{
    bool mixed = false;
    const struct position *first = first_of(all, false, &mixed);
    if (first == NULL)
        first = first_of(all, true, &mixed);
    if (first == NULL)
        return false;
    // Of several runs: everything that the current one has kept; each sink skips what it has.
    *next = mixed ? 1 : first->sequence + 1;
    memcpy(instance, mixed ? "" : first->instance, mixed ? 1 : POSITION_INSTANCE);
    memcpy(all->asked, first->instance, POSITION_INSTANCE);
    return true;
}
