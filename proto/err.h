// SPDX-License-Identifier: Apache-2.0
// One failure, reported once, with the same text in the log, in the response and on the terminal.
//
// A plain struct of fixed size, so it crosses pipes and sockets unchanged: from a child between clone3 and execve to
// the spawner, from there to the broker, where it becomes a stockade.v1.Status. Functions that can fail in more than
// one way return 0 or a negative errno and take a `struct err *` last, which they write on failure only.
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

// google.rpc.Code (google/rpc/code.proto).
enum err_code {
    ERR_OK = 0,
    ERR_CANCELLED = 1,
    ERR_UNKNOWN = 2,
    ERR_INVALID_ARGUMENT = 3,
    ERR_DEADLINE_EXCEEDED = 4,
    ERR_NOT_FOUND = 5,
    ERR_ALREADY_EXISTS = 6,
    ERR_PERMISSION_DENIED = 7,
    ERR_RESOURCE_EXHAUSTED = 8,
    ERR_FAILED_PRECONDITION = 9,
    ERR_ABORTED = 10,
    ERR_OUT_OF_RANGE = 11,
    ERR_UNIMPLEMENTED = 12,
    ERR_INTERNAL = 13,
    ERR_UNAVAILABLE = 14,
    ERR_DATA_LOSS = 15,
    ERR_UNAUTHENTICATED = 16,
};

struct err {
    int32_t code;     // enum err_code
    int32_t sys;      // errno, or 0
    char reason[40];  // UPPER_SNAKE_CASE for programs, or ""; becomes ErrorInfo.reason
    char subject[88]; // the field, rule, limit or quota that refused it, or ""
    char hint[256];   // how to fix it or to request more, or ""
    char text[512];   // what was attempted, outermost operation first
    // Of a refusal by a policy or a quota; otherwise "" and 0.
    char rule[96];     // the rule that refused it
    char allowed[160]; // what would be allowed
    uint32_t retry_ms; // the time after which it may be tried again; becomes RetryInfo
};

_Static_assert(sizeof(struct err) <= PIPE_BUF, "an error crosses a pipe in one atomic write");

// Writes *e: an errno and the operation that was attempted, as "open /x: Permission denied". The errno determines the
// code (ENOMEM, EAGAIN, EMFILE: RESOURCE_EXHAUSTED; others: INTERNAL). Not async-signal-safe: vsnprintf. Returns -sys.
int err_sys(struct err *e, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// Writes *e: a code and a sentence. Returns a negative errno for the code (never 0).
int err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Writes *e: INVALID_ARGUMENT about one field. Returns -EINVAL.
int err_field(struct err *e, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// Inserts "what: " before e->text, truncating the end if necessary. Returns the negative errno of *e, so that a caller
// writes `return err_wrap(e, "start sandbox %u", n);`.
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Adds reason (UPPER_SNAKE_CASE), subject and hint to *e; NULL leaves one as it is.
void err_detail(struct err *e, const char *reason, const char *subject, const char *hint);

// Adds the rule that refused it and what would be allowed; NULL leaves one as it is.
void err_rule(struct err *e, const char *rule, const char *allowed);

// The negative errno of *e: -sys, or one for the code.
int err_errno(const struct err *e);

// The name of a code, such as "INVALID_ARGUMENT" for 3; "UNKNOWN" for an unknown number.
const char *err_code_name(int code);

// Sanitizes an err from another process: terminates its strings, replaces an unknown code by INTERNAL and control bytes
// by '?'. Call it before any other use of such an err.
void err_sanitize(struct err *e);
