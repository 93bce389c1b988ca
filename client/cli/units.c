// SPDX-License-Identifier: Apache-2.0
// See units.h.
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "proto/quantity.h"

// 0 is not a valid limit, time or number.
static int
read_above_0(const char *text, const struct quantity_unit *units, uint64_t *out)
{
    uint64_t value = 0;
    int r = quantity_read(text, units, &value);
    if (r == 0 && value == 0)
        r = -EINVAL;
    if (r == 0)
        *out = value;
    return r;
}

int
units_bytes(const char *text, uint64_t *out)
{
    return read_above_0(text, quantity_bytes, out);
}

int
units_duration_ms(const char *text, uint64_t *out)
{
    return read_above_0(text, quantity_time_ms, out);
}

int
units_cpu_millis(const char *text, uint64_t *out)
{
    return read_above_0(text, quantity_cpu_millis, out);
}

int
units_count(const char *text, uint64_t *out)
{
    return read_above_0(text, quantity_count, out);
}

char *
units_show_bytes(uint64_t bytes, char *out, size_t n)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    uint64_t tenths = bytes > UINT64_MAX / 10 ? UINT64_MAX : bytes * 10;
    while (tenths >= 10240 && i + 1 < sizeof names / sizeof names[0]) {
        tenths = tenths / 1024;
        i++;
    }
    if (i == 0)
        (void)snprintf(out, n, "%" PRIu64 " B", bytes);
    else
        (void)snprintf(out, n, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, names[i]);
    return out;
}

char *
units_show_ns(uint64_t ns, char *out, size_t n)
{
    uint64_t us = ns / 1000, seconds = ns / 1000000000u;
    if (us < 1000)
        (void)snprintf(out, n, "%" PRIu64 " us", us);
    else if (seconds < 1)
        (void)snprintf(out, n, "%" PRIu64 ".%" PRIu64 " ms", us / 1000, us / 100 % 10);
    else if (seconds < 60)
        (void)snprintf(out, n, "%" PRIu64 ".%02" PRIu64 " s", seconds, us / 10000 % 100);
    else if (seconds < 3600)
        (void)snprintf(out, n, "%" PRIu64 "m %" PRIu64 "s", seconds / 60, seconds % 60);
    else
        (void)snprintf(out, n, "%" PRIu64 "h %" PRIu64 "m", seconds / 3600, seconds / 60 % 60);
    return out;
}

char *
units_show_age(int64_t ms, char *out, size_t n)
{
    int64_t s = ms < 0 ? 0 : ms / 1000;
    if (s < 120)
        (void)snprintf(out, n, "%" PRId64 "s", s);
    else if ((s + 30) / 60 < 120 && (s + 30) / 60 != 60)
        (void)snprintf(out, n, "%" PRId64 "m", (s + 30) / 60);
    else if (s < 172800)
        (void)snprintf(out, n, "%" PRId64 "h", (s + 1800) / 3600);
    else
        (void)snprintf(out, n, "%" PRId64 "d", s / 86400);
    return out;
}
