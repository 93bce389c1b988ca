// SPDX-License-Identifier: Apache-2.0
// See conn_private.h: output. A list of chunks of packed frames, written in up to eight pieces at a time. While a MiB
// waits, no stream sends.
#include "proto/container_of.h"
#include "conn_private.h"

#include <assert.h>
#include <string.h>

#include "proto/wire.h"
#include "server/base/metrics.h"

enum { ID_BYTES = 4 };

bool
conn_is_full(const struct conn *c)
{
    return c->state != CONN_OPEN || c->tx.bytes >= c->rpc->limits.queue_bytes_pause;
}

uint8_t *
conn_reserve(struct conn *c, size_t n)
{
    uint8_t *p = NULL;
    if (c->tx.bytes + n <= c->rpc->limits.queue_bytes_kill)
        p = outbox_reserve(&c->tx, c->rpc, c->tenant, n);
    if (p == NULL) {
        metrics_add(METRIC_UNREAD_CLOSED, 1);
        conn_close(c);
    }
    return p;
}

static bool
swallows(const struct conn *c)
{
    return c->state == CONN_LEAVING || c->state == CONN_CLOSING;
}

void
conn_queue(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame)
{
    size_t n = wire_frame_bytes(c->local, &frame->base);
    assert(n > 0); // the packer has checked the payload's size
    uint8_t *p = swallows(c) ? NULL : conn_reserve(c, n);
    if (p == NULL)
        return;
    wire_put_frame(p, n, c->local, id, &frame->base);
}

void
conn_send(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame)
{
    conn_queue(c, id, frame);
    conn_flush(c);
}

void
conn_send_packed(struct conn *c, uint32_t id, const uint8_t *frame, size_t n)
{
    size_t header = sp_header_bytes(c->local);
    uint8_t *p = swallows(c) ? NULL : conn_reserve(c, header + ID_BYTES + n);
    if (p == NULL)
        return;
    p += sp_header(p, c->local, ID_BYTES + n);
    for (unsigned i = 0; i < ID_BYTES; i++)
        *p++ = (uint8_t)(id >> (24 - 8 * i));
    memcpy(p, frame, n);
    conn_flush(c);
}

// Set while a write is in progress. If another write has begun since, it checks again later, so that a write does not
// change the heap of timers.
void
conn_on_stall(struct timer *t)
{
    struct conn *c = container_of(t, struct conn, stall);
    uint64_t until_ns = c->moved_ns + c->rpc->limits.write_stall_ms * NS_PER_MS;
    if (!c->writing)
        return;
    if (uv_hrtime() < until_ns && timers_set(c->rpc->timers, t, until_ns) == 0)
        return;
    metrics_add(METRIC_STALLED_CLOSED, 1);
    conn_close(c);
}

static bool
watch_stall(struct conn *c)
{
    c->moved_ns = uv_hrtime();
    return c->stall.index != 0 ||
           timers_set(c->rpc->timers, &c->stall,
                      c->moved_ns + c->rpc->limits.write_stall_ms * NS_PER_MS) == 0;
}

void
conn_flush(struct conn *c)
{
    struct iovec iov[TRANSPORT_IOV_MAX];
    if (c->writing || c->processing || c->state == CONN_CLOSING || c->tx.bytes == 0)
        return;
    if (!watch_stall(c)) {
        conn_close(c);
        return;
    }
    unsigned n = outbox_pieces(&c->tx, iov, TRANSPORT_IOV_MAX);
    const bool measured = conn_meter_begin(c);
    c->writing = true;
    c->ops->write(c->stream, iov, n);
    if (measured)
        conn_meter_end(c);
}

void
conn_on_written(void *conn, size_t n)
{
    struct conn *c = conn;
    c->writing = false;
    if (n == 0) {
        conn_close(c);
        return;
    }
    metrics_add(METRIC_SENT_BYTES, n);
    outbox_drop(&c->tx, c->rpc, c->tenant, n);
    conn_flush(c);
    if (c->state == CONN_LEAVING && c->tx.bytes == 0)
        conn_close(c);
    if (c->state != CONN_OPEN || c->tx.bytes > c->rpc->limits.queue_bytes_pause / 2)
        return;
    conn_wake_waiting(c);
    if (c->paused) {
        c->paused = false;
        conn_process(c);
    }
}
