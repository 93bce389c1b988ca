// SPDX-License-Identifier: Apache-2.0
// See rates.h.
#include "rates.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "server/telemetry/activity.h"

static const float forget = 1.0F / 64; // weight of a tick, so about the last 6 seconds count
static const float slack = 1.0F;       // deviations per tick that are ignored
static const float most = 8.0F;        // deviations that one tick adds at most
static const float trusted = 3.0F;     // deviations by which mean and variance follow at most
// a fall is counted only if the mean is above this many floors
static const float fall_means = 4.0F;

// A counter, and the minimum standard deviation that is assumed, per tick of 100 ms.
struct row {
    const char *name;
    size_t figure; // index in struct activity, all of whose fields are 64-bit numbers
    float floor;
};
#define OF(member) (offsetof(struct activity, member) / sizeof(uint64_t))
#define FIGURES    (sizeof(struct activity) / sizeof(uint64_t))
#define PORTS      SIZE_MAX

static const struct row rows[RATES_N] = {
    {"forks", OF(forks), 50},
    {"execs", OF(execs), 30},
    {"opens-for-writing", OF(opens_write), 100},
    {"unlinks", OF(unlinks), 100},
    {"renames", OF(renames), 50},
    {"system-calls", OF(syscalls), 100000},
    {"refused-calls", OF(errors[WATCH_DENIED]), 20},
    {"missing-files", OF(errors[WATCH_MISSING]), 2000},
    {"connections", OF(connects_allowed), 20},
    {"denials", OF(connects_denied), 5},
    {"ports", PORTS, 10},
    {"packets-out", OF(out_packets), 2000},
    {"bytes-out", OF(out_bytes), 4e6F},
    {"bytes-in", OF(in_bytes), 32e6F},
    {"cpu", OF(cpu_ns), 200e6F},
};

// The larger of the two sums after a tick with value x.
static float
step(struct rate *r, float x, float floor)
{
    float deviation = sqrtf(r->variance);
    deviation = deviation > floor ? deviation : floor;
    float z = (x - r->mean) / deviation;
    z = z > most ? most : z < -most ? -most : z;
    r->up += z - slack;
    r->up = r->up > 0 ? r->up : 0;
    r->down += -z - slack;
    r->down = r->down > 0 && r->mean > fall_means * floor ? r->down : 0;
    // Outliers change mean and variance little; otherwise they would hide themselves before they are reported.
    float change = (z > trusted ? trusted : z < -trusted ? -trusted : z) * deviation;
    r->mean += forget * change;
    r->variance += forget * (change * change - r->variance);
    return r->up > r->down ? r->up : r->down;
}

uint32_t
rates_tick(struct rates *r, const struct activity *sums, uint64_t ports, double threshold,
           struct rates_shift out[RATES_N])
{
    uint64_t figures[FIGURES];
    uint32_t n = 0;
    memcpy(figures, sums, sizeof figures);
    for (uint32_t i = 0; i < RATES_N; i++) {
        struct rate *one = &r->rate[i];
        uint64_t now = rows[i].figure == PORTS ? ports : figures[rows[i].figure];
        // A counter never decreases. If it did, it is that of something else.
        float x = r->ticks > 0 && now > one->last ? (float)(now - one->last) : 0;
        one->last = now;
        if (r->ticks == 0)
            continue;
        float mean = one->mean;
        float score = step(one, x, rows[i].floor);
        if (r->ticks < RATES_WARM) {
            one->up = one->down = 0;
        } else if ((double)score >= threshold) {
            out[n++] = (struct rates_shift){rows[i].name, (double)x, (double)mean, (double)score,
                                            one->up >= one->down ? 1 : -1};
            one->up = one->down = 0;
        }
    }
    r->ticks++;
    return n;
}
