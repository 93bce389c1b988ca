// SPDX-License-Identifier: Apache-2.0
// See transport_engine.h.
#include "transport_engine.h"

#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/metrics.h"

#define LOG_PAUSE_NS UINT64_C(10000000000)
enum { LOG_LINES_MAX = 10 }; // within that interval

void
transport_log(struct transport_log *l, const char *event, const char *what, const char *why)
{
    const uint64_t now = uv_hrtime();
    if (now - l->from_ns >= LOG_PAUSE_NS)
        *l = (struct transport_log){.from_ns = now};
    if (l->n++ < LOG_LINES_MAX)
        log_event(LOG_WARNING, event, "%s: %s", what, why);
    else
        metrics_add(METRIC_LOG_OMITTED, 1);
}

void
transport_add_listener(struct transport *t, struct list *node)
{
    list_append(&t->listeners, node);
    t->alive++;
}

static void
end_if_empty(struct transport *t)
{
    if (!t->shutting || t->alive > 0 || t->ended)
        return;
    t->ended = true;
    t->end(t);
}

void
transport_gone(struct transport *t)
{
    t->alive--;
    end_if_empty(t);
}

void
transport_ended(struct transport *t)
{
    const struct transport_events *events = t->events;
    void *cookie = t->cookie;
    free(t);
    events->on_shut(cookie);
}

void
transport_handle_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    if (--t->handles == 0)
        transport_ended(t);
}

void
transport_shut(struct transport *t)
{
    t->shutting = true;
    list_each(it, &t->listeners)
    {
        list_remove(it);
        t->close_listener(it);
    }
    end_if_empty(t);
}

void
transport_take(struct list *to, struct list *from)
{
    list_init(to);
    while (!list_empty(from)) {
        struct list *node = from->next;
        list_remove(node);
        list_append(to, node);
    }
}

void
transport_again(uv_idle_t *again)
{
    (void)again;
}

size_t
transport_gather(const struct iovec *iov, unsigned n, size_t skip, uint8_t *to, size_t room)
{
    size_t at = 0;
    for (unsigned i = 0; i < n && at < room; i++) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        size_t part = iov[i].iov_len - skip < room - at ? iov[i].iov_len - skip : room - at;
        memcpy(to + at, (const uint8_t *)iov[i].iov_base + skip, part);
        at += part;
        skip = 0;
    }
    return at;
}
