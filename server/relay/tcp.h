// SPDX-License-Identifier: Apache-2.0
// TCP flows: accepted inside a sandbox, connected to outside, and copied in both directions until both sides have
// ended.
//
//         accept          lookup            connect
//   (job) ------> NAMING ---------> DIALLING -------> OPEN ---- both ends of file ----> gone
//                   |  literal: at once ^ |             |
//                   |          RETRYING <-+ next address|
//                   +------ refused, cut, RST ----------+------------ RST ------------> gone
//
// The job's connect() has already succeeded when the relay connects, so a refusal appears as a RST. Half-closes and
// RSTs are passed on. The relay buffers no data of a flow: it peeks at bytes in one socket, writes them to the other,
// and removes only what was written. So a slow reader slows down its writer as it would without a relay. Waiting data
// stays in the kernel's buffers. Those of the first few flows of a sandbox may grow to megabytes, which downloads
// need; a thousand of that size would use up the host's memory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "names.h"
#include "process.h"
#include "report.h"
#include "resolve.h"
#include "sham.h"

enum {
    TCP_DIAL_MS = 10000,   // for all addresses together
    TCP_ATTEMPT_MS = 2000, // for one of them while there are others
    TCP_DRAIN_MS = 10000,  // for sending data that a quota allowed
    TCP_ACCEPTS_PER_TURN = 64,
    TCP_FLOWS_LARGE = 16,   // flows of a sandbox whose buffers may grow
    TCP_BUFFER = 64 * 1024, // requested buffer size of further flows
    // Of a simulated sandbox: a reply without a byte from the job; a reset when it is quiet; the end after a reply; the end at the
    // latest.
    TCP_SHAM_FIRST_MS = 500,
    TCP_SHAM_QUIET_MS = 200,
    TCP_SHAM_AFTER_MS = 1000,
    TCP_SHAM_MOST_MS = 10000,
};

enum flow_state { FLOW_NAMING, FLOW_DIALLING, FLOW_RETRYING, FLOW_OPEN };

// One direction of a flow.
struct lane {
    uint64_t bytes;
    bool ended;   // end of file was read and passed on
    bool blocked; // the reader's socket is full
    bool held;    // until the rate lets more through
};

struct flow {
    struct list node; // in the sandbox's list, or in the free list
    struct resolve_waiter waiter;
    struct sandbox *sandbox;
    enum flow_state state;
    struct watch job, peer;
    unsigned handles; // that the loop still has
    bool ended;       // it is freed when the loop has none of its handles
    bool denied;      // which was reported
    bool small;       // its buffers do not grow
    bool draining;    // cut by a quota: the destination still gets the data within the quota
    enum net_reason drained_because;
    // errno of the last connection attempt; ENOENT, EAGAIN: its name was not found, no server
    // responded
    int error;
    struct lane out, in;
    struct list waits; // for the sandbox's rate
    struct net_flow asked;
    struct name *name; // held; NULL: a literal address
    uint32_t rule;
    uint8_t address[16]; // of the current or last connection
    uint32_t addresses_n, next;
    uint8_t addresses[NAME_ADDRESSES][16];
    uint64_t dial_until_ms; // while draining: the end of the time for that
    uint64_t attempt_until_ms;
    struct sham_lane sham; // of a simulated sandbox: there is no peer
};

// Makes a table of `n` flows. False: out of memory.
bool tcp_init(uint32_t n);

// The callback of TCP listeners; uv.data is the struct listener.
void tcp_on_listener(uv_poll_t *uv, int status, int events);

// Closes flows that the new policy forbids.
void tcp_recheck(struct sandbox *s);

// The sandbox is closed.
void tcp_drop(struct sandbox *s);

// Call at every tick: timeouts of connection attempts, rates. True while there are flows.
bool tcp_tick(struct relay *r);

// tcp_copy.c: moves data in both directions as far as possible, and sets the events to wait for. Ends the flow when it
// has ended.
void tcp_copy(struct flow *f);
// The same for one that waited for its rate.
void tcp_turn(struct list *waits);

// tcp_sham.c, for simulated sandboxes: instead of a connection, for a flow that was judged; its socket is ready; at every tick; and once
// before the sandbox is closed.
void tcp_sham_begin(struct flow *f);
void tcp_sham_ready(struct flow *f, int status);
void tcp_sham_tick(struct sandbox *s);
void tcp_sham_last(struct sandbox *s);

// Ends the flow. reset: both sides get a RST. reason: why it was cut. After a cut by a quota the destination still gets
// the data that was sent before: the flow continues without the job's side (draining).
void tcp_end(struct flow *f, bool reset, enum net_reason reason);

// tcp_end.c: the flow reached a quota, and with it all flows that may send nothing more.
void tcp_over_quota(struct flow *f, bool out);

// Ends draining flows that have nothing left to send, or have reached their timeout.
void tcp_drained(struct sandbox *s);

// A flow from the table, with nothing set; NULL: the table is full. And the number of flows in use.
struct flow *tcp_take(void);
uint32_t tcp_flows(void);

// Whether close() sends a RST and drops unsent data. It is on from the start, so the end of the process also sends a
// RST; off for a flow that both sides have ended.
void tcp_reset_at_close(int fd, bool on);

// The bytes of a job's connection that wait in the kernel: from the job, not passed on; for the job, not acknowledged.
void tcp_waiting(int fd, uint64_t *left, uint64_t *unsent);
// Counts them as left when the connection is closed. Call it right before.
void tcp_leave(struct sandbox *s, int fd);

// It is connected, or needs no connection any more.
void tcp_set_open(struct flow *f);

// The loop has released one of its sockets.
void tcp_on_closed(uv_handle_t *h);

// The report about a flow.
struct report_about tcp_about(const struct flow *f);

// Connects to the next address that is permitted. A flow with no address left is reset, like a refused connection.
void tcp_dial_next(struct flow *f);

// The callback of both sockets.
void tcp_on_ready(uv_poll_t *uv, int status, int events);
