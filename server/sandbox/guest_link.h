// SPDX-License-Identifier: Apache-2.0
// The broker's end of a guest's socket: requests out, events in (proto/guest.proto).
//
// The guest is inside the sandbox, so its messages are scanned, bounded and checked like those of a client. A guest
// that breaks the protocol is reported as gone, and its sandbox is destroyed. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "bill.h"

struct guest_link;

enum {
    GUEST_PACKET_MAX = 192 * 1024, // of a request
    GUEST_EVENT_MAX = 8 * 1024,
    GUEST_QUEUE_MAX = 256,              // queued requests
    GUEST_QUEUE_BYTES = 4 * 1024 * 1024 // and their bytes
};

// Events of the guest. Each may free the link, only with guest_link_free().
struct guest_events {
    void (*ready)(void *cookie);
    // terminal: the pty's master, *owned* by the callee, or -1.
    void (*started)(void *cookie, uint32_t job, uint32_t pid, int terminal);
    // text is escaped and short.
    void (*failed)(void *cookie, uint32_t job, uint32_t exit_code, int sys, const char *text);
    void (*exited)(void *cookie, uint32_t job, uint32_t status, const struct bill_rusage *usage);
    // The socket closed or the guest broke the protocol; no further event is called.
    void (*gone)(void *cookie, const struct err *why);
};

// Takes fd (*owned* by the link, also on failure). NULL: out of memory, in *e.
struct guest_link *guest_link_new(uv_loop_t *loop, int fd, const struct guest_events *events,
                                  void *cookie, struct err *e);
void guest_link_free(struct guest_link *l);

struct guest_start {
    uint32_t job;
    const char *const *args; // args_n of them
    size_t args_n;
    const char *const *env; // "NAME=value"
    size_t env_n;
    const char *workdir;
    uint64_t files_max, file_bytes_max, tasks_max, cpu_seconds_max; // the last: 0: none
    bool network_off;                                               // no sockets but unix ones
    bool terminal;
    uint32_t rows, columns;
    int stdio[3]; // without a terminal; *owned* by the link, also on failure
    // An agent program (agent.h): stdio is its socket, program and script; the last two may be -1.
    bool agent;
    bool has_link; // not with a terminal
    int link;      // *owned* likewise
};

// RESOURCE_EXHAUSTED: the guest does not read. INVALID_ARGUMENT: the request is too large.
int guest_link_start(struct guest_link *l, const struct guest_start *s, struct err *e);
int guest_link_signal(struct guest_link *l, uint32_t job, uint32_t signal, bool group,
                      struct err *e);
// Makes a process of the sandbox the main process of a job: `started` or `failed` follows.
int guest_link_adopt(struct guest_link *l, uint32_t job, uint32_t pid, struct err *e);
int guest_link_remove(struct guest_link *l, uint32_t job, struct err *e);
