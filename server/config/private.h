// SPDX-License-Identifier: Apache-2.0
// Shared by config.c and keys.c: the table of keys.
#pragma once

#include "config.h"

// Reads the file's keys into *c. Templates in the file replace all earlier ones.
int config_read_keys(struct config *c, const char *name, const void *bytes, size_t n,
                     struct err *e);

// Sets defaults for missing values and checks values that depend on each other.
int config_finish(struct config *c, struct err *e);
