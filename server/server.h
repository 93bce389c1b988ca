// What belongs together while the broker runs. One per process; everything on the loop thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct config;
struct dispatch;
struct pool;
struct rpc;
struct sandboxes;
struct spawn;
struct spawn_features;

struct server {
    uv_loop_t *loop;
    const struct config *config;
    const struct spawn_features *features;
    struct spawn *spawn;         // our end of the spawner's socket
    struct sandboxes *sandboxes; // all of them, by id and by tenant
    struct pool *pool;           // ready ones
    struct dispatch *dispatch;
    struct rpc *rpc;
    uint64_t started_ns; // uv_hrtime()
    bool draining;
    void (*on_serving_change)(void *cookie); // HealthService.Watch listens here
    void *serving_cookie;
};
