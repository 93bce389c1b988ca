// SPDX-License-Identifier: Apache-2.0
// What the tests of the telemetry programs share: events as they come out of both rings, and sandboxes with a job.
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

// The n-th event of a kind in a cgroup, since the last drain(). NULL: there is none.
const struct seen *event(unsigned kind, const struct rig_cgroup *c, size_t n);
size_t count_events(unsigned kind, const struct rig_cgroup *c);

#define BODY(type, e) ((const struct type *)(const void *)(e)->body)

// A sandbox with a job; slots count up.
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
    int fd; // >= 0: execveat of that one
};

int execute(void *arg);

// As the kernel sees the file: the inode of an overlay is another than that of stat(2) only where they are not one.
struct watch_exe_key key_of(const char *path, uint32_t template);

// A copy of /usr/bin/true, in a memfd, or in a file that is deleted before it is executed.
int copy_of_true(bool memfd);
