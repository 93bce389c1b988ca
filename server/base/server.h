// SPDX-License-Identifier: Apache-2.0
// The parts of the running broker. One per process; loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct alive;
struct anomaly;
struct bpf;
struct config;
struct dispatch;
struct feed;
struct forwards;
struct jobs;
struct net;
struct pool;
struct relay_link;
struct relay_report;
struct rpc;
struct sandboxes;
struct spawn;
struct spawn_features;
struct telemetry;
struct tenants;

struct server {
    uv_loop_t *loop;
    const struct config *config;
    const struct spawn_features *features;
    struct bpf *bpf;             // maps of the BPF programs
    struct anomaly *anomaly;     // findings and profiles; NULL: disabled
    struct net *net;             // rule sets and the relay; NULL in tests without
    struct telemetry *telemetry; // events, records; NULL in tests
    struct feed *feed;           // publishes events; NULL: disabled
    struct spawn *spawn;         // our end of the spawner's socket
    struct relay_link *relay;    // our end of the relay's socket; NULL: no relay
    struct tenants *tenants;     // the current use by each tenant
    struct sandboxes *sandboxes; // all sandboxes, by id
    struct jobs *jobs;           // all jobs, by id
    struct forwards *forwards;   // forwarded connections
    struct pool *pool;           // ready sandboxes
    struct dispatch *dispatch;
    struct rpc *rpc;
    struct alive *alive; // health of the broker; NULL in tests: only `draining` counts
    uint64_t started_ns; // uv_hrtime()
    bool draining;
    const char (*listeners)[256]; // addresses as bound, listeners_n of them
    uint32_t listeners_n;
    void (*on_serving_change)(void *cookie); // called when alive_serves() may have changed
    void *serving_cookie;
    void (*on_relay_report)(void *cookie, const struct relay_report *r); // a report of the relay
    void *relay_report_cookie;
};
