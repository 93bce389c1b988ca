// SPDX-License-Identifier: Apache-2.0
// Approvals: calls that need the agreement of others before they run.
//
//   a rule asks --> approvals_ask() --> granted? --yes--> the use is written --> done: the call runs
//                        |                 '--no--> a new approval is written, PENDING --> done: APPROVAL_PENDING, with its id
//                        '--> an id of the caller: this one alone counts
//   approver    --> approvals_answer() --> vote written --> enough? APPROVED --> watchers --> the caller asks again
//   time        --> EXPIRED
//
// Every change is a new version of one row: it is computed from the version before, written, and takes effect when it is on the disk.
// Changes of one approval are made one after another, so two calls can never use it at once, and two votes never lose one.
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/base/timers.h"
#include "server/rpc/principal.h"
#include "stockade/v1/approval_service.pb-c.h"

struct access;
struct approvals;
struct approval_op;
struct state;

enum {
    APPROVAL_DIGEST = 32,
    APPROVAL_REQUEST_MAX = 16 * 1024, // bytes of a request that are kept
    APPROVAL_SUBJECT_MAX = 1024,
    APPROVALS_PENDING_MAX = 2048,
    APPROVALS_PENDING_OF_TENANT = 256,
    APPROVALS_KEPT_MAX = 8192,
    APPROVALS_KEPT_OF_TENANT = 512,
    APPROVAL_USES_MAX = 1000000,
};

// A call, as an approver and a grant see it. Everything is borrowed.
struct approval_call {
    const char *method;  // "ProcessService/Run"
    const char *subject; // one line
    uint8_t digest[APPROVAL_DIGEST];
    bool has_command;                // the next is the digest of everything but the command line
    uint8_t around[APPROVAL_DIGEST]; // and `subject` is exactly the command line
    const uint8_t *request;          // NULL: too large to be kept
    size_t request_n;                // its size in any case
};

// What a rule asks for, about one call.
struct approval_ask {
    const struct principal *who;
    const struct approval_call *call;
    const char *rule, *reason;
    size_t approvers_n; // 0: anyone with the right
    const char *const *approvers;
    uint32_t needed;     // 0: one
    uint64_t timeout_ms; // 0: 10 minutes
    const char *id;      // the approval that the caller has named; NULL: none
};

// An approval: its message, packed, and a summary of it.
struct approval {
    struct idnode id;
    struct list node;    // in the order in which they were made
    struct list changed; // in the order of the last change
    uint64_t order, revision;
    char tenant[PRINCIPAL_TENANT], requester[PRINCIPAL_NAME];
    Stockade__V1__ApprovalState state;
    uint8_t digest[APPROVAL_DIGEST];
    bool has_command;
    uint8_t around[APPROVAL_DIGEST];
    int64_t created_ms, expires_ms, valid_until_ms, ended_ms;
    bool shown; // it is on the disk
    uint8_t *packed;
    size_t packed_n;
    // The approvers that it names, one after the other with their ends: who may see it is known without unpacking it, so that looking
    // for an approval of another tenant takes no longer than for one that does not exist.
    char *approvers;
    uint32_t approvers_n;
    // ---- approval.c
    struct approvals *all;
    struct timer timer;
    struct approval_op *writing; // NULL: none
    struct approval_op *waiting, **waiting_last;
};

// Reads what there is. Everything is borrowed. Free it with approvals_free(), after the state was closed.
int approvals_new(struct access *access, struct state *state, uv_loop_t *loop,
                  struct approvals **out, struct err *e);
void approvals_free(struct approvals *all);

// Forgets what the approvals of a tenant are about, whose data key was forgotten: they are cancelled, and say why.
void approvals_forget(struct approvals *all, const char *tenant);

// Called once, when the change is on the disk or was refused. a: as it is now, or NULL.
typedef void approval_done(void *cookie, const struct approval *a, const struct err *e);

// A change in progress. Its caller may give up waiting for it; it goes on.
void approval_unwait(struct approval_op *op);

// Whether the call may run. 0: yes. 1: `done` follows, and the call may run if it gets no error. Negative: refused. Errors: those of
// ApprovalService for calls; APPROVAL_PENDING has the id as its subject.
int approvals_ask(struct approvals *all, const struct approval_ask *ask, approval_done *done,
                  void *cookie, struct approval_op **op, struct err *e);

// Whether approvals_ask() would use an approval that there is. 0, or negative.
int approvals_permit(const struct approvals *all, const struct approval_ask *ask, struct err *e);

// Makes one without a call, or finds the pending one for the same call. 1: `done` follows. 0: *found is that one.
int approvals_make(struct approvals *all, const struct approval_ask *ask, approval_done *done,
                   void *cookie, struct approval_op **op, const struct approval **found,
                   struct err *e);

// An answer of an approver. whose: call_whose(); NULL for an operator. Errors of ApprovalService.Approve.
struct approval_vote {
    const struct principal *who;
    const char *whose, *id;
    bool agrees;
    const Stockade__V1__ApprovalGrant *grant; // NULL: once
    const char *comment;
    const uint8_t *digest; // that it has seen; NULL: any
};
int approvals_answer(struct approvals *all, const struct approval_vote *vote, approval_done *done,
                     void *cookie, struct approval_op **op, struct err *e);

// The requester, or an operator, withdraws it: `who`, `whose` and `id` count. Errors of ApprovalService.Cancel.
int approvals_cancel(struct approvals *all, const struct approval_vote *by, approval_done *done,
                     void *cookie, struct approval_op **op, struct err *e);

// One that the caller may see; NULL: NOT_FOUND, also of those that it may not.
const struct approval *approvals_find(const struct approvals *all, const struct principal *who,
                                      const char *whose, const char *id, struct err *e);
// Whether the caller may see it: whose NULL: all.
bool approval_is_visible(const struct approval *a, const struct principal *who, const char *whose);

// In the order in which they were made, after this one (NULL: the first), and NULL at the end. Only what is on the disk.
const struct approval *approvals_next(const struct approvals *all, const struct approval *a);

// In the order of their last change: the first that changed after a revision, and the next; NULL: there is none.
const struct approval *approvals_changed_after(const struct approvals *all, uint64_t revision);
const struct approval *approvals_next_changed(const struct approvals *all,
                                              const struct approval *a);
// Of the last change of all.
uint64_t approvals_revision(const struct approvals *all);

// Its message, in the arena; with_request: and its request. NULL: out of memory.
Stockade__V1__Approval *approval_message(const struct approval *a, bool with_request,
                                         struct arena *arena);

// Called after each change that is on the disk, until it is removed with list_remove(). It may add and remove watchers. a NULL: the
// broker is shutting down.
struct approval_watcher {
    struct list node;
    void (*changed)(void *cookie, const struct approval *a);
    void *cookie;
};
void approvals_watch(struct approvals *all, struct approval_watcher *w);
void approvals_end(struct approvals *all);

// The digests of a call (approval_match.c): BLAKE2b-256 of the name of the method, a NUL, and the packed message.
void approval_digest(const char *method, const uint8_t *packed, size_t n,
                     uint8_t out[APPROVAL_DIGEST]);
