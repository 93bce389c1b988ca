// SPDX-License-Identifier: Apache-2.0
// The parts of the running broker. One per process; loop thread only. Each layer makes and frees its own part; main.c sets
// the pointers in the order of the layers. A layer uses the parts below it only: the header of a part above it cannot be
// included (tests/check/rules), so here it is a name without contents.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct access;
struct alive;
struct anomaly;
struct approvals;
struct audit;
struct batches;
struct bpf;
struct config;
struct config_reloader;
struct contexts;
struct dispatch;
struct feed;
struct files;
struct forwards;
struct jobs;
struct made_all;
struct net;
struct pool;
struct relay_link;
struct relay_report;
struct rpc;
struct rules_of_tenants;
struct sandboxes;
struct silences;
struct spawn;
struct sleepers;
struct spawn_features;
struct state;
struct store;
struct telemetry;
struct tenants;
struct transactions;
struct vault;
struct volumes;
struct zygotes;

struct server {
    uv_loop_t *loop;
    const struct config *config;
    const struct config_reloader *reloader; // NULL in tests
    const struct spawn_features *features;
    struct bpf *bpf;                   // maps of the BPF programs
    struct anomaly *anomaly;           // findings and profiles; NULL: disabled
    struct net *net;                   // rule sets and the relay; NULL in tests without
    struct made_all *made;             // templates that callers made
    struct transactions *transactions; // of files
    struct telemetry *telemetry;       // events, records; NULL in tests
    struct feed *feed;                 // publishes events; NULL: disabled
    struct spawn *spawn;               // our end of the spawner's socket
    struct relay_link *relay;          // our end of the relay's socket; NULL: no relay
    struct tenants *tenants;           // the current use by each tenant
    struct sandboxes *sandboxes;       // all sandboxes, by id
    struct jobs *jobs;                 // all jobs, by id
    struct contexts *contexts;         // interpreters
    struct forwards *forwards;         // forwarded connections
    struct files *files;               // operations on files; NULL in tests
    struct pool *pool;                 // ready sandboxes
    struct zygotes *zygotes;           // interpreters that contexts are forked from
    struct volumes *volumes;           // of all tenants; NULL in tests
    struct state *state;               // the database: keys, tokens
    struct vault *vault;               // data keys of tenants; NULL in tests: nothing is encrypted
    struct audit *audit;               // the log of decisions; NULL: disabled, or in tests
    struct access *access;             // credentials
    struct rules_of_tenants *rules;    // detection rules of tenants; NULL in tests
    struct silences *silences;         // of findings, and acknowledgements; NULL in tests
    struct approvals *approvals;       // calls that need the agreement of others
    struct store *store;               // states of files that last; NULL: it cannot keep any
    struct sleepers *sleepers;         // sandboxes that are asleep; NULL in tests
    struct batches *batches;           // batches of jobs, by tenant and key
    struct dispatch *dispatch;
    struct rpc *rpc;
    struct alive *alive; // health of the broker; NULL in tests: only `draining` counts
    uint64_t started_ns; // uv_hrtime()
    bool draining;
    bool drained; // ... and every job and sandbox has gone: calls that only watch end
    const char (*listeners)[256]; // addresses as bound, listeners_n of them
    uint32_t listeners_n;
    void (*on_serving_change)(void *cookie); // called when alive_serves() may have changed
    void *serving_cookie;
    void (*on_relay_report)(void *cookie, const struct relay_report *r); // a report of the relay
    void *relay_report_cookie;
};
