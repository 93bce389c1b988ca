// SPDX-License-Identifier: Apache-2.0
// The parts of server/access/policy*.c: a policy as it is decided from.
#pragma once

#include "policy.h"
#include "server/policy/network.h"

enum { POLICY_METHODS_MAX = 256, POLICY_TEXT = 160 };

// The words of one pattern of a command.
struct policy_command {
    size_t n;
    const char **word;
    bool more;        // "...": any further words
    uint32_t program; // hash of the first word, if that is plain; otherwise 0
};

// A count of calls, as a bucket that empties evenly.
struct policy_bucket {
    uint64_t step_ns; // 0: there is none
    uint64_t room_ns;
    uint64_t calls, period_ms; // for texts
    int of;                    // Stockade__V1__PolicyCount
};

struct policy_rule {
    const Stockade__V1__PolicyRule *m;
    const Stockade__V1__PolicyMatch *match; // never NULL
    char name[POLICY_RULE_NAME];            // LAYER/ID
    uint32_t line, column;
    enum policy_verdict verdict;
    size_t commands_n;
    struct policy_command *commands;
    struct network *destinations; // owned; NULL: does not matter
    struct limits above, within, most;
    bool has_above, has_within;
    uint8_t days;         // bits from Monday; 0: does not matter
    uint16_t from, until; // minutes of the day; the same: the whole day
    struct policy_bucket history, rate;
    uint64_t timeout_ms;
};

// A rule that may match a call of a method; program: see struct policy_command; 0: of any program.
struct policy_candidate {
    uint32_t program;
    uint32_t rule;
};

struct policy_layer {
    const Stockade__V1__PolicyLayer *m;
    const char *kind, *file;
    uint32_t line;
    bool is_inline; // written with a template
    enum policy_verdict otherwise;
    uint32_t rules_n;
    struct policy_rule *rules;
    // Candidates by method: those of method i are [first[i], first[i + 1]).
    uint32_t first[POLICY_METHODS_MAX + 1];
    struct policy_candidate *candidates;
};

struct policy {
    struct arena *arena;
    struct yaml *tree[POLICY_FILES_MAX];
    Stockade__V1__PolicyFiles files;
    uint32_t layers_n, rules_n, tests_n;
    struct policy_layer *layers; // host, tenant, template
    uint8_t digest[POLICY_DIGEST];
    struct yaml *request; // the tree of policy_read_request(); owned
};

// What is being decided.
struct policy_work {
    const struct policy_call *call;
    const struct deed_command *command; // NULL: the call has none
    uint32_t program;                   // its hash
    size_t line_n;
    char *line;    // its words as one text, made when needed; owned
    char **paths;  // cleaned; owned
    uint64_t left; // bytes that may still be compared
    bool spent;    // more would have been necessary
    struct policy_decision *out;
};

// policy_match.c: whether a rule matches, and what part of it the call is refused for.
bool policy_rule_matches(const struct policy_rule *r, struct policy_work *w);
bool policy_words_match(size_t n, const char *const *patterns, const char *text,
                        struct policy_work *w);
// The hash of a program; never 0.
uint32_t policy_program(const char *word);
void policy_work_begin(struct policy_work *w, const struct policy_call *c,
                       struct policy_decision *out);
void policy_work_command(struct policy_work *w, const struct deed_command *c);
void policy_work_end(struct policy_work *w);

// policy_counts.c: a call more for a count; 0: nothing is counted. False: there are too many.
bool policy_add_hit(struct policy_decision *out, uint64_t key, const struct policy_bucket *b);
// How much later than now the call would have to come, in ns; 0: it may come now.
uint64_t policy_wait_ns(const struct policy_bucket *b, const char *rule,
                        const struct policy_call *c, uint32_t weight, uint64_t *key);

// policy_words.c: the word of a verdict.
const char *policy_word_of(Stockade__V1__PolicyVerdict v);

// policy_text.c: what would be allowed, and which part of the call is refused. r NULL: `otherwise` of the layer.
void policy_allowed(const struct policy_layer *l, const struct policy_rule *r,
                    struct policy_decision *out);

// policy_rules.c: rules as they are decided from. `file` for messages.
struct yaml_node;
struct config_reader;
int policy_make_rule(const struct config_reader *file, struct arena *a, const char *layer,
                     const Stockade__V1__PolicyRule *m, struct yaml_node *n,
                     struct policy_rule *out);
int policy_read_limits(const Stockade__V1__PolicyLimits *m, struct limits *out, struct err *e);
int policy_read_destinations(size_t n, const char *const *words, struct network **out,
                             size_t *wrong, struct err *e);
// The index of a method ("ProcessService/Run") in the table; POLICY_METHODS_MAX: there is none.
uint32_t policy_method(const char *name);
const char *policy_method_name(uint32_t i); // NULL: at the end
