// SPDX-License-Identifier: Apache-2.0
// Fifteen rates of a sandbox, each compared with its own past every 100 ms: an exponentially weighted mean and
// variance, and a two-sided CUSUM (Page, "Continuous inspection schemes", 1954) of the deviation in standard
// deviations.
//
// An idle job may start to work: each standard deviation has a minimum, about the rate of honest work in 100 ms, and
// nothing is reported before RATES_WARM ticks. So only large and lasting changes are reported.
#pragma once

#include <stdint.h>

struct activity;

enum {
    RATES_N = 15,
    RATES_WARM = 30, // ticks
};

struct rate {
    float mean, variance;
    float up, down; // CUSUM
    uint64_t last;  // the counter at the previous tick
};
_Static_assert(sizeof(struct rate) == 24, "360 bytes a sandbox");

struct rates {
    struct rate rate[RATES_N];
    uint32_t ticks;
};

// A rate that changed: its name, its value in this tick, its earlier mean, and the sum that exceeded the threshold.
struct rates_shift {
    const char *name;
    double value, mean, score;
    int direction; // 1: rose, -1: fell
};

// Handles one tick. ports: new destination ports are counted. Returns how many shifts (at most RATES_N) were written to
// `out`: those with a sum at `threshold` or above; their sums start again.
uint32_t rates_tick(struct rates *r, const struct activity *sums, uint64_t ports, double threshold,
                    struct rates_shift out[RATES_N]);
