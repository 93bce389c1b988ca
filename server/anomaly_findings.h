// SPDX-License-Identifier: Apache-2.0
// The findings that are kept: ANOMALY_FINDINGS in all. Where they are more, the tenant that has most loses its oldest, so
// that none pushes out what is another's. Loop thread only.
#pragma once

#include <stdint.h>

#include "anomaly.h"

struct findings {
    struct anomaly_finding *kept[ANOMALY_FINDINGS]; // owned; by sequence
    uint32_t n;
    uint64_t last; // sequence that was given last
    uint64_t gone, gone_last;
};

// Numbers it, and keeps a copy; without memory it is one that is no longer kept.
void findings_add(struct findings *all, struct anomaly_finding *f);
void findings_clear(struct findings *all);

// The first one behind a sequence number; NULL: there is none.
const struct anomaly_finding *findings_next(const struct findings *all, uint64_t after);

// How many of a tenant (NULL: of all) behind a sequence number are no longer kept, at most.
uint64_t findings_forgotten(const struct findings *all, const char *tenant, uint64_t after);
