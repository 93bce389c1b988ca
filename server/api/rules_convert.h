// SPDX-License-Identifier: Apache-2.0
// Detection rules as messages of RulesService. False or NULL: out of memory. Everything is borrowed, or in the arena.
#pragma once

#include "proto/arena.h"
#include "proto/detect.h"
#include "stockade/v1/rules_service.pb-c.h"

struct anomaly_settings;
struct rule_file;
struct tenant_rules;

// Which rules, and how much of them.
struct rules_shown {
    const struct detect *rules; // NULL: none
    const char *tenant;         // "": of the host
    const char *file;           // only of this one; NULL: all
    bool whole;                 // also where they are written, and what they counted
    bool unwatched;             // system calls are watched on request only
};

// "alert": what a rule does.
const char *rules_response_name(const Stockade__V1__DetectionRule *r);

Stockade__V1__RuleFile *rules_convert_file(struct arena *a, const struct tenant_rules *t,
                                           const struct rule_file *f, bool text);
Stockade__V1__RuleState *rules_convert_rule(struct arena *a, const struct rules_shown *shown,
                                            uint32_t i);

// Sets, or adds to, a list of rules.
bool rules_convert(struct arena *a, const struct rules_shown *shown, Stockade__V1__RuleState ***out,
                   size_t *n);
// Of shown, whole and unwatched count.
bool rules_convert_host(struct arena *a, const struct anomaly_settings *settings,
                        const struct rules_shown *shown, Stockade__V1__RuleState ***out, size_t *n);
