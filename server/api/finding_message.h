// SPDX-License-Identifier: Apache-2.0
// Findings as messages, for AnomalyService.
#pragma once

#include "proto/arena.h"
#include "server/telemetry/finding.h"
#include "stockade/v1/anomaly_service.pb-c.h"

struct acknowledged;
struct server;

// NULL: the arena is full. The finding's texts, and those of its acknowledgements, are borrowed.
Stockade__V1__Finding *finding_message(struct arena *a, const struct server *s,
                                       const struct finding *f, const char *instance);

// Adds an acknowledgement. False: the arena is full.
bool finding_message_acknowledge(struct arena *a, Stockade__V1__Finding *m,
                                 const struct acknowledged *of);
