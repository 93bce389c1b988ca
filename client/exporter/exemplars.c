// SPDX-License-Identifier: Apache-2.0
// See exemplars.h.
#include "exemplars.h"

#include <string.h>

#include "facts.h"
#include "trace.h"

static const char histogram[] = "stockade_job_duration_seconds";

void
exemplars_event(struct exemplars *x, const struct stockade_event *event)
{
    const struct stockade_fact *wall = fact(event, "wall_us");
    struct trace t;
    if (strcmp(event->kind, "JOB_ENDED") != 0 || wall == NULL ||
        wall->type != STOCKADE_FACT_NUMBER || !trace_of_job(event, &t))
        return;
    struct exemplar *to = &x->job[x->n++ % EXEMPLARS_MAX];
    trace_hex(t.trace_id, sizeof t.trace_id, to->trace_id);
    to->value = (double)wall->number / 1e6;
    to->time_s = (double)event->time_ns / 1e9;
}

// The last one whose value is in the bucket.
const struct exposition_exemplar *
exemplars_find(void *cookie, const struct stockade_metric *m, size_t bucket)
{
    struct exemplars *x = cookie;
    const double above = bucket > 0 && bucket <= m->bounds_n ? m->bounds[bucket - 1] : 0;
    const size_t kept = x->n < EXEMPLARS_MAX ? x->n : EXEMPLARS_MAX;
    if (strcmp(m->name, histogram) != 0)
        return NULL;
    for (size_t i = 1; i <= kept; i++) {
        const struct exemplar *e = &x->job[(x->n - i) % EXEMPLARS_MAX];
        if (e->value <= above || (bucket < m->bounds_n && e->value > m->bounds[bucket]))
            continue;
        x->shown = (struct exposition_exemplar){e->trace_id, e->value, e->time_s};
        return &x->shown;
    }
    return NULL;
}
