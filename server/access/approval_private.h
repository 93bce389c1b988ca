// SPDX-License-Identifier: Apache-2.0
// The parts of approvals: approval.c (the table), approval_write.c (how a change is written and takes effect), approval_change.c (what
// it makes of an approval), approval_ask.c (calls), approval_answer.c (approvers), and approval_match.c (pure questions).
#pragma once

#include "access.h"
#include "approval.h"

struct approvals {
    struct access *access;
    struct state *state;
    struct timers *timers;
    struct idtable ids;
    struct list made, changed, watchers;
    uint64_t order, revision;
    uint32_t pending, kept; // of those on the disk
};

// CHANGE_JOIN changes nothing: it waits until one that is being made is on the disk.
enum approval_kind {
    CHANGE_MAKE,
    CHANGE_JOIN,
    CHANGE_VOTE,
    CHANGE_CANCEL,
    CHANGE_EXPIRE,
    CHANGE_USE,
};

enum { COMMENT_MAX = 257, PATTERN_MAX = 257, APPROVAL_ARENA = 256 * 1024 };

struct approval_op {
    struct approval_op *after; // that waits
    struct approval *a;
    enum approval_kind kind;
    char who[PRINCIPAL_NAME];
    bool agrees;
    char comment[COMMENT_MAX];
    struct {
        Stockade__V1__ApprovalReach reach;
        char pattern[PATTERN_MAX];
        uint64_t ttl_ms;
    } grant;
    bool asks;           // for a call that wants to run: the answer is that the approval is pending
    approval_done *done; // NULL: nobody waits
    void *cookie;
    uint8_t *next; // the version that is being written; owned
    size_t next_n;
};

// approval.c
struct approval *approval_new(struct approvals *all);
void approval_drop(struct approval *a);
// By its id, whether it may be seen or not; NULL: there is none on the disk.
struct approval *approval_by_id(const struct approvals *all, const char *id);
// Whether its approvers mean this principal.
bool approval_names(const struct approval *a, const char *name);
bool approval_is_pending(const struct approval *a);
bool approval_is_approved(const struct approval *a);
const Stockade__V1__Approval *approval_unpack(const struct approval *a, struct arena *arena,
                                              struct err *e);
// Takes the summary from the message. False: the message is not one of an approval.
bool approval_summarize(struct approval *a, const Stockade__V1__Approval *m);
// Adds it to the sums and gauges, or (by -1) takes it away.
void approval_count(struct approvals *all, const struct approval *a, int by);
void approval_notify(struct approvals *all, const struct approval *a);

// approval_ask.c: the error of one that is not used, with its id, so that the caller can come back.
int approval_say(const struct approval *a, struct err *e);

// approval_write.c
struct approval_op *approval_op_new(enum approval_kind kind, const struct principal *who,
                                    approval_done *done, void *cookie);
void approval_op_free(struct approval_op *op);
// Takes ownership of op. 1: `done` follows.
int approval_begin(struct approval *a, struct approval_op *op, struct approval_op **out,
                   struct err *e);
// Ends it when its time has come.
void approval_set_timer(struct approval *a, int64_t in_ms);
void approval_on_time(struct timer *t);

// approval_change.c: turns the message into its next version. Refused: FAILED_PRECONDITION, ALREADY_EXISTS or PERMISSION_DENIED, as
// the methods say.
int approval_change(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m,
                    struct arena *arena, struct err *e);
// The first version. NULL: out of memory.
Stockade__V1__Approval *approval_first(const struct approval_ask *ask, const char *id,
                                       int64_t now_ms, struct arena *arena);
int64_t approval_time_ms(const Google__Protobuf__Timestamp *t);

// approval_match.c: whether an approver of a list, such as "team" or "team/key:1f", means this principal.
bool approver_is(const char *approver, const char *name);
// Whether an approval is of this call and requester, and permits it now. 0; otherwise an error of ApprovalService for calls.
int approval_permits(const struct approval *a, const Stockade__V1__Approval *m,
                     const struct approval_ask *ask, int64_t now_ms, struct err *e);
// Whether it was made for the same call, with the same approvers.
bool approval_is_for(const struct approval *a, const Stockade__V1__Approval *m,
                     const struct approval_ask *ask);
// The error of an approval that permits nothing, or nothing any more. Returns its negative errno.
int approval_refuse(const struct approval *a, const Stockade__V1__Approval *m, struct err *e);
