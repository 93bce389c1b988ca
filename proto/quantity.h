// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and counts as people write them: the command line and the configuration file mean the same by them.
//
//   512   64K   256M   256MB   1.5GiB        bytes; K, M, G and T are powers of 1,024
//   5   5s   500ms   1.5m   2h   1d          time; a number alone is seconds
//   0.5   2                                  CPUs
#pragma once

#include <stdint.h>

struct quantity_unit {
    const char *suffix; // in any case; "" is a number alone
    uint64_t factor;
};

// Ended by {0}. Results are bytes, milliseconds, thousandths of a CPU, and whole numbers (which take no fraction).
extern const struct quantity_unit quantity_bytes[], quantity_time_ms[], quantity_cpu_millis[],
    quantity_count[];

// Reads the whole text. -EINVAL: no such thing; -ERANGE: above INT64_MAX. On failure *out is unchanged.
int quantity_read(const char *text, const struct quantity_unit *units, uint64_t *out);
