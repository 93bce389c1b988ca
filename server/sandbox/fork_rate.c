// SPDX-License-Identifier: Apache-2.0
// See fork_rate.h.
#include "fork_rate.h"

// The burst is the number of tasks that the rate allows in BURST_S. A stopped sandbox continues when the level is
// PART_S of the rate below it. One check adds at most MOST_S of the rate, so that no sandbox is stopped for long.
static const double BURST_S = 2;
static const double PART_S = 0.05;
static const double MOST_S = 1;

bool
fork_rate_add(struct fork_rate *f, double per_second, uint64_t began, uint64_t now_ns)
{
    double drained = per_second * (double)(now_ns - f->looked_ns) / 1e9;
    double burst = per_second * BURST_S;
    double most = burst + per_second * MOST_S;
    f->looked_ns = now_ns;
    f->level = f->level > drained ? f->level - drained : 0;
    f->level += (double)began;
    f->level = f->level < most ? f->level : most;
    return f->level > (f->held ? burst - per_second * PART_S : burst);
}
