// SPDX-License-Identifier: Apache-2.0
// See conn_private.h: input. One buffer, which is small at first, grows to 64 KiB while the peer fills it, and beyond
// that only as the bytes of a larger frame arrive. While a MiB of output waits for the peer, nothing is read from it.
#include "conn_private.h"

#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "server/base/metrics.h"

enum {
    RX_BYTES_FIRST = 4 * 1024,
    RX_BYTES_USUAL = 64 * 1024, // a larger buffer is taken from the tenant's share
    RX_SMALL_READS = 16,        // after so many small reads in a row, a large buffer is released
};

bool
conn_rx_init(struct conn *c)
{
    c->rx = malloc(RX_BYTES_FIRST);
    c->rx_size = RX_BYTES_FIRST;
    return c->rx != NULL;
}

void
conn_rx_free(struct conn *c)
{
    if (c->rx_size > RX_BYTES_USUAL)
        tenant_give_bytes(c->tenant, c->rx_size);
    free(c->rx);
    c->rx = NULL;
    c->rx_size = 0;
}

// Handles the message at `off`. Returns its length; 0: more bytes are needed, or no message may be handled now.
static size_t
handle_bytes(struct conn *c, size_t off)
{
    bool ipc = c->local;
    uint64_t body = 0;
    if (c->state == CONN_HELLO) {
        if (c->rx_n - off < SP_HELLO_BYTES)
            return 0;
        conn_greet(c, c->rx);
        return SP_HELLO_BYTES;
    }
    int found = sp_header_read(c->rx + off, c->rx_n - off, ipc, &body);
    if (found < 0)
        conn_fail(c, ERR_INVALID_ARGUMENT, "FRAME_INVALID",
                  "not an SP message of 4 bytes to 4 MiB");
    if (found <= 0)
        return 0;
    size_t header = sp_header_bytes(ipc);
    c->rx_need = header + (size_t)body;
    if (c->rx_n - off < c->rx_need)
        return 0;
    frame_handle(c, c->rx + off + header, (size_t)body, c->rx_arrived_ns);
    size_t taken = c->rx_need;
    c->rx_need = 0;
    return taken;
}

// Sets the buffer's size. False: out of memory, or more than the tenant's share.
static bool
resize_rx(struct conn *c, size_t size)
{
    struct tenant *t = c->tenant;
    uint64_t before = c->rx_size > RX_BYTES_USUAL ? c->rx_size : 0;
    uint64_t after = size > RX_BYTES_USUAL ? size : 0;
    if (after > before && !tenant_take_bytes(t, after - before, c->rpc->limits.bytes_per_uid_max))
        return false;
    if (after < before)
        tenant_give_bytes(t, before - after);
    uint8_t *rx = realloc(c->rx, size);
    if (rx == NULL) {
        tenant_give_bytes(t, after);
        free(c->rx);
        c->rx_size = 0;
        c->rx = NULL;
        return false;
    }
    c->rx = rx;
    c->rx_size = size;
    return true;
}

// The size for the current input.
static size_t
rx_size_wanted(const struct conn *c)
{
    size_t most = c->rx_need > RX_BYTES_USUAL ? c->rx_need : RX_BYTES_USUAL;
    if (c->rx_n == c->rx_size)
        return c->rx_size * 2 < most ? c->rx_size * 2 : most;
    bool large = c->rx_size > RX_BYTES_USUAL ||
                 (c->rx_size > RX_BYTES_FIRST && c->rx_small >= RX_SMALL_READS);
    return c->rx_n == 0 && large ? RX_BYTES_FIRST : c->rx_size;
}

void
conn_read(struct conn *c)
{
    size_t size = rx_size_wanted(c);
    if (size != c->rx_size && !resize_rx(c, size)) {
        conn_fail(c, ERR_RESOURCE_EXHAUSTED, "BYTES_PER_UID",
                  "this user sends too many large frames at a time");
        return;
    }
    c->reading = true;
    c->ops->read(c->stream, c->rx + c->rx_n, c->rx_size - c->rx_n);
}

void
conn_process(struct conn *c)
{
    size_t off = 0;
    bool waits = false;
    const bool measured = conn_meter_begin(c);
    c->processing = true;
    while (c->state == CONN_HELLO || c->state == CONN_OPEN) {
        c->paused = c->tx.bytes > c->rpc->limits.queue_bytes_pause;
        waits = c->state == CONN_OPEN && conn_must_wait(c);
        size_t taken = c->paused || waits || off == c->rx_n ? 0 : handle_bytes(c, off);
        if (taken == 0)
            break;
        off += taken;
        conn_meter_lap(c);
    }
    c->rx_n -= off;
    if (off > 0 && c->rx_n > 0)
        memmove(c->rx, c->rx + off, c->rx_n);
    c->processing = false;
    conn_flush(c);
    if (measured)
        conn_meter_end(c);
    if ((c->state == CONN_HELLO || c->state == CONN_OPEN) && !c->paused && !waits)
        conn_read(c);
    else if (waits && c->state == CONN_OPEN)
        c->ops->hold(c->stream); // one whose peer has gone gives its place back
}

void
conn_on_read(void *conn, size_t n)
{
    struct conn *c = conn;
    c->reading = false;
    if (n == 0) {
        if (c->state == CONN_HELLO)
            metrics_add(METRIC_HANDSHAKE_FAILED, 1);
        conn_close(c);
        return;
    }
    metrics_add(METRIC_RECEIVED_BYTES, n);
    if (c->state == CONN_LEAVING)
        return;
    c->rx_small = n * 8 <= c->rx_size ? c->rx_small + 1 : 0;
    c->rx_n += n;
    c->rx_arrived_ns = uv_hrtime();
    c->active_ns = c->rx_arrived_ns;
    conn_seen(c, c->rx_arrived_ns);
    conn_process(c);
}
