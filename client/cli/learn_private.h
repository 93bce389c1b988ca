// SPDX-License-Identifier: Apache-2.0
// What learn.c has gathered, for learn_layer.c.
#pragma once

#include "learn.h"
#include "proto/arena.h"
#include "stockade/v1/policy.pb-c.h"

enum {
    TEMPLATES = 16,
    WORDS_OF_SET = 256,
    LINES_OF_RULE = 64, // PolicyMatch.lines
    TEST_COMMANDS = 8,
    TEST_PATHS = 8,
    RULES_OF_LAYER = 9,
    TESTS_OF_LAYER = TEST_COMMANDS + 1,
    JOB_SHOWN = 12, // digits of an id
};

// Different texts in the order in which they came, each with the job that it comes from first ("": none).
struct set {
    const char *word[WORDS_OF_SET], *from[WORDS_OF_SET];
    size_t n, left_out;
    size_t most; // 0: WORDS_OF_SET
};

// What was seen of one template.
struct seen {
    const char *template;
    // Commands whose words have no blank in them, and others, as one text.
    struct set commands, lines;
    struct set reached, denied;   // destinations
    struct set executed, touched; // comments
    struct set put, got;          // paths of transfers into sandboxes, and out of them
    // Of some commands, their words, for tests.
    const char **args[TEST_COMMANDS];
    size_t args_n[TEST_COMMANDS], tests_n;
};

struct learning {
    struct arena *arena;
    struct seen seen[TEMPLATES];
    size_t n;
    struct set notes;
};

struct making {
    const struct seen *s;
    Stockade__V1__PolicyLayer layer;
    char name[41];
    const char *templates[1];
    Stockade__V1__PolicyRule rule[RULES_OF_LAYER], *rules[RULES_OF_LAYER];
    Stockade__V1__PolicyMatch match[RULES_OF_LAYER];
    const char *destinations[2 * WORDS_OF_SET];
    size_t destinations_n;
    Stockade__V1__PolicyTest test[TESTS_OF_LAYER], *tests[TESTS_OF_LAYER];
    Stockade__V1__PolicyCall call[TESTS_OF_LAYER];
    Stockade__V1__PolicyTest path_test[TEST_PATHS + 1], *path_tests[TEST_PATHS + 1];
    Stockade__V1__PolicyCall path_call[TEST_PATHS + 1];
};

// Makes the layer of a template. It borrows from both, and m must stay in its place. complete: false: its text says so.
void learn_layer(struct making *m, const struct seen *s, bool complete);
