// SPDX-License-Identifier: Apache-2.0
// Recent findings: ANOMALY_FINDINGS in total. When there are more, the tenant with the most loses its oldest. Loop
// thread only.
#pragma once

#include <stdint.h>

#include "server/telemetry/finding.h"

enum { ANOMALY_FINDINGS = 2048 };

struct findings {
    struct finding *kept[ANOMALY_FINDINGS]; // owned; by sequence
    uint32_t n;
    uint64_t last; // last assigned sequence
    uint64_t gone, gone_last;
};

// Numbers a finding and stores a copy; if memory is short, it counts as no longer kept.
void findings_add(struct findings *all, struct finding *f);
void findings_clear(struct findings *all);

// The first finding after a sequence number; NULL: none.
const struct finding *findings_next(const struct findings *all, uint64_t after);

// Number of findings of a tenant (NULL: of all) after a sequence number that are no longer kept, at most.
uint64_t findings_forgotten(const struct findings *all, const char *tenant, uint64_t after);
