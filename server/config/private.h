// SPDX-License-Identifier: Apache-2.0
// Shared by config.c, keys.c and finish.c: the table of keys, and the checks of values that depend on each other.
#pragma once

#include "config.h"
#include "yaml_tree.h"

// The file that the values come from.
struct config_source {
    const char *name;
    struct yaml_node *root; // NULL: empty, or no file
};

// Reads the file's keys into *c. Templates in the file replace all earlier ones.
int config_read_keys(struct config *c, const struct config_source *file, struct err *e);

// Sets defaults for missing values and checks values that depend on each other. An error names file, line and column of
// the key that the file sets.
int config_finish(struct config *c, const struct config_source *file, struct err *e);
