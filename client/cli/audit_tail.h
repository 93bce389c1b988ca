// SPDX-License-Identifier: Apache-2.0
// What the commands `audit` and `inspect` ask the broker about its audit log.
#pragma once

#include "client/stockade.h"
#include "cli.h"

// Prints the last records, and with --follow each new one. Returns the exit code.
int audit_tail(const struct command *c, const struct options *o);

// Prints the proof of a job's record. Returns the exit code.
int audit_prove(const struct command *c, const struct options *o, struct stockade *s,
                const char *process_id);
