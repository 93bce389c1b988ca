// SPDX-License-Identifier: Apache-2.0
// Events as OCSF 1.8.0 (schema.ocsf.io), one JSON object each. Pure.
//
//   EXEC, EXIT, SIGNAL, ...                 Process Activity (1007)      SENSITIVE_OPEN   File System Activity (1001)
//   CONNECT, FLOW, FLOW_ENDED, LISTEN,      Network Activity (4001)      LOOKUP, DENIED   DNS Activity (4003)
//   DENIED                                                              of a query
//   FINDING                                 Detection Finding (2004)     GAP              Base Event (0)
//   SANDBOX_*, JOB_*, POLICY_CHANGED, ...   API Activity (6003)
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/stockade.h"

// One line of ASCII with its line break. *owned*: free(3). NULL: out of memory.
char *ocsf_line(const struct stockade_event *event);

// The same for events that are missing; count 0: unknown.
char *ocsf_gap_line(uint64_t count, const char *reason, int64_t time_ns);
