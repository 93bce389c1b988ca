// SPDX-License-Identifier: Apache-2.0
// What becomes of sandboxes and of their jobs, for the layers above: each registers a table of functions at start, and is
// called when the fact is so. A function that is NULL is skipped.
//
//   sandbox  live -> taken -> changed* -> deleting -> gone          (one of the pool may be deleted before it is taken)
//   job                begun -> [started -> output*] -> exited -> ended -> gone
//
// Order: by registration, for every fact (main.c registers telemetry first, then the detectors, which hear the events that
// telemetry still has before they hear the end). Loop thread only.
//
// An observer may read what it is told of, keep a pointer of its own for a job (job_notes()), and call the setters that are
// named beside a fact below. It must not begin, change or end a sandbox or a job, and must not free one: it answers from
// a timer, and finds the sandbox by its id again. What it is told of stays until all observers were told.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "output.h"

struct err;
struct job;
struct job_spec;
struct sandbox;

enum { OBSERVERS_MAX = 4 };

enum sandbox_change { SANDBOX_PAUSED_NOW, SANDBOX_RESUMED_NOW, SANDBOX_LIMITS, SANDBOX_NETWORK };

struct observer {
    void *cookie;
    // The spawner has made it: slot, generation and cgroup are known, and nothing runs in it yet. It is nobody's.
    void (*live)(void *cookie, struct sandbox *s);
    // It is somebody's.
    void (*taken)(void *cookie, struct sandbox *s);
    // It was paused or resumed; spec.limits, or the network policy in force, are others.
    void (*changed)(void *cookie, struct sandbox *s, enum sandbox_change what);
    // It begins to go, and its jobs have ended.
    void (*deleting)(void *cookie, struct sandbox *s, const struct err *why);
    // Nothing is left of it. Also for one that never was live.
    void (*gone)(void *cookie, struct sandbox *s);

    // It counts from now on. Nothing that it does was read before: its events come in a later turn of the loop.
    void (*job_begun)(void *cookie, struct job *j, const struct job_spec *spec);
    void (*job_started)(void *cookie, struct job *j);
    // It wrote this. Called for every read of a pipe: no copies, no waiting. Borrowed.
    void (*job_output)(void *cookie, struct job *j, enum output_stream stream, const void *bytes,
                       size_t n);
    // Its main process has ended, and its figures are taken. May call job_set_oversized().
    void (*job_exited)(void *cookie, struct job *j);
    // Its result is complete; its sandbox and its cgroup are still there. May call job_set_record().
    void (*job_ended)(void *cookie, struct job *j);
    // Nobody asks for it any more: last chance to free what job_notes() has. Its sandbox is gone.
    void (*job_gone)(void *cookie, struct job *j);
};

struct observers {
    unsigned n;
    struct observer one[OBSERVERS_MAX];
};

// Registers a copy. Returns its number, for job_notes().
unsigned observers_add(struct observers *all, const struct observer *o);

// Tells all: OBSERVERS_TELL(&all->observers, taken, s).
#define OBSERVERS_TELL(all, fact, ...)                                                             \
    do {                                                                                           \
        const struct observers *of_ = (all);                                                       \
        for (unsigned i_ = 0; i_ < of_->n; i_++)                                                   \
            if (of_->one[i_].fact != NULL)                                                         \
                of_->one[i_].fact(of_->one[i_].cookie, __VA_ARGS__);                               \
    } while (0)
