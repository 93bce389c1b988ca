// SPDX-License-Identifier: Apache-2.0
// stockaded --check-config: what was read, and whether this host has what it needs.
#pragma once

#include "config.h"

// Prints a line for each finding. 0, or EX_CONFIG when the broker would not start or a template would be disabled.
// `file` NULL: none was read.
int check_config(const char *file, struct config *c);
