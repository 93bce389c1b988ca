// SPDX-License-Identifier: Apache-2.0
// What is inside `struct stockade`. Everything below `lock` is guarded by it.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "address.h"

struct call;
struct link;

struct stockade {
    struct address address;
    char *address_text;
    char *authorization; // "Bearer TOKEN", or NULL
    uint32_t connect_timeout_ms;
    uint32_t keepalive_ms;
    int wake_fd; // eventfd: the pump has something new to look at

    pthread_mutex_t lock;
    pthread_cond_t moved; // CLOCK_MONOTONIC
    struct link *link;    // NULL: not connected
    bool broken;          // to be closed once nobody polls it
    bool draining;        // GOAWAY came
    bool refused;         // ... because of a mistake of ours
    bool pumping;         // a thread polls
    struct call *calls;   // open ones, and those not yet freed
    uint32_t next_id;
    uint64_t interrupts; // how often stockade_interrupt() came
    uint64_t heard_ns;   // last frame, or the first call after an idle time
    uint64_t pinged_ns;  // PING without PONG; 0: none
};
