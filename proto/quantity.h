// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and counts as text, for the command line, the configuration file and messages.
//
//   512   64K   256M   256MB   1.5GiB        bytes; K, M, G and T are powers of 1,024
//   5   5s   500ms   1.5m   2h   1d          time; a number without a unit is in seconds
//   0.5   2                                  CPUs
#pragma once

#include <stddef.h>
#include <stdint.h>

struct quantity_unit {
    const char *suffix; // in upper or lower case; "": no unit
    uint64_t factor;
};

// Terminated by {0}. Results are in bytes, milliseconds, thousandths of a CPU, and whole numbers (without a fraction).
extern const struct quantity_unit quantity_bytes[], quantity_time_ms[], quantity_cpu_millis[],
    quantity_count[];

// Parses the whole text. -EINVAL: not valid; -ERANGE: above INT64_MAX. *out is unchanged on failure.
int quantity_read(const char *text, const struct quantity_unit *units, uint64_t *out);

// The reverse, as a person types it: "256M", "1000" bytes, "90s", "300ms", "1.5" CPUs. Exact: quantity_read() returns v.
// Returns `out`, which has room for QUANTITY_TEXT bytes.
enum { QUANTITY_TEXT = 40 };
const char *quantity_write(uint64_t v, const struct quantity_unit *units, char out[QUANTITY_TEXT]);

// The forms that quantity_read() accepts, for messages: "a size, such as 4096, 64K, 256M or 1.5G".
const char *quantity_forms(const struct quantity_unit *units);

// The value in the unit that the end of the field's name ("ttl_ms", "memory_bytes", "egress_rate", "cpu_millis")
// determines. Returns out.
char *quantity_show(const char *field, uint64_t value, char *out, size_t n);
