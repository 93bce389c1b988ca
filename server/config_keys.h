// SPDX-License-Identifier: Apache-2.0
// Between config.c and config_keys.c: the table of keys.
#pragma once

#include "config.h"

// Reads the file's keys into *c. Templates that it names replace all of before.
int config_read_keys(struct config *c, const char *name, const void *bytes, size_t n,
                     struct err *e);

// Fills what was left out and checks what belongs together.
int config_finish(struct config *c, struct err *e);
