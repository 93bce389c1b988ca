// SPDX-License-Identifier: Apache-2.0
// Events of sandboxes and their jobs, for the layers above. Each layer registers a table of functions at start, which
// are called when an event happens. A NULL function is skipped.
//
//   sandbox  live -> taken -> (changed, carried, lists)* -> deleting -> gone  (a sandbox in the pool may be deleted before it is taken)
//   job                begun -> [started -> output*] -> exited -> ended -> gone
//
// Order: that of registration, for every event. main.c registers telemetry first and then the detectors, so the
// detectors get the remaining events from telemetry before the end. Loop thread only.
//
// An observer may read the sandbox or job, keep a pointer for a job (job_notes()), and call the setters that are
// named below. It must not start, change, end or free a sandbox or a job; it responds from a timer instead, and finds
// the sandbox by its id again. An observer that breaks this rule aborts the broker. The sandbox or job exists until all
// observers were called.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "output.h"

struct err;
struct job;
struct job_spec;
struct sandbox;

enum { OBSERVERS_MAX = 8 };

enum sandbox_change { SANDBOX_PAUSED_NOW, SANDBOX_RESUMED_NOW, SANDBOX_LIMITS, SANDBOX_NETWORK };

enum { SANDBOX_DIGEST_BYTES = 32 };

// Contents that a caller put into a sandbox, or got out of it. All pointers are borrowed.
struct sandbox_carried {
    const char *sandbox_id, *tenant;
    const char *method; // "Read"
    bool out;
    bool complete;       // false: cut off
    const uint8_t *path; // as the caller wrote it
    size_t path_n;
    uint64_t bytes;
    const uint8_t *digest; // BLAKE2b-256 of these bytes; NULL: there are too many
};

// Lists of names that the kernel holds, and no memory limit counts (lists.h): how much more than before on this host, of which this sandbox may
// hold most.
struct sandbox_lists {
    uint64_t bytes, bytes_max; // at bytes_max one is destroyed
    uint64_t folders;          // that its jobs have open
    bool ends;                 // it is destroyed for them now
};

struct observer {
    void *cookie;
    // The spawner has made it: slot, generation and cgroup are known, and nothing runs in it yet. It has no owner.
    void (*live)(void *cookie, struct sandbox *s);
    // It has an owner now.
    void (*taken)(void *cookie, struct sandbox *s);
    // It was paused or resumed, or spec.limits or the network policy changed.
    void (*changed)(void *cookie, struct sandbox *s, enum sandbox_change what);
    // Contents of files went in or out, and no more will come of this operation. s NULL: the sandbox is gone.
    void (*carried)(void *cookie, struct sandbox *s, const struct sandbox_carried *what);
    // At most a few times per second. With `ends`, its jobs have not ended yet.
    void (*lists)(void *cookie, struct sandbox *s, const struct sandbox_lists *what);
    // It is being deleted, and its jobs have ended.
    void (*deleting)(void *cookie, struct sandbox *s, const struct err *why);
    // Nothing of it is left. Also called for a sandbox that never became live.
    void (*gone)(void *cookie, struct sandbox *s);

    // It counts from now on. No event of it was read before: its events arrive in a later turn of the loop.
    void (*job_begun)(void *cookie, struct job *j, const struct job_spec *spec);
    void (*job_started)(void *cookie, struct job *j);
    // It wrote output. Called for every read of a pipe, so do not copy or wait. Borrowed.
    void (*job_output)(void *cookie, struct job *j, enum output_stream stream, const void *bytes,
                       size_t n);
    // Its main process has ended, and its counters were read. May call job_set_oversized() and
    // job_set_no_file().
    void (*job_exited)(void *cookie, struct job *j);
    // Its result is complete; its sandbox and its cgroup still exist. May call job_set_record().
    void (*job_ended)(void *cookie, struct job *j);
    // The job is being freed: free what job_notes() has. Its sandbox was removed.
    void (*job_gone)(void *cookie, struct job *j);
};

struct observers {
    unsigned n;
    bool calling; // while they are called
    struct observer one[OBSERVERS_MAX];
};

// Registers a copy. Returns its number, for job_notes().
unsigned observers_add(struct observers *all, const struct observer *o);

// Aborts if an observer is being called. For functions that start, change, end or free a sandbox or a job.
static inline void
observers_assert_idle(const struct observers *all)
{
    assert(!all->calling);
}

// Calls all: OBSERVERS_NOTIFY(&all->observers, taken, s).
#define OBSERVERS_NOTIFY(all, fact, ...)                                                           \
    do {                                                                                           \
        struct observers *of_ = (all);                                                             \
        observers_assert_idle(of_);                                                                \
        of_->calling = true;                                                                       \
        for (unsigned i_ = 0; i_ < of_->n; i_++)                                                   \
            if (of_->one[i_].fact != NULL)                                                         \
                of_->one[i_].fact(of_->one[i_].cookie, __VA_ARGS__);                               \
        of_->calling = false;                                                                      \
    } while (0)
