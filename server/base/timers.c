// SPDX-License-Identifier: Apache-2.0
// See timers.h. A binary heap by at_ns in an array of pointers; heap[0] is unused so that 0 can mean "not set".
#include "timers.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct timers {
    uv_timer_t handle;
    struct timer **heap; // heap[1] is the earliest
    size_t n, room;
    bool firing;
};

static void on_timer(uv_timer_t *handle);

struct timers *
timers_new(uv_loop_t *loop)
{
    struct timers *ts = calloc(1, sizeof *ts);
    if (ts == NULL)
        return NULL;
    (void)uv_timer_init(loop, &ts->handle); // cannot fail
    ts->handle.data = ts;
    return ts;
}

static void
on_handle_closed(uv_handle_t *handle)
{
    struct timers *ts = handle->data;
    free(ts->heap);
    free(ts);
}

void
timers_close(struct timers *ts)
{
    if (ts == NULL)
        return;
    for (size_t i = 1; i <= ts->n; i++)
        ts->heap[i]->index = 0;
    ts->n = 0;
    uv_close((uv_handle_t *)&ts->handle, on_handle_closed);
}

static void
put(struct timers *ts, size_t index, struct timer *t)
{
    ts->heap[index] = t;
    t->index = index;
}

static void
sift_up(struct timers *ts, size_t index)
{
    struct timer *t = ts->heap[index];
    for (; index > 1 && ts->heap[index / 2]->at_ns > t->at_ns; index /= 2)
        put(ts, index, ts->heap[index / 2]);
    put(ts, index, t);
}

static void
sift_down(struct timers *ts, size_t index)
{
    struct timer *t = ts->heap[index];
    for (;;) {
        size_t child = index * 2;
        if (child > ts->n)
            break;
        if (child < ts->n && ts->heap[child + 1]->at_ns < ts->heap[child]->at_ns)
            child++;
        if (ts->heap[child]->at_ns >= t->at_ns)
            break;
        put(ts, index, ts->heap[child]);
        index = child;
    }
    put(ts, index, t);
}

// Sets libuv's timer to the earliest entry.
static void
arm(struct timers *ts)
{
    if (ts->firing)
        return; // on_timer() does it at its end
    if (ts->n == 0) {
        (void)uv_timer_stop(&ts->handle);
        return;
    }
    const struct timer *first = ts->heap[1];
    assert(first != NULL);
    uint64_t now = uv_hrtime();
    uint64_t ms = first->at_ns > now ? (first->at_ns - now + 999999) / 1000000 : 0;
    (void)uv_timer_start(&ts->handle, on_timer, ms, 0);
}

static void
take_out(struct timers *ts, struct timer *t)
{
    size_t index = t->index;
    assert(index > 0 && index <= ts->n);
    struct timer *last = ts->heap[ts->n--];
    t->index = 0;
    if (last == t)
        return;
    put(ts, index, last);
    sift_up(ts, index);
    sift_down(ts, last->index);
}

static void
on_timer(uv_timer_t *handle)
{
    struct timers *ts = handle->data;
    uint64_t now = uv_hrtime();
    ts->firing = true;
    while (ts->n > 0 && ts->heap[1]->at_ns <= now) {
        struct timer *t = ts->heap[1];
        take_out(ts, t);
        t->fire(t);
    }
    ts->firing = false;
    if (!uv_is_closing((uv_handle_t *)&ts->handle))
        arm(ts);
}

static int
make_room(struct timers *ts)
{
    if (ts->n + 1 < ts->room)
        return 0;
    size_t room = ts->room == 0 ? 64 : ts->room * 2;
    struct timer **bigger = realloc(ts->heap, room * sizeof(void *));
    if (bigger == NULL)
        return -ENOMEM;
    ts->heap = bigger;
    ts->room = room;
    return 0;
}

int
timers_set(struct timers *ts, struct timer *t, uint64_t at_ns)
{
    struct timer *earliest = ts->n > 0 ? ts->heap[1] : NULL;
    uint64_t earliest_ns = earliest != NULL ? earliest->at_ns : 0;
    if (t->index != 0)
        take_out(ts, t);
    if (at_ns != UINT64_MAX) {
        int failed = make_room(ts);
        if (failed)
            return failed;
        t->at_ns = at_ns;
        put(ts, ++ts->n, t);
        sift_up(ts, ts->n);
    }
    const struct timer *now_earliest = ts->n > 0 ? ts->heap[1] : NULL;
    if (now_earliest == NULL || now_earliest != earliest || now_earliest->at_ns != earliest_ns)
        arm(ts);
    return 0;
}

void
timers_clear(struct timers *ts, struct timer *t)
{
    if (t->index != 0)
        (void)timers_set(ts, t, UINT64_MAX);
}
