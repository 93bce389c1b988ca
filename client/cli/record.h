// SPDX-License-Identifier: Apache-2.0
// The record of a job for --bill.
#pragma once

#include <stdio.h>

#include "client/stockade.h"

// Prints network, refusals and findings, if there are any; r may be NULL. sandbox: the one that the hints name; NULL: the
// hints are options for `run`.
void record_print_for_bill(const struct stockade_record *r, const char *sandbox, FILE *to);
