// SPDX-License-Identifier: Apache-2.0
// Images: processes that an interpreter has forked, with all of its memory, and that wait until they are needed.
//
//   image_new() --the parent gets *theirs--> FORKING --`forked BYTES COUNT`--> FORKED --its pid; the guest--> READY
//       |                                       |  `no WHY`                      (a cgroup job-N of its own)   |
//       +---------------------------------------+------------> ended <------------- killed, sandbox goes -------+
//                                                                                                               |
//                                                       image_become_job(): the interpreter of a context <------+
//
// From FORKED on its memory is that of the parent at that moment. It is in the parent's cgroup until READY, so it ends with
// the parent until then. A READY one forks further images of the same memory. Images are agents (agent.h): what they say
// came from code of the caller and is not trusted. server/code/kernel/python_live.py is the other end. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

struct agent;
struct image;
struct job;
struct job_spec;
struct sandbox;

struct image_events {
    // Its private memory in bytes and the number of cells that ran in it, as it says itself. May be NULL.
    void (*forked)(void *cookie, uint64_t bytes, uint32_t count);
    void (*ready)(void *cookie);
    // It has ended, or there is none: FAILED_PRECONDITION with the reason LIVE_STATE if the parent refused. The last event;
    // the image is freed.
    void (*ended)(void *cookie, const struct err *why);
};

// *theirs, *owned* by the caller, is for the process that is to fork it. NULL: FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
struct image *image_new(struct sandbox *s, const struct image_events *events, void *cookie,
                        int *theirs, struct err *e);

// The same, forked by an agent that knows how, such as a zygote; and by a READY image.
struct image *image_fork_by(struct agent *parent, struct sandbox *s,
                            const struct image_events *events, void *cookie, struct err *e);
struct image *image_fork(const struct image *from, const struct image_events *events, void *cookie,
                         struct err *e);

// Whether so many bytes of private memory more fit into the sandbox. RESOURCE_EXHAUSTED: LIMIT_MEMORY.
int image_check_memory(const struct sandbox *s, uint64_t bytes, struct err *e);

bool image_is_ready(const struct image *i); // false, too, while it is being killed

// Gives its events to another owner.
void image_pass(struct image *i, const struct image_events *events, void *cookie);

// Ends it, without an event.
void image_close(struct image *i);

// Starts a job with a READY one as its process; spec->link is its link (kernel.h). As job_start(). Frees the image, without an
// event, also on failure.
int image_become_job(struct image *i, struct job_spec *spec, struct job **out, struct err *e);
