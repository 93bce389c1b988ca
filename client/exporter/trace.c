// SPDX-License-Identifier: Apache-2.0
// See trace.h.
#include "trace.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "proto/traceparent.h"
#include "facts.h"

enum { FLAG_RECORDED = 1, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53 };

static bool
from_hex(const char *text, uint8_t *out, size_t n)
{
    size_t got = 0;
    return strlen(text) >= 2 * n && sodium_hex2bin(out, n, text, 2 * n, NULL, &got, NULL) == 0 &&
           got == n;
}

void
trace_hex(const uint8_t *bytes, size_t n, char *out)
{
    (void)sodium_bin2hex(out, 2 * n + 1, bytes, n);
}

bool
trace_of_job(const struct stockade_event *event, struct trace *out)
{
    const char *dash = strrchr(event->process_id, '-'); // behind the name of a node
    const char *id = dash != NULL ? dash + 1 : event->process_id;
    const char *parent = fact_text(event, "traceparent");
    *out = (struct trace){.recorded = true};
    if (strlen(id) != (size_t)2 * TRACE_ID || !from_hex(id, out->trace_id, TRACE_ID))
        return false;
    memcpy(out->span_id, out->trace_id, SPAN_ID);
    out->span_id[0] |= 1; // an id of 0 would be none
    if (!traceparent_valid(parent))
        return true;
    uint8_t flags = 0;
    out->has_parent = from_hex(parent + TRACE_AT, out->trace_id, TRACE_ID) &&
                      from_hex(parent + SPAN_AT, out->parent_id, SPAN_ID) &&
                      from_hex(parent + FLAGS_AT, &flags, 1);
    out->recorded = (flags & FLAG_RECORDED) != 0;
    return true;
}

void
trace_child(const struct trace *t, unsigned n, uint8_t out[SPAN_ID])
{
    memcpy(out, t->span_id, SPAN_ID);
    out[SPAN_ID - 1] = (uint8_t)(out[SPAN_ID - 1] + n);
}

bool
trace_find(struct traces *all, const struct stockade_event *event, struct trace *out)
{
    const size_t n = strlen(event->process_id);
    if (n == 0 || n >= TRACE_JOB_TEXT)
        return false;
    uint32_t hash = 2166136261; // FNV-1a
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)event->process_id[i]) * 16777619;
    const size_t at = hash % TRACE_JOBS;
    if (strncmp(event->kind, "JOB_", 4) == 0 && trace_of_job(event, out)) {
        (void)snprintf(all->job[at].job, sizeof all->job[at].job, "%s", event->process_id);
        all->job[at].trace = *out;
        return true;
    }
    if (strcmp(all->job[at].job, event->process_id) != 0)
        return false;
    *out = all->job[at].trace;
    return true;
}
