// SPDX-License-Identifier: Apache-2.0
// Decisions and differences as the messages of PolicyService: for the broker, and for the command, which answers offline with the same
// words. What is in the messages is borrowed from the policy, the decision and the arena.
#pragma once

#include "policy.h"
#include "proto/arena.h"
#include "stockade/v1/policy_service.pb-c.h"

enum { POLICY_STEPS_MAX = POLICY_LAYERS_MAX + 8, POLICY_DIFFERENCES_MAX = 1024 };

Stockade__V1__PolicyVerdict policy_verdict_message(enum policy_verdict v);

// The steps of a decision: a policy_step_fn whose cookie is the struct.
struct policy_answering {
    struct arena *a;
    Stockade__V1__ExplainResponse *out; // initialized
    bool failed;                        // out of memory
};
policy_step_fn policy_answer_step;

// The decision itself. RESOURCE_EXHAUSTED: out of memory.
int policy_answer_decision(struct policy_answering *x, const struct policy_decision *d,
                           struct err *e);

// Differences: a policy_difference_fn whose cookie is the struct. Everything is copied.
struct policy_differing {
    struct arena *a;
    Stockade__V1__PolicyServiceDiffResponse *out; // initialized
    bool failed;
};
policy_difference_fn policy_answer_difference;
