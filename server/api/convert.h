// SPDX-License-Identifier: Apache-2.0
// From the core's plain structs to messages. What is made lives in an arena; NULL means that it is full.
#pragma once

#include <stdint.h>

#include "../../proto/wire.h"
#include "../../proto/err.h"
#include "../call.h"
#include "../job.h"
#include "../sandbox.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum {
    CONVERT_ARENA_MAX = 8 * 1024 * 1024,
    CONVERT_PAGE_BYTES = 2 * 1024 * 1024, // a page ends here at the latest: a frame has 4 MiB
    CONVERT_PAGE_USUAL = 100,
    CONVERT_TOKEN_BYTES = 17,
};

Stockade__V1__Result *convert_result(struct arena *a, const struct job_result *r);
Stockade__V1__Sandbox *convert_sandbox(struct arena *a, const struct sandbox *s);
Stockade__V1__Process *convert_process(struct arena *a, const struct job *j);

// A page token is the order of the last element, 16 hex digits. INVALID_ARGUMENT: it is none.
int convert_token(const char *token, uint64_t *order, struct err *e);
void convert_to_token(uint64_t order, char out[CONVERT_TOKEN_BYTES]);

// What a request says about a new sandbox, checked against the template. Labels are set by convert_label().
// INVALID_ARGUMENT, NOT_FOUND (template), FAILED_PRECONDITION (network). On success *out owns: sandbox_spec_clear().
int convert_spec(const struct server *s, const char *template, const char *name,
                 const Stockade__V1__Limits *limits, const Stockade__V1__NetworkPolicy *network,
                 struct sandbox_spec *out, struct err *e);

// The policy that a request gets in a sandbox of a template; *out: one reference. Errors as above.
int convert_network(const struct server *s, const struct config_template *t,
                    const Stockade__V1__NetworkPolicy *m, struct network **out, struct err *e);

// A policy as a message; NULL stands for no way out.
Stockade__V1__NetworkPolicy *convert_policy(struct arena *a, const struct network *n);

// Room for n labels; then one at a time. The entries of maps have a type of their own in each message.
int convert_labels_begin(struct sandbox_spec *spec, size_t n, struct err *e);
void convert_label(struct sandbox_spec *spec, const char *key, const char *value);

// Fails a call because there was no memory for its answer.
void convert_no_memory(struct call *c);
