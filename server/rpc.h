// SPDX-License-Identifier: Apache-2.0
// The listening side: addresses, connections, frames. What carries the bytes is behind this (transport.h).
//
// A ws address starts nng's threads, so the spawner must have been forked before, and all signals blocked. Everything
// else runs on the loop thread that rpc_new was called on.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "../proto/err.h"

struct dispatch;
struct rpc;
struct tenant;

struct rpc_limits {
    uint32_t connections_max;         // in all
    uint32_t connections_per_uid_max; // ipc: of one uid; tcp: in all
    uint32_t calls_max;               // open on one connection
    uint32_t streams_max;             // of those, streams
    uint32_t calls_per_uid_max;       // open calls of one uid over all its connections
    uint64_t bytes_per_uid_max; // of large frames, requests and replies that are held for one uid
    uint32_t handshake_ms;      // from accept to the peer's 8 bytes
    uint64_t queue_bytes_pause; // queued to a peer: stop reading from it
    uint64_t queue_bytes_kill;  // queued to a peer: close it
    uint32_t write_stall_ms; // something is queued, and the peer takes nothing this long: close it
    uint32_t
        keepalive_idle_ms; // a peer that is silent this long with no call open is closed; 0: never
    uint32_t idempotency_ms;        // how long a key's result is kept, at least
    uint32_t idempotency_keys_max;  // per tenant
    uint64_t idempotency_bytes_max; // of results kept per tenant; larger ones are not kept
    bool tcp_any_address;           // tcp may listen on more than loopback
    bool websocket;                 // ws:// addresses are taken at all
};
void rpc_limits_default(struct rpc_limits *l);

// Owned: rpc_free() (after uv_run has ended). d is borrowed.
struct rpc *rpc_new(uv_loop_t *loop, struct dispatch *d, const struct rpc_limits *l);
void rpc_free(struct rpc *r);

// What rpc_listen() refuses by the address and the limits alone, before anything listens.
int rpc_check_address(const struct rpc_limits *l, const char *address, struct err *e);

// Listens on "ipc:///path" (mode: permissions of the socket file, group: its group or -1) or "tcp://127.0.0.1:port".
// "ws://127.0.0.1:port" is refused unless `websocket` is set, and below nng 1.6 (FAILED_PRECONDITION, with the reason),
// tls always. INVALID_ARGUMENT: another scheme. On success *bound (64 bytes or more) holds the address with the port that was chosen for port 0.
int rpc_listen(struct rpc *r, const char *address, uint32_t mode, int group, char *bound,
               size_t bound_n, struct err *e);

// Drain: GOAWAY on every connection, and methods that begin something are refused. Others go on, also on new connections:
// who runs a job may still send it input, or ask how things are. Then `done` once no call is open, or after grace_ms.
void rpc_drain(struct rpc *r, uint32_t grace_ms, void (*done)(void *), void *cookie);

// Closes every connection and listener now. uv_run ends when nothing else is left.
void rpc_close(struct rpc *r);

// What there is, and what there was. Info tells of the failures that an operator can do something about.
struct rpc_stats {
    uint64_t accepted, rejected, handshake_failed, protocol_errors, slow_readers_closed,
        stalled_closed;
    uint64_t calls, calls_failed, calls_cancelled;
    uint32_t connections, open_calls, open_streams;
};
void rpc_stats(const struct rpc *r, struct rpc_stats *out);

// Memory that is held for a tenant outside this layer, such as what its jobs have written and nobody has read: within three
// quarters of the same share (bytes_per_uid_max), so that there is room for calls and their answers. The tenant is held until it is dropped, when all was given back (tenants.h). NULL without
// memory.
struct tenant *rpc_tenant_hold(struct rpc *r, const char *name);
void rpc_tenant_drop(struct rpc *r, struct tenant *t);
bool rpc_tenant_take(const struct rpc *r, struct tenant *t, size_t n);

// Version of the nng library found at run time, such as "1.5.2".
const char *rpc_nng_version(void);
