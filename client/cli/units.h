// SPDX-License-Identifier: Apache-2.0
// Sizes and durations as text.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Each parses the whole text: 0 and *out, or -EINVAL (not valid, or 0) or -ERANGE (too large). Fractions are accepted.

// Bytes: "512", "64K", "1.5G"; K, M, G, T are powers of 1,024; "KiB" and "KB" are read as K.
int units_bytes(const char *text, uint64_t *out);

// Milliseconds: "500ms", "5s", "1.5m", "2h", "1d"; a number without a unit is in seconds.
int units_duration_ms(const char *text, uint64_t *out);

// Thousandths of a CPU: "0.5" is 500.
int units_cpu_millis(const char *text, uint64_t *out);

// A whole number above 0.
int units_count(const char *text, uint64_t *out);

// "256.0 MiB", "12 B". Returns out.
char *units_show_bytes(uint64_t bytes, char *out, size_t n);

// "12.4 ms", "3.2 s", "5m 3s". Returns out.
char *units_show_ns(uint64_t ns, char *out, size_t n);

// Age or time left in one unit: "42s", "3m", "2h", "5d". Returns out.
char *units_show_age(int64_t ms, char *out, size_t n);
