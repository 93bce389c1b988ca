// SPDX-License-Identifier: Apache-2.0
// See finding.h: names of severities and responses.
#include "finding.h"

#include <stddef.h>
#include <string.h>

// Starts at 1.
static const char *const severities[] = {"info", "notice", "warning", "critical"};
static const char *const responses[] = {"log",   "alert", "throttle",
                                        "pause", "kill",  "deny-network"};

enum {
    SEVERITIES = sizeof severities / sizeof severities[0],
    RESPONSES = sizeof responses / sizeof responses[0],
};

const char *
finding_severity_name(uint32_t severity)
{
    return severity >= 1 && severity <= SEVERITIES ? severities[severity - 1] : NULL;
}

const char *
finding_response_name(uint32_t response)
{
    return response >= 1 && response <= RESPONSES ? responses[response - 1] : NULL;
}

static uint32_t
find(const char *const *names, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i + 1;
    return 0;
}

uint32_t
finding_severity_find(const char *name)
{
    return find(severities, SEVERITIES, name);
}

uint32_t
finding_response_find(const char *name)
{
    return find(responses, RESPONSES, name);
}

void
finding_tags(struct finding *f, size_t n, const char *const *tags)
{
    size_t at = 0;
    f->tags_n = 0;
    for (size_t i = 0; i < n && i < FINDING_TAGS_MAX; i++) {
        const size_t bytes = strlen(tags[i]) + 1;
        if (at + bytes > sizeof f->tags)
            return;
        memcpy(f->tags + at, tags[i], bytes);
        at += bytes;
        f->tags_n++;
    }
}

uint32_t
finding_tag_list(const struct finding *f, const char *out[FINDING_TAGS_MAX])
{
    const char *at = f->tags;
    for (uint32_t i = 0; i < f->tags_n; i++, at += strlen(at) + 1)
        out[i] = at;
    return f->tags_n;
}
