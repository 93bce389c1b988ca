// SPDX-License-Identifier: Apache-2.0
// TCP flows: accepted inside a sandbox, dialled outside, copied both ways until both sides have ended.
//
//         accept          lookup            connect
//   (job) ------> NAMING ---------> DIALLING -------> OPEN ---- both ends of file ----> gone
//                   |  literal: at once ^ |             |
//                   |          RETRYING <-+ next address|
//                   +------ refused, cut, RST ----------+------------ RST ------------> gone
//
// The job's connect() has succeeded by the time the relay dials: a refusal shows as a RST. A half-close is passed on, a
// RST as well. Nothing of a flow is kept here: bytes are looked at in the one socket, written to the other, and taken
// out as far as that took them, so a slow reader holds up its writer as it would without a relay. What is held up lies
// in the kernel's buffers: those of the first few flows of a sandbox grow to megabytes, as one that downloads needs; a
// thousand of that size would be the host's memory.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "names.h"
#include "process.h"
#include "report.h"
#include "resolve.h"

enum {
    TCP_DIAL_MS = 10000,   // for all addresses together
    TCP_ATTEMPT_MS = 2000, // for one of them while there are others
    TCP_DRAIN_MS = 10000,  // for what a quota let through
    TCP_ACCEPTS_PER_TURN = 64,
    TCP_FLOWS_LARGE = 16,   // of a sandbox, whose buffers grow as the kernel likes
    TCP_BUFFER = 64 * 1024, // asked for of each further one's
};

enum flow_state { FLOW_NAMING, FLOW_DIALLING, FLOW_RETRYING, FLOW_OPEN };

// One direction.
struct lane {
    uint64_t bytes;
    bool ended;   // end of file was read and passed on
    bool blocked; // the reader's socket is full
    bool held;    // until the rate lets more through
};

struct flow {
    struct list node; // of the sandbox's, or of the free ones
    struct resolve_waiter waiter;
    struct sandbox *sandbox;
    enum flow_state state;
    struct watch job, peer;
    unsigned handles; // that the loop knows
    bool ended;       // and is free when the loop knows none
    bool denied;      // which was told
    bool small;       // its buffers do not grow
    bool draining;    // cut by a quota: the far end gets what is within it
    enum net_reason drained_because;
    int error; // errno of the last dial; ENOENT, EAGAIN: its name was not found, no server answered
    struct lane out, in;
    struct list waits; // for the sandbox's rate
    struct net_flow asked;
    struct name *name; // held; NULL: a literal address
    uint32_t rule;
    uint8_t address[16]; // being dialled, or dialled
    uint32_t addresses_n, next;
    uint8_t addresses[NAME_ADDRESSES][16];
    uint64_t dial_until_ms; // draining: until then
    uint64_t attempt_until_ms;
};

// A table of `n` flows. False without memory.
bool tcp_init(uint32_t n);

// The callback of TCP listeners; uv.data is the struct listener.
void tcp_on_listener(uv_poll_t *uv, int status, int events);

// Cuts what another policy forbids.
void tcp_recheck(struct sandbox *s);

// The sandbox is closed.
void tcp_drop(struct sandbox *s);

// Every tick: dials that took too long, rates. True while there are flows.
bool tcp_tick(struct relay *r);

// tcp_copy.c: moves what can be moved both ways, and asks the loop for what is missing. Ends the flow when it is over.
void tcp_copy(struct flow *f);

// Ends it. reset: both sides get a RST. reason: why it was cut. A quota's cut lets the far end have what was sent before:
// then the flow goes on without a job's side (draining).
void tcp_end(struct flow *f, bool reset, enum net_reason reason);

// tcp_end.c: it met the end of a quota, and with it those that have no more to send either.
void tcp_over_quota(struct flow *f, bool out);

// Ends those that have nothing left to send, or had their time.
void tcp_drained(struct sandbox *s);

// One of the table, nothing in it set; NULL: it is full. And how many are in use.
struct flow *tcp_take(void);
uint32_t tcp_flows(void);

// Whether its close sends a RST and drops what was not sent yet. On from the start, so that the end of the process does
// the same; off for a flow that both sides have ended.
void tcp_reset_at_close(int fd, bool on);

// It is dialled, or needs no dialling any more.
void tcp_set_open(struct flow *f);

// The loop has let go of one of its sockets.
void tcp_on_closed(uv_handle_t *h);

// What is reported of it.
struct report_about tcp_about(const struct flow *f);

// The next address that may be reached. A flow whose addresses all failed is reset, as a refused connection is.
void tcp_dial_next(struct flow *f);

// The callback of both ends' sockets.
void tcp_on_ready(uv_poll_t *uv, int status, int events);
