// SPDX-License-Identifier: Apache-2.0
// See process.h.
#include "process.h"

#include <assert.h>
#include <time.h>
#include <unistd.h>

#include "proto/now.h"

enum { NS_PER_MS = 1000000, MS_PER_S = 1000 };

bool
share_left(uint32_t mine, uint32_t used, uint32_t all)
{
    assert(used <= all);
    return mine < all - used;
}

uint64_t
clock_ns(void)
{
    return (uint64_t)now_ns(CLOCK_BOOTTIME);
}

uint64_t
clock_ms(void)
{
    return clock_ns() / NS_PER_MS;
}

void
watch_open(struct relay *r, struct watch *w, int fd, int events, uv_poll_cb cb, void *data)
{
    // It can fail only for lack of memory, or if the descriptor is already watched.
    int rc = uv_poll_init(&r->loop, &w->uv, fd);
    assert(rc == 0);
    w->uv.data = data;
    w->fd = fd;
    w->events = 0;
    w->live = true;
    watch_want(w, events, cb);
}

// UV_PRIORITIZED means errors only: epoll always reports them.
void
watch_want(struct watch *w, int events, uv_poll_cb cb)
{
    events |= UV_PRIORITIZED;
    if (!w->live || w->events == events)
        return;
    w->events = events;
    int rc = uv_poll_start(&w->uv, events, cb);
    assert(rc == 0);
}

void
watch_stopped(struct watch *w)
{
    w->events = 0;
}

bool
watch_close(struct watch *w, uv_close_cb closed)
{
    if (!w->live) {
        if (w->fd >= 0)
            (void)close(w->fd);
        w->fd = -1;
        return false;
    }
    (void)uv_poll_stop(&w->uv);
    uv_close((uv_handle_t *)&w->uv, closed);
    (void)close(w->fd);
    w->fd = -1;
    w->live = false;
    return true;
}

void
bucket_set(struct bucket *b, uint64_t rate, uint64_t burst)
{
    bool fresh = b->rate == 0;
    b->rate = rate;
    b->burst = burst;
    if (fresh || b->level > burst * MS_PER_S)
        b->level = burst * MS_PER_S;
}

bool
bucket_take(struct bucket *b, uint64_t n, uint64_t now_ms)
{
    if (b->rate == 0)
        return true;
    uint64_t passed = now_ms - b->at_ms;
    uint64_t full = b->burst * MS_PER_S;
    // After a minute the bucket is full; a longer time could overflow.
    uint64_t more = passed > 60 * (uint64_t)MS_PER_S ? full : passed * b->rate;
    b->level = more >= full - b->level ? full : b->level + more;
    b->at_ms = now_ms;
    if (b->level < n * MS_PER_S)
        return false;
    b->level -= n * MS_PER_S;
    return true;
}

void
bucket_give(struct bucket *b, uint64_t n)
{
    b->level += n * MS_PER_S;
}
