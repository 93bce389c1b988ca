// SPDX-License-Identifier: Apache-2.0
// A policy about calls that a test reads from YAML, and what it decides. harness/policy.h is about the network.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/access/policy.h"

extern struct policy *policy;           // what was read last; owned by this file
extern struct policy_decision decision; // of the last decide()

// Reads a file of policies in place of what was read before.
int read_text(const char *text, struct err *e);

// The same from a configuration, whose templates have policies.
int read_configuration(const char *text, struct err *e);

// Reads a file without faults.
void load(const char *text);

// Decides about a call in YAML. Returns the name of the verdict.
const char *decide(const char *call);

// For cmocka_run_group_tests().
int policies_set_up(void **unused);
int policies_tear_down(void **unused);

#define DECIDES(call, verdict, by)                                                                 \
    do {                                                                                           \
        assert_string_equal(decide(call), verdict);                                                \
        assert_string_equal(decision.rule, by);                                                    \
    } while (0)

#define LAYER(rules) "layers: [{name: a, rules: [" rules "]}]"
