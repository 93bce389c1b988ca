// SPDX-License-Identifier: Apache-2.0
// The different values of the tripwires that count them: each rule has a table of its own, in which the oldest value gives way, so no other
// rule displaces one.
#include <stdio.h>
#include <string.h>

#include "box.h"
#include "box_private.h"

struct table {
    struct box_named *value;
    uint32_t n;
};

#define TABLE(field)                                                                               \
    {                                                                                              \
        e->field, sizeof e->field / sizeof e->field[0]                                             \
    }

static struct table
table_of(struct box_evidence *e, enum anomaly_rule rule)
{
    switch ((int)rule) {
    case RULE_DENIED_FAN_OUT:
        return (struct table)TABLE(denied);
    case RULE_CLOUD_METADATA:
        return (struct table)TABLE(metadata);
    case RULE_SHELL_CONNECTION:
        return (struct table)TABLE(by_shell);
    case RULE_MANY_REFUSED_CALLS:
        return (struct table)TABLE(calls);
    case RULE_CREDENTIAL_SWEEP:
        return (struct table)TABLE(credentials);
    case RULE_STARTUP_FILES:
        return (struct table)TABLE(startup);
    case RULE_PRELOADED_PROGRAMS:
        return (struct table)TABLE(preloaded);
    case RULE_CREDENTIAL_CONNECTION:
        return (struct table)TABLE(stolen);
    case RULE_COMBINED_EVIDENCE:
        return (struct table)TABLE(together);
    default:
        assert(false); // a rule without a table
        return (struct table){NULL, 0};
    }
}

static uint64_t
begin_of(const struct box *b, enum anomaly_rule rule, uint64_t now_ns)
{
    const uint64_t window_ns = box_rule(b, rule)->window_ms * 1000000;
    return now_ns - (now_ns < window_ns ? now_ns : window_ns);
}

uint32_t
box_note_distinct(struct box *b, enum anomaly_rule rule, const struct box_value *value,
                  uint64_t now_ns, uint32_t *of_job)
{
    const struct table t = table_of(b->evidence, rule);
    const uint64_t from = begin_of(b, rule, now_ns);
    uint32_t oldest = 0, mine = t.n, n = 0;
    for (uint32_t i = 0; i < t.n; i++) {
        if (t.value[i].hash == value->hash)
            mine = i;
        if (t.value[i].at_ns < t.value[oldest].at_ns)
            oldest = i;
    }
    struct box_named *to = &t.value[mine < t.n ? mine : oldest];
    *to = (struct box_named){.hash = value->hash, .at_ns = now_ns, .job = box_job_number(b)};
    (void)snprintf(to->name, sizeof to->name, "%s", value->name);
    *of_job = 0;
    for (uint32_t i = 0; i < t.n; i++) {
        bool counts = t.value[i].hash != 0 && t.value[i].at_ns >= from;
        n += counts;
        *of_job += counts && t.value[i].job == box_job_number(b);
    }
    return n;
}

const char *
box_distinct_names(struct box *b, enum anomaly_rule rule, uint64_t now_ns,
                   char out[FINDING_TEXT_MAX])
{
    const uint64_t from = begin_of(b, rule, now_ns);
    size_t at = 0;
    out[0] = '\0';
    const struct table t = table_of(b->evidence, rule);
    for (uint32_t i = 0; i < t.n; i++)
        if (t.value[i].hash != 0 && t.value[i].at_ns >= from && at < FINDING_TEXT_MAX)
            at += (size_t)snprintf(out + at, FINDING_TEXT_MAX - at, "%s%s", at > 0 ? ", " : "",
                                   t.value[i].name);
    return out;
}
