// SPDX-License-Identifier: Apache-2.0
// stockaded --check-config: which file was read, and whether this host has what the broker needs.
#pragma once

#include "server/config/config.h"

// Prints a line for each result. Returns 0, or EX_CONFIG if the broker would not start or a template would be disabled.
// `file` is NULL if none was read.
int check_config(const char *file, struct config *c);
