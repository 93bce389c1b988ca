// SPDX-License-Identifier: Apache-2.0
// libstockade: snapshots of the files of sandboxes. A part of stockade.h, which includes it and describes calls, threads and
// ownership. proto/stockade/v1/snapshot_service.proto describes the fields, and what a snapshot does not hold.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_snapshot {
    const char *sandbox_id;
    const char *name;
    int64_t created_ms;     // since 1970
    uint64_t bytes, inodes; // written since the snapshot below it
    uint64_t total_bytes, total_inodes;
    bool current; // the files of now go on from it
    const char *const *not_included;
    size_t not_included_n;
    // by create and restore: transfers and other operations on files that were cut off
    uint32_t operations_ended;
    const char *kept_id;       // "": it is not kept
    const char *template_name; // of a kept one
    const char *digest;        // of a kept one: equal digests mean equal files
    uint64_t copied_bytes;     // jobs ran, so its own files are a copy; 0: they are none
    uint64_t frozen_us;        // time that the sandbox was frozen for the copy
    bool unreadable;           // a kept one whose data key was forgotten; it can be deleted
};

struct stockade_snapshots {
    const struct stockade_snapshot *items; // oldest first
    size_t n;
    const char *next_page; // "" on the last page
};

// sandbox: its id or its name. name NULL or "": the broker chooses one. No job may run in the sandbox (FAILED_PRECONDITION with
// the reason JOBS_RUN); with `stop`, those that run are cancelled first.
STOCKADE_API int stockade_snapshot_create(struct stockade *s, const char *sandbox, const char *name,
                                          bool stop, const struct stockade_snapshot **out,
                                          struct stockade_error *e);
// The same, but it outlasts the sandbox and the broker: the call returns when it is on the broker's disk. RESOURCE_EXHAUSTED
// (KEPT_BYTES, DISK_FULL): nothing is kept. stockade_create() begins with the files of one (`snapshot`).
STOCKADE_API int stockade_snapshot_keep(struct stockade *s, const char *sandbox, const char *name,
                                        bool stop, const struct stockade_snapshot **out,
                                        struct stockade_error *e);
// The same while jobs run: the sandbox is frozen, what it has written since its last layer is copied, and the jobs go on. Without jobs
// nothing is copied. RESOURCE_EXHAUSTED (COPY_BYTES: more than bytes_max; DISK_FULL, COPY_MEMORY: the sandbox has no room for both),
// DEADLINE_EXCEEDED (COPY_TIME). o may be NULL.
struct stockade_copy_options {
    size_t size;
    const char *name;   // NULL or "": the broker chooses one
    uint64_t bytes_max; // 0: 256 MiB
    uint32_t ms_max;    // 1 to 60000; 0: 5000
    bool keep;          // as stockade_snapshot_keep()
};
#define STOCKADE_COPY_OPTIONS_INIT STOCKADE_INIT(stockade_copy_options)
STOCKADE_API int stockade_snapshot_copy(struct stockade *s, const char *sandbox,
                                        const struct stockade_copy_options *o,
                                        const struct stockade_snapshot **out,
                                        struct stockade_error *e);
// This one and those below, except for restore: sandbox "" means a kept snapshot, by its name or kept_id.
STOCKADE_API int stockade_snapshot_get(struct stockade *s, const char *sandbox, const char *name,
                                       const struct stockade_snapshot **out,
                                       struct stockade_error *e);
// page: next_page of the previous page, or NULL.
STOCKADE_API int stockade_snapshot_list(struct stockade *s, const char *sandbox, const char *page,
                                        const struct stockade_snapshots **out,
                                        struct stockade_error *e);
// Rolls the files of the sandbox back. What was written since is lost. name: of one of its snapshots, or of a kept one.
STOCKADE_API int stockade_snapshot_restore(struct stockade *s, const char *sandbox,
                                           const char *name, bool stop,
                                           const struct stockade_snapshot **out,
                                           struct stockade_error *e);
// The files of the sandbox do not change.
STOCKADE_API int stockade_snapshot_delete(struct stockade *s, const char *sandbox, const char *name,
                                          struct stockade_error *e);

struct stockade_fork_options {
    size_t size;
    uint32_t count;       // 1 to 100; 0: 1
    const char *snapshot; // begin with its files; NULL: with those of now, and no job may run
    bool stop;            // cancel the jobs that run first
    uint64_t ttl_ms;      // 0: as the sandbox
    bool copy;            // while jobs run: as stockade_snapshot_copy()
    uint64_t copy_bytes_max;
    uint32_t copy_ms_max;
};
#define STOCKADE_FORK_OPTIONS_INIT STOCKADE_INIT(stockade_fork_options)

// Makes sandboxes that begin with the files of this one: all of them, or none. o may be NULL. next_page of *out is "".
STOCKADE_API int stockade_fork(struct stockade *s, const char *sandbox,
                               const struct stockade_fork_options *o,
                               const struct stockade_sandboxes **out, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
