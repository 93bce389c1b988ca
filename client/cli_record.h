// SPDX-License-Identifier: Apache-2.0
// The record of a job, as --bill shows it.
#pragma once

#include <stdio.h>

#include "stockade.h"

// Network, denials and findings where there is something to say; r may be NULL.
void record_print_for_bill(const struct stockade_record *r, FILE *to);
