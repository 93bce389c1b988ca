// SPDX-License-Identifier: Apache-2.0
// What belongs together while the broker runs. One per process; everything on the loop thread.
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

struct server {
    uv_loop_t *loop;
    const struct config *config;
    const struct spawn_features *features;
    struct bpf *bpf;             // maps of the BPF programs
    struct anomaly *anomaly;     // what looks wrong; NULL: switched off
    struct net *net;             // rule sets and the relay; NULL in tests without
    struct telemetry *telemetry; // events, records; NULL in tests
    struct feed *feed;           // publishes events; NULL: nowhere
    struct spawn *spawn;         // our end of the spawner's socket
    struct relay_link *relay;    // our end of the relay's socket; NULL: there is none
    struct sandboxes *sandboxes; // all of them, by id and by tenant
    struct jobs *jobs;           // all jobs, by id
    struct forwards *forwards;   // connections into sandboxes
    struct pool *pool;           // ready ones
    struct dispatch *dispatch;
    struct rpc *rpc;
    struct alive *alive; // whether it can do its work; NULL: in tests, only draining counts
    uint64_t started_ns; // uv_hrtime()
    bool draining;
    const char (*listeners)[256]; // addresses as bound, listeners_n of them
    uint32_t listeners_n;
    void (*on_serving_change)(
        void *cookie); // HealthService.Watch listens here: look at alive_serves()
    void *serving_cookie;
    void (*on_relay_report)(void *cookie, const struct relay_report *r); // what the relay tells
    void *relay_report_cookie;
};
