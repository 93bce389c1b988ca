// SPDX-License-Identifier: Apache-2.0
// See loop.h. A stopped handle is closed; libuv's close callback frees it.
#include "loop.h"

#include <errno.h>
#include <stdlib.h>

struct loop_timer {
    uv_timer_t uv;
    void (*fn)(void *cookie);
    void *cookie;
};

struct loop_poll {
    uv_poll_t uv;
    int events;
    void (*fn)(void *cookie, int events);
    void *cookie;
};

static void
closed(uv_handle_t *h)
{
    free(h->data);
}

static void
timer_fired(uv_timer_t *uv)
{
    struct loop_timer *t = uv->data;
    t->fn(t->cookie);
}

int
loop_timer_start(uv_loop_t *loop, struct loop_timer **slot, uint64_t ms, void (*fn)(void *cookie),
                 void *cookie)
{
    struct loop_timer *t = *slot;
    if (t == NULL) {
        t = calloc(1, sizeof *t);
        if (t == NULL)
            return -ENOMEM;
        (void)uv_timer_init(loop, &t->uv);
        t->uv.data = t;
        *slot = t;
    }
    t->fn = fn;
    t->cookie = cookie;
    return uv_timer_start(&t->uv, timer_fired, ms, 0);
}

void
loop_timer_stop(struct loop_timer **slot)
{
    struct loop_timer *t = *slot;
    *slot = NULL;
    if (t != NULL)
        uv_close((uv_handle_t *)&t->uv, closed);
}

void
loop_timer_rest(struct loop_timer *t)
{
    if (t != NULL)
        (void)uv_timer_stop(&t->uv);
}

static void
poll_ready(uv_poll_t *uv, int status, int events)
{
    struct loop_poll *p = uv->data;
    p->fn(p->cookie, status < 0 ? UV_READABLE | UV_WRITABLE : events);
}

int
loop_poll_start(uv_loop_t *loop, struct loop_poll **slot, int fd, int events,
                void (*fn)(void *cookie, int events), void *cookie)
{
    struct loop_poll *p = calloc(1, sizeof *p);
    if (p == NULL)
        return -ENOMEM;
    int r = uv_poll_init(loop, &p->uv, fd);
    if (r < 0) {
        free(p);
        return r;
    }
    p->uv.data = p;
    p->fn = fn;
    p->cookie = cookie;
    *slot = p;
    loop_poll_want(p, events);
    return 0;
}

void
loop_poll_want(struct loop_poll *p, int events)
{
    if (p->events == events)
        return;
    p->events = events;
    if (events == 0)
        (void)uv_poll_stop(&p->uv);
    else
        (void)uv_poll_start(&p->uv, events, poll_ready);
}

void
loop_poll_stop(struct loop_poll **slot)
{
    struct loop_poll *p = *slot;
    *slot = NULL;
    if (p != NULL)
        uv_close((uv_handle_t *)&p->uv, closed);
}
