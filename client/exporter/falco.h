// SPDX-License-Identifier: Apache-2.0
// Findings as Falco writes its alerts in JSON (falco.org), one object each, so that falcosidekick and other readers of Falco take them.
//
//   severity  info            notice   warning   critical        details       output_fields["stockade.NAME"]
//   priority  Informational   Notice   Warning   Critical        its process   proc.name, proc.pid
//
// `output` is for people and goes to chats and terminals: it has printable characters alone, and at most FALCO_OUTPUT_MAX bytes. What
// a job has chosen is whole in output_fields. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/stockade.h"

enum { FALCO_OUTPUT_MAX = 1024 };

// One line of ASCII with its line break. hostname: where the broker's exporter runs. *owned*: free(3). NULL: out of memory.
char *falco_line(const struct stockade_event *finding, const char *hostname);

// The same for events that are missing; count 0: unknown.
char *falco_gap_line(uint64_t count, const char *reason, int64_t time_ns, const char *hostname);
