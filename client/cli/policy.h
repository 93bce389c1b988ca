// SPDX-License-Identifier: Apache-2.0
// Network policies as text and JSON.
#pragma once

#include "client/stockade.h"

// Prints a line "network MODE", and one for each setting of the policy.
void cli_print_policy(const struct stockade_policy *p);
