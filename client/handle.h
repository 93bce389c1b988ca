// SPDX-License-Identifier: Apache-2.0
// The inside of `struct stockade`. `lock` protects everything below it.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "proto/soon.h"

struct call;
struct link;

struct stockade {
    struct address address;
    char *address_text;
    char *authorization; // "Bearer TOKEN", or NULL
    uint32_t connect_timeout_ms;
    uint32_t keepalive_ms;
    int wake_fd; // eventfd: wakes the pump

    pthread_mutex_t lock;
    pthread_cond_t changed; // CLOCK_MONOTONIC
    struct link *link;      // NULL: not connected
    bool broken;            // to be closed when no thread polls it
    bool draining;          // GOAWAY came
    bool refused;           // ... because of an error of this library
    bool pumping;           // a thread polls
    struct soon soon;
    struct call *calls; // open ones, and those not yet freed
    uint32_t next_id;
    uint64_t interrupts; // calls of stockade_interrupt()
    uint64_t heard_ns;   // last frame, or the first call after an idle time
    uint64_t pinged_ns;  // PING without PONG; 0: none
};
