// SPDX-License-Identifier: Apache-2.0
// Exemplars of the histogram of job durations: the last jobs, by which a person comes from a slow quantile to a job that was
// slow. The trace id is that of trace.h. Loop thread only.
#pragma once

#include "client/exposition.h"

enum { EXEMPLARS_MAX = 256, EXEMPLAR_ID = 33 };

struct exemplar {
    char trace_id[EXEMPLAR_ID];
    double value, time_s;
};

// Zeroed before first use.
struct exemplars {
    struct exemplar job[EXEMPLARS_MAX]; // a ring
    size_t n;                           // ever noted
    struct exposition_exemplar shown;
};

// Notes the end of a job (event JOB_ENDED).
void exemplars_event(struct exemplars *x, const struct stockade_event *event);

// For struct exposition_options; cookie: a struct exemplars.
const struct exposition_exemplar *exemplars_find(void *cookie, const struct stockade_metric *m,
                                                 size_t bucket);
