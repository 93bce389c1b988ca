// SPDX-License-Identifier: Apache-2.0
// The tripwire for data that leaves in DNS queries.
//
// A tunnel needs many different names below one domain that it owns, each with a part that looks random. So the
// letters of such parts are summed per domain (its last two labels), once per name, however often the name is
// queried.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "server/relay/relay.h"

// Returns where the last two labels begin.
static size_t
zone_begin(const char *name, size_t n)
{
    int dots = 0;
    size_t i = n;
    while (i > 0) {
        if (name[i - 1] == '.' && ++dots == 2)
            return i;
        i--;
    }
    return 0;
}

static double
entropy(const char *text, size_t n)
{
    uint32_t count[256] = {0};
    double bits = 0;
    for (size_t i = 0; i < n; i++)
        count[(uint8_t)text[i]]++;
    for (size_t i = 0; i < 256; i++)
        if (count[i] > 0)
            bits -= (double)count[i] / (double)n * log2((double)count[i] / (double)n);
    return bits;
}

static bool
asked_before(struct box *b, uint64_t hash)
{
    for (uint32_t i = 0; i < BOX_NAMES; i++)
        if (b->name[i] == hash)
            return true;
    b->name[b->name_n++ % BOX_NAMES] = hash;
    return false;
}

static struct box_zone *
find_zone(struct box *b, uint64_t hash)
{
    struct box_zone *oldest = &b->zone[0];
    for (uint32_t i = 0; i < BOX_ZONES; i++) {
        if (b->zone[i].hash == hash)
            return &b->zone[i];
        if (b->zone[i].window.at < oldest->window.at)
            oldest = &b->zone[i];
    }
    *oldest = (struct box_zone){.hash = hash};
    return oldest;
}

// Adds bytes below a domain, for one job or for all of them (0). Returns the sum of the window.
static int64_t
count_zone(struct box *b, const char *zone, size_t n, uint32_t job, uint64_t now_ns, size_t bytes)
{
    struct box_zone *z = find_zone(b, box_hash(zone, n, 13) + job * 0x9e3779b97f4a7c15ULL);
    return box_window_add(&z->window, now_ns, box_rule(b, RULE_DNS_TUNNEL)->window_ms,
                          (int32_t)bytes);
}

void
box_relay(struct box *b, const struct relay_report *report)
{
    const struct anomaly_policy *p = box_rule(b, RULE_DNS_TUNNEL);
    if (report->kind != RELAY_LOOKUP && report->kind != RELAY_DENIED)
        return;
    const char *name = report->name;
    size_t n = strnlen(name, sizeof report->name);
    size_t zone = zone_begin(name, n);
    if (zone < b->policy->parameter[PARAMETER_NAME_LETTERS] ||
        entropy(name, zone - 1) * 1000 < (double)b->policy->parameter[PARAMETER_NAME_MILLIBITS] ||
        asked_before(b, box_hash(name, n, 11)))
        return;
    int64_t of_job = 0;
    if (b->job != NULL)
        of_job = count_zone(b, name + zone, n - zone, b->job->number, report->time_ns, zone - 1);
    int64_t sum = count_zone(b, name + zone, n - zone, 0, report->time_ns, zone - 1);
    if (!box_crossed(b, RULE_DNS_TUNNEL, report->time_ns, (double)of_job, (double)sum))
        return;
    char text[FINDING_TEXT_MAX];
    char shown[64];
    (void)snprintf(shown, sizeof shown, "%.*s", (int)(n - zone), name + zone);
    for (char *c = shown; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7f)
            *c = '?';
    (void)snprintf(text, sizeof text,
                   "%lld bytes of random-looking names were queried below %s within %llu s",
                   (long long)sum, shown, (unsigned long long)p->window_ms / 1000);
    box_raise(b, RULE_DNS_TUNNEL, report->time_ns, (double)sum, text);
}
