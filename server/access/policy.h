// SPDX-License-Identifier: Apache-2.0
// Policies (stockade/v1/policy.proto): read from YAML, and asked about each call.
//
//   files --policy_read()--> struct policy --+
//                                            +--policy_decide()--> struct policy_decision --policy_count()--> the call goes on
//   api/authority.c --struct policy_call-----+
//
// A policy is immutable, so a reload replaces it as a whole. Layers are asked in the order host, tenant, template, request; inside of a layer
// the first rule that matches decides, and the strictest layer counts. Deciding changes nothing: what a rate or a history counts is
// written by policy_count() when the call goes on. Loop thread only, except for reading and deciding without counts.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "server/sandbox/limits.h"
#include "caveats.h"
#include "stockade/v1/policy.pb-c.h"
#include "stockade/v1/policy_service.pb-c.h"

enum {
    POLICY_RULES_MAX = 4096, // of all layers
    POLICY_LAYERS_MAX = 1024,
    POLICY_FILES_MAX = 64,
    POLICY_FILE_MAX = 1024 * 1024,
    POLICY_BYTES_MAX = 3 * 1024 * 1024, // of all files
    POLICY_REQUEST_RULES_MAX = 32,      // it is read for each call
    POLICY_ASKS_MAX = 8,
    POLICY_HITS_MAX = 64,
    POLICY_DIGEST = 32,
    POLICY_RULE_NAME = 96, // LAYER/ID
};

struct policy;
struct policy_counts;

// ---- a policy

// A file for policy_read(), copied to the arena. NULL: no memory.
Stockade__V1__PolicyFile *policy_file(struct arena *a, const char *name, const char *text, size_t n,
                                      bool configuration);

// Reads files and runs the tests of their rules. The files are copied. INVALID_ARGUMENT names file, line and column.
int policy_read(const Stockade__V1__PolicyFiles *files, struct policy **out, struct err *e);

// The same without running the tests.
int policy_read_untested(const Stockade__V1__PolicyFiles *files, struct policy **out,
                         struct err *e);

// Reads the policy of one request: its layer alone, as the text of a PolicyInline. It narrows what the others allow, and counts nothing:
// rates and histories are refused. INVALID_ARGUMENT names line and column.
int policy_read_request(const char *text, struct policy **out, struct err *e);

// Accepts NULL.
void policy_free(struct policy *p);

struct policy_view {
    const Stockade__V1__PolicyFiles *files;
    uint32_t layers, rules, tests;
    uint8_t digest[POLICY_DIGEST]; // BLAKE2b of names and texts
};

// Borrowed. NULL: an empty policy.
void policy_view(const struct policy *p, struct policy_view *out);

// Whether it may have anything against a call. Accepts NULL.
bool policy_has_layers(const struct policy *p);

// A layer as it is written, in the order in which they are asked; i from 0 until false. Borrowed. Accepts NULL.
struct policy_layer_view {
    const char *kind, *file;
    uint32_t line;
    const Stockade__V1__PolicyLayer *m;
};
bool policy_layer_at(const struct policy *p, uint32_t i, struct policy_layer_view *out);

// Where a rule of one is written.
uint32_t policy_rule_line(const struct policy *p, uint32_t layer, uint32_t rule);

// ---- what differs

struct policy_difference {
    Stockade__V1__PolicyChange change;
    const char *layer, *rule; // rule "": the layer itself
    const char *file;
    uint32_t line;
    const ProtobufCMessage *before, *after; // a rule, or a layer with its rules; NULL: none
};
typedef void policy_difference_fn(void *cookie, const struct policy_difference *d);

// What has changed from one policy to another. A layer that is new or gone is one difference, with its rules. Accepts NULL. -ENOMEM.
int policy_diff(const struct policy *before, const struct policy *after, policy_difference_fn *each,
                void *cookie, struct err *e);

// ---- a call

// A call that is to be decided. Everything is borrowed.
struct policy_call {
    const struct deed *deed;
    const char *tenant;
    const char *credential;       // "peer", "key", "token", "certificate", "jwt" or "none"
    bool simulated;               // nothing of what it does stays
    uint8_t credential_id[16];    // zeros: calls of the tenant without one
    const char *language;         // "": none
    size_t paths_n, labels_n;     // labels as "key=value"
    const char *const *paths;     // as the caller sent them
    const char *const *labels;    // of its sandbox
    int64_t now_ms;               // since 1970
    uint64_t now_ns;              // of a clock that never goes back, for rates
    const struct policy *request; // narrows this call; NULL: nothing
    struct policy_counts *counts; // NULL: before it there were `calls_before`
    uint32_t calls_before;
    // Limits that the request leaves to the template, and could set; bits by enum limit.
    uint32_t can_fill;
};

// ---- a decision

enum policy_verdict { POLICY_ALLOW, POLICY_LIMIT, POLICY_ASK, POLICY_DENY }; // from the mildest

// "allow" and so on.
extern const char *const policy_verdict_name[];

struct policy_asked {
    char rule[POLICY_RULE_NAME];
    char reason[256];
    const Stockade__V1__PolicyAsk *ask; // borrowed from the policy, which a reload frees
    uint64_t timeout_ms;
};

// What is counted if the call goes on.
struct policy_hit {
    uint64_t key;
    uint64_t step_ns; // between two calls, evenly
    uint64_t room_ns; // that the bucket has
    uint32_t weight;  // calls
};

struct policy_decision {
    enum policy_verdict verdict;
    // The rule that decides: LAYER/ID, LAYER for its `otherwise`, or "".
    char rule[POLICY_RULE_NAME];
    char reason[256];
    char allowed[160]; // what would be allowed
    char field[64];    // the part of the call that it is about
    bool of_request;   // the policy that the caller sent with the call denies it
    uint64_t retry_ms; // because of a rate: until the next call
    // ASK: all of them are needed.
    uint32_t asks_n;
    struct policy_asked ask[POLICY_ASKS_MAX];
    // LIMIT: the highest limits; 0: any. fill: those that the call left to its template, which are to be lowered.
    struct limits most;
    uint32_t fill; // bits by enum limit
    uint32_t hits_n;
    struct policy_hit hit[POLICY_HITS_MAX];
};

// What one layer decided, for `explain`.
struct policy_step {
    const char *layer, *kind; // "host", "tenant", "template" or "request"
    const char *rule;         // "": none matched
    enum policy_verdict verdict;
    const char *reason, *file;
    uint32_t line; // of the rule, or of the layer
};
typedef void policy_step_fn(void *cookie, const struct policy_step *step);

// Decides. p NULL: everything is allowed that the request itself allows. step: NULL, or called for each layer that applies; then all are asked, even after one denies.
void policy_decide(const struct policy *p, const struct policy_call *c, policy_step_fn *step,
                   void *cookie, struct policy_decision *out);

// Writes the refusal of DENY to *e: PERMISSION_DENIED (POLICY_DENIED) or RESOURCE_EXHAUSTED (POLICY_RATE). Returns its negative errno.
int policy_refuse(const struct policy_decision *d, const char *method, struct err *e);

// Counts a call that goes on. NULL: nothing.
void policy_count(struct policy_counts *counts, const struct policy_decision *d, uint64_t now_ns);

// The counts of rates and histories: 16,384 buckets, of which the emptiest give way to new ones. NULL: out of memory.
struct policy_counts *policy_counts_new(void);
void policy_counts_free(struct policy_counts *c);

// ---- calls in the words of a policy, and tests

// Who asks, when, and a function for each layer that applies, or NULL.
struct policy_words {
    const char *tenant; // if the call names none
    int64_t now_ms;
    policy_step_fn *step;
    // NULL, or called with what the call is about, before it is decided. A negative result ends it.
    int (*look)(void *cookie, const struct deed *d, struct err *e);
    void *cookie;
    const struct policy *request; // NULL: none
};

// Decides about a call in words. INVALID_ARGUMENT: a method, destination or limit in it is not valid.
int policy_decide_words(const struct policy *p, const Stockade__V1__PolicyCall *m,
                        const struct policy_words *by, struct policy_decision *out, struct err *e);

// Runs a test. 1: passed, 0: failed, with *out as decided; negative: it is not valid.
int policy_test(const struct policy *p, const Stockade__V1__PolicyTest *t, int64_t now_ms,
                struct policy_decision *out, struct err *e);

// A test of a rule that was run.
struct policy_tested {
    const char *file;
    uint32_t line, column; // of the rule
    const char *rule;      // LAYER/ID
    size_t number;         // from 1
    const Stockade__V1__PolicyTest *test;
    const struct policy_decision *decision;
    bool passed;
    const char *note; // why it fails, if that is easily overlooked; or ""
};
typedef void policy_tested_fn(void *cookie, const struct policy_tested *t);

// Runs the tests of all rules. each NULL: the first that fails is the error. INVALID_ARGUMENT: a test is not valid.
int policy_run_tests(const struct policy *p, policy_tested_fn *each, void *cookie, struct err *e);

// ---- waiting for people

// A call that a policy asks about. Everything is borrowed until the function returns.
struct policy_question {
    const struct policy_decision *decision; // ASK
    const struct call *call;
    const char *method; // "ProcessService/Run"
    const ProtobufCMessage *request;
};

// The answer to a question that took time; e NULL: approved. Called once, never from inside of the function below.
typedef void policy_answer(void *cookie, const struct err *e);

// Asks. 0: it is approved already (for a session, or by a pattern); negative: refused, with the reason in *e; 1: people were asked,
// and `done` follows. *asked: names the question for policy_unask_fn.
typedef int policy_ask_fn(void *asker, const struct policy_question *q, policy_answer *done,
                          void *cookie, void **asked, struct err *e);

// The caller does not wait any more: `done` must not be called. The question itself may stay.
typedef void policy_unask_fn(void *asker, void *asked);

// Who asks people. ask NULL: nobody, so such a call fails with FAILED_PRECONDITION (APPROVALS_NOT_CONFIGURED).
struct policy_asker {
    void *cookie;
    policy_ask_fn *ask;
    policy_unask_fn *unask;
};
