// SPDX-License-Identifier: Apache-2.0
// Fifteen rates of a sandbox, each compared with its own past every 100 ms: an exponentially weighted mean and variance,
// and a two-sided CUSUM (Page, "Continuous inspection schemes", 1954) of the deviation in standard deviations.
//
// A job that has done nothing so far may begin to work: each rate has a floor under its standard deviation, about what
// honest work does in 100 ms, and nothing is told before RATES_WARM ticks. So what is told is a change that is large
// for a sandbox, and lasts.
#pragma once

#include <stdint.h>

struct anomaly_sums;

enum {
    RATES_N = 15,
    RATES_WARM = 30, // ticks
};

struct rate {
    float mean, variance;
    float up, down; // CUSUM
    uint64_t last;  // the figure at the tick before
};
_Static_assert(sizeof(struct rate) == 24, "360 bytes a sandbox");

struct rates {
    struct rate rate[RATES_N];
    uint32_t ticks;
};

// A rate that left its usual course: its name, its value in this tick, its mean before, and the sum that went over.
struct rates_shift {
    const char *name;
    double value, mean, score;
    int direction; // 1: rose, -1: fell
};

// One tick. ports: destinations' ports seen so far, counted when new. Returns how many shifts (at most RATES_N) were
// written to `out`: those whose sum reached `threshold`; their sums begin anew.
uint32_t rates_tick(struct rates *r, const struct anomaly_sums *sums, uint64_t ports,
                    double threshold, struct rates_shift out[RATES_N]);
