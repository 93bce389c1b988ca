// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the telemetry programs: events from both rings, and sandboxes with a job.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <time.h>

#include "tests/harness/watch_rig.h"

enum { EVENTS = 4096 };

extern struct rig rig;
extern struct ring_buffer *rings;

struct seen {
    struct event head;
    unsigned char body[sizeof(struct watch_exec) > sizeof(struct watch_open)
                           ? sizeof(struct watch_exec)
                           : sizeof(struct watch_open)];
};

extern struct seen seen[EVENTS];
extern size_t seen_n;

void drain(void);
uint64_t now_ns(void);

// The n-th event of a kind in a cgroup since the last drain(). NULL: none.
const struct seen *event(unsigned kind, const struct rig_cgroup *c, size_t n);
size_t count_events(unsigned kind, const struct rig_cgroup *c);

#define BODY(type, e) ((const struct type *)(const void *)(e)->body)

// A sandbox with a job; slots are numbered upwards.
struct job {
    struct bpf_sandbox entry;
    const struct rig_cgroup *sandbox, *job;
};

struct job new_job(const char *name, uint32_t watch);
int set_up(void **state);
int tear_down(void **state);
int nothing(void *arg);

struct exec {
    const char *path;
    const char *argv[6];
    int fd; // >= 0: execveat with this descriptor
};

int execute(void *arg);

// The key as the kernel sees the file: on an overlay, its inode may differ from that of stat(2).
struct watch_exe_key key_of(const char *path, uint32_t template);

// A copy of /usr/bin/true, in a memfd, or in a file that is deleted before exec.
int copy_of_true(bool memfd);
