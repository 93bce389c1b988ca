// SPDX-License-Identifier: Apache-2.0
// Shared state of the relay's process: one loop, its clock, one table of sandboxes. One thread, and tables with a size
// that is fixed at the start.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "server/base/list.h"
#include "permit.h"
#include "relay.h"

enum {
    TICK_MS = 100,
    LISTENERS = 4,
    FLOWS_MAX = 16384,       // TCP flows of all sandboxes; fewer if descriptors are short
    ASSOCIATIONS_MAX = 8192, // UDP
    STREAMS_MAX = 1024,      // of DNS over TCP
    STREAMS_PER_SANDBOX = 32,
    SCRATCH_BYTES = 128 * 1024,
    TURN_BYTES = 256 * 1024, // bytes that a sandbox moves per turn of the loop, shared by its flows
    TURN_BYTES_MIN = 8 * 1024, // bytes of a flow per turn, however many flows there are
};

// A descriptor that the loop watches, embedded in its owner.
struct watch {
    uv_poll_t uv;
    int fd;     // owned; -1
    int events; // wanted now
    bool live;  // its handle is known to the loop
};

enum { LISTENER_TCP4, LISTENER_UDP4, LISTENER_TCP6, LISTENER_UDP6 };

struct listener {
    struct watch watch;
    struct sandbox *sandbox; // NULL: absent
    int kind;
};

// A rate per second, and a burst.
struct bucket {
    uint64_t rate, burst; // per second
    uint64_t level;       // thousandths
    uint64_t at_ms;
};

// See rate.h.
struct rate {
    uint64_t per_second; // bytes; 0: no limit
    uint64_t at_ns;
    double level; // bytes
};

struct sham;

struct sandbox {
    bool open;
    bool closing; // CLOSED will be reported when the loop has released the listeners
    uint32_t slot, generation;
    uint32_t handles; // listener handles that the loop still has
    struct relay *relay;
    struct listener listeners[LISTENERS];
    struct permit *permit; // owned
    struct sham *sham;     // owned: it is simulated, and nothing may leave; NULL: it is real
    struct list node;      // of all that are open
    struct list flows, associations, streams, queries, names;
    uint32_t sham_n;     // its connections, associations and names so far
    uint32_t names_last; // the last index that was assigned, by this relay or an earlier one
    uint32_t connections, flows_n, associations_n, names_n, lookups_n, queries_open, streams_n;
    uint64_t out_bytes, in_bytes;
    uint32_t queries_n, lost;
    struct relay_settled carried; // without open connections, which sandbox_settle() adds
    uint32_t answers[RELAY_ANSWERS];
    struct permit_window queries_window;
    struct bucket denials, reports, dials;
    struct rate rate_out, rate_in;
    struct list waiting;   // flows that wait for the rate
    bool serving;          // their turn is in progress
    bool datagrams_turn;   // it is the turn of datagrams
    uint32_t dialling;     // flows that are not connected yet
    uint32_t draining;     // flows that only send buffered data
    uint32_t in_force_due; // IN_FORCE reports that did not fit into the socket
    bool resting;          // listeners do not accept until the next tick
    bool changed;          // since the last SUMS report
    bool spent;            // SPENT: no more bytes may leave
};

struct relay {
    uv_loop_t loop;
    uv_timer_t tick;
    uv_timer_t rates; // runs while flows wait for their rate
    void (*rate_turn)(struct list *waits);
    bool ticking;
    bool pong_due; // it did not fit into the socket
    uint32_t ping; // number of the last PING
    struct watch orders;
    int names_fd, flows_fd;
    uint64_t now_ms; // time of this turn of the loop
    struct list sandboxes;
    uint32_t flows_max, associations_max;
    uint8_t scratch[SCRATCH_BYTES];
    struct sandbox table[BPF_SLOTS];
};

// Whether a sandbox with `mine` entries of a table may take one more, while `used` of `all` are taken. It gets at most
// as many as it leaves, so however many sandboxes are greedy, the next one finds room (dynamic thresholds: Choudhury,
// Hahne).
bool share_left(uint32_t mine, uint32_t used, uint32_t all);

// Milliseconds and nanoseconds of CLOCK_BOOTTIME.
uint64_t clock_ms(void);
uint64_t clock_ns(void);

// Starts to watch fd for events, 0: only for errors. `data` is in uv.data. The loop calls back with events, or with a
// negative status for an error of the descriptor; then the handle is stopped, and watch_want() starts it again.
void watch_open(struct relay *r, struct watch *w, int fd, int events, uv_poll_cb cb, void *data);
void watch_want(struct watch *w, int events, uv_poll_cb cb);
// After a callback with a negative status.
void watch_stopped(struct watch *w);
// Closes the descriptor immediately and the handle soon after, and calls `closed` then. False: there was nothing to
// close.
bool watch_close(struct watch *w, uv_close_cb closed);

// Requests the tick, which runs while it is needed.
void tick_need(struct relay *r);

// Takes n tokens if available.
void bucket_set(struct bucket *b, uint64_t rate, uint64_t burst);
bool bucket_take(struct bucket *b, uint64_t n, uint64_t now_ms);
// Returns n unused tokens.
void bucket_give(struct bucket *b, uint64_t n);
