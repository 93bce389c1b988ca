// SPDX-License-Identifier: Apache-2.0
// Detection rules on the command line: files, read as the broker reads them, without it; and the caller's own, which the broker keeps.
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "options.h"
#include "proto/detect.h"
#include "stockade/v1/rules_service.pb-c.h"

struct ruling {
    const struct command *c;
    const struct options *o;
    const char *action, *id; // id: of a rule, or NULL
    const char *const *paths;
    int paths_n;
};

// Reads the files, and each "*.yaml" of the folders, by name. NULL: the failure was reported; *code is the exit code.
struct detect *rules_read(const struct ruling *r, int *code);

// The next rule from *i on that is not in the broker's own file. False: there is none.
bool rules_next(const struct detect *d, uint32_t *i, struct detect_view *v);

// Prints or returns what is known of a rule.
json_t *rules_json(const struct detect_view *v);
void rules_print(const struct detect_view *v);

// Acts on the rules that the broker keeps for the caller: set, get, rm, enable, disable, ls, show. Returns the exit code.
int rules_of_broker(const struct ruling *r);

// Compares the events that the broker keeps with the rules, and prints each finding.
int rules_over_kept(const struct ruling *r, struct detect *d);
