// SPDX-License-Identifier: Apache-2.0
// Network policies as the commands show them.
#pragma once

#include <jansson.h>

#include "stockade.h"

// A line "network   MODE", and one for each thing that the policy says.
void cli_print_policy(const struct stockade_policy *p);

// A new reference; NULL without memory.
json_t *json_of_policy(const struct stockade_policy *p);
