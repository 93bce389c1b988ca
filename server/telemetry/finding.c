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
