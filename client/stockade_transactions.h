// SPDX-License-Identifier: Apache-2.0
// libstockade: transactions on the files of sandboxes, and what differs between two states of files. A part of stockade.h, which includes it and
// describes calls, threads and ownership. proto/stockade/v1/transaction_service.proto describes what a transaction is and the fields.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum stockade_change_kind {
    STOCKADE_CHANGE_ADDED = 1,
    STOCKADE_CHANGE_CHANGED = 2,
    STOCKADE_CHANGE_REMOVED = 3,
};

enum stockade_file_type {
    STOCKADE_FILE_NONE = 0, // it is not there
    STOCKADE_FILE_REGULAR = 1,
    STOCKADE_FILE_FOLDER = 2,
    STOCKADE_FILE_LINK = 3,
    STOCKADE_FILE_OTHER = 4,
};

// A path or a target: bytes without NUL inside, and one after them.
struct stockade_path {
    const char *bytes;
    size_t n;
};

struct stockade_changed_file {
    uint32_t type; // enum stockade_file_type
    uint32_t mode; // permissions
    uint64_t size;
    struct stockade_path target; // of a symbolic link
};

struct stockade_change {
    uint32_t kind; // enum stockade_change_kind
    struct stockade_path path;
    struct stockade_changed_file before, after;
    bool contents;   // CHANGED, regular files: they differ
    bool unreadable; // the jobs' user may not read it
};

struct stockade_changes {
    const struct stockade_change *items; // sorted by path
    size_t n;
    struct stockade_path next_page; // empty on the last page
};

// Two states of the files of a sandbox: snapshots, or (second NULL or "") the files of now. In a transaction, the snapshot "begin" is
// its begin. path: only this file or folder, or NULL.
struct stockade_states {
    const char *sandbox, *first, *second, *path;
};

// What differs between them. after: next_page of the page before, or NULL.
STOCKADE_API int stockade_diff(struct stockade *s, const struct stockade_states *states,
                               const struct stockade_path *after,
                               const struct stockade_changes **out, struct stockade_error *e);

enum stockade_transaction_policy {
    STOCKADE_TRANSACTION_NONE = 0,
    STOCKADE_TRANSACTION_ASK = 1,        // it stays open
    STOCKADE_TRANSACTION_ON_SUCCESS = 2, // committed after exit code 0, discarded otherwise
};

enum stockade_transaction_state {
    STOCKADE_TRANSACTION_OPEN = 1,
    STOCKADE_TRANSACTION_COMMITTED = 2,
    STOCKADE_TRANSACTION_DISCARDED = 3,
};

struct stockade_transaction {
    const char *id; // also of the sandbox in which its jobs run
    const char *sandbox_id;
    int64_t created_ms;  // since 1970
    uint32_t policy;     // enum stockade_transaction_policy
    uint32_t state;      // enum stockade_transaction_state
    const char *refused; // why the last commit was refused; "": it was not
    const struct stockade_path *conflicts;
    size_t conflicts_n;
};

struct stockade_transactions {
    const struct stockade_transaction *items; // oldest first; without conflicts
    size_t n;
    const char *next_page; // "" on the last page
};

// After a job with a transaction (struct stockade_result).
struct stockade_outcome_of_transaction {
    struct stockade_transaction transaction;
    const struct stockade_change *changes; // the first 100 at most
    size_t changes_n;
    bool more;
    const char *unknown; // why the changes are not known; "": they are
};

// sandbox: its id or its name. No job may run in it (FAILED_PRECONDITION with the reason JOBS_RUN); with `stop`, those that run are cancelled
// first. ttl_ms 0: that of the sandbox.
STOCKADE_API int stockade_transaction_begin(struct stockade *s, const char *sandbox, bool stop,
                                            uint64_t ttl_ms,
                                            const struct stockade_transaction **out,
                                            struct stockade_error *e);
STOCKADE_API int stockade_transaction_get(struct stockade *s, const char *id,
                                          const struct stockade_transaction **out,
                                          struct stockade_error *e);
// sandbox NULL: of all sandboxes. page: next_page of the previous page, or NULL.
STOCKADE_API int stockade_transaction_list(struct stockade *s, const char *sandbox,
                                           const char *page,
                                           const struct stockade_transactions **out,
                                           struct stockade_error *e);
// ABORTED with the reason TRANSACTION_CONFLICT: stockade_transaction_get() has the paths. It is open as before.
STOCKADE_API int stockade_transaction_commit(struct stockade *s, const char *id, bool stop,
                                             const struct stockade_transaction **out,
                                             struct stockade_error *e);
STOCKADE_API int stockade_transaction_discard(struct stockade *s, const char *id,
                                              const struct stockade_transaction **out,
                                              struct stockade_error *e);

#ifdef __cplusplus
}
#endif
