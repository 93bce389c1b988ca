// SPDX-License-Identifier: Apache-2.0
// The inside of `struct stockade`. `lock` protects everything below it.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/traceparent.h"
#include "address.h"
#include "call_set.h"
#include "proto/soon.h"

enum { PROOFS = 5 };

struct arena;
struct call;
struct link;

// What a program polls instead of waiting in the library: an epoll descriptor over the socket, a timer and a flag
// (watch.c). All -1 until stockade_fd().
struct watch {
    int epoll_fd, timer_fd, flag_fd;
    int socket;        // watched; -1: none
    short events;      // ... for these
    const void *of;    // ... and belongs to this link
    unsigned number;   // ... as its socket number
    uint64_t timer_ns; // when the timer expires; 0: it is off
    bool flagged;      // the flag is set
};

enum { HANDLE_APPROVAL = 64 };

struct stockade {
    struct address address;
    char *address_text;
    char *proof[PROOFS];                      // strings of address.proof
    char *authorization;                      // "Bearer TOKEN", or NULL
    char traceparent[TRACEPARENT_LENGTH + 1]; // "": none
    char approval[HANDLE_APPROVAL];           // "": none
    char approval_wait[HANDLE_APPROVAL];      // milliseconds; "": none
    uint32_t connect_timeout_ms;
    uint32_t keepalive_ms;
    int wake_fd; // eventfd: wakes the thread that polls

    pthread_mutex_t lock;
    pthread_cond_t changed; // CLOCK_MONOTONIC
    struct link *link;      // NULL: not connected
    uint32_t links;         // made so far: the upper half of the ids of calls
    bool draining;          // GOAWAY came
    bool refused;           // ... because of an error of this library
    bool polling;           // a thread polls
    bool woken;             // ... and was woken
    struct link *polled;    // ... this connection
    struct link *doomed;    // lost while it was polled: that thread closes it
    struct soon soon;
    struct call_set calls; // all that are not freed
    size_t open;           // not done
    size_t waits;          // threads that wait for their calls
    uint32_t next_id;
    uint64_t interrupts;     // calls of stockade_interrupt()
    uint64_t heard_ns;       // last frame, or the first call after an idle time
    uint64_t pinged_ns;      // PING without PONG; 0: none
    uint64_t pings_since_ns; // the broker's own PINGs are counted from here
    unsigned pings;          // ... on this connection

    // Calls that are not waited for (async.c).
    size_t begun;                          // whose on_end has not returned
    struct call *ready_first, *ready_last; // with a message or their end to be passed on
    bool in_pump;                          // a thread is in stockade_pump()
    bool closing;                          // in stockade_close()
    struct watch watch;
};
