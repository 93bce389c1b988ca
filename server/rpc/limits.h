// SPDX-License-Identifier: Apache-2.0
// The limits of the RPC layer, which config/ fills, and how much of them is used: plain data.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rpc_limits {
    uint32_t connections_max;         // in total
    uint32_t connections_per_uid_max; // ipc: of one uid; tcp: in total
    uint32_t calls_max;               // open calls on one connection
    uint32_t streams_max;             // open streams on one connection
    uint32_t calls_per_uid_max;       // open calls of one uid over all its connections
    uint64_t bytes_per_uid_max;       // of large frames, requests and replies of one uid
    uint32_t handshake_ms;            // from accept to the peer's 8 bytes
    uint64_t queue_bytes_pause;       // queued to a peer: stop reading from it
    uint64_t queue_bytes_kill;        // queued to a peer: close it
    uint32_t write_stall_ms;          // close a peer that reads none of its queue for this time
    uint32_t keepalive_idle_ms; // close a silent peer without open calls after this time; 0: never
    uint32_t idempotency_ms;    // minimum time for which a result is kept
    uint32_t idempotency_keys_max;  // per tenant
    uint64_t idempotency_bytes_max; // of results that are kept per tenant; larger ones are not kept
    uint32_t shared_cpu;            // percent: fair_part(); 0: no shares
    bool tcp_any_address;           // tcp may listen on any address
    bool websocket;                 // ws:// addresses are accepted
    uint32_t reader_uid;            // see principal_make_reader(); 0: no account
    // Accounts of the broker's own helpers and of jobs, which have no business with it; one of them that calls was taken over.
    uint32_t helper_uid;           // 0: none
    uint32_t ids_first, ids_after; // its ranges
    bool tls;                      // a certificate for tls+tcp:// addresses is set
};

// What is open now. What happened so far is counted in base/metrics_table.h.
struct rpc_stats {
    uint32_t connections, open_calls, open_streams;
    uint32_t watching_calls; // of the open ones: see call_only_watches()
};
