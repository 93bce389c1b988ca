// SPDX-License-Identifier: Apache-2.0
// A call as those see it who approve it: its digests, and one line about it.
#pragma once

#include "server/access/approval.h"

// method: "ProcessService/Run". Everything is in the arena, or borrowed from the request. RESOURCE_EXHAUSTED: it does not fit.
int approval_call_read(const char *method, const ProtobufCMessage *request, struct arena *a,
                       struct approval_call *out, struct err *e);
