// SPDX-License-Identifier: Apache-2.0
// Events as CloudEvents 1.0 (cloudevents.io), structured mode, one JSON object each. Strings that a job, or the owner of a sandbox,
// has chosen are in data.untrusted. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "client/stockade.h"

#define CLOUDEVENTS_TYPE "application/cloudevents+json; charset=utf-8"

// Type dev.stockade.event.KIND, id INSTANCE-SEQUENCE. One line of ASCII. *owned*: free(3). NULL: out of memory.
char *cloudevents_event(const struct stockade_event *event);

// Type dev.stockade.events_missed: events that are missing; count 0: unknown.
char *cloudevents_gap(uint64_t count, const char *reason, int64_t time_ns);
