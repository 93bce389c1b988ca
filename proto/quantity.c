// SPDX-License-Identifier: Apache-2.0
// See quantity.h. No floating point: 0.1 must be exact, and 2^63 must not be rounded.
#include "quantity.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct quantity_unit quantity_bytes[] = {
    {"", 1},
    {"B", 1},
    {"K", UINT64_C(1) << 10},
    {"KB", UINT64_C(1) << 10},
    {"KiB", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"MB", UINT64_C(1) << 20},
    {"MiB", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"GB", UINT64_C(1) << 30},
    {"GiB", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {"TB", UINT64_C(1) << 40},
    {"TiB", UINT64_C(1) << 40},
    {0},
};
const struct quantity_unit quantity_time_ms[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {0},
};
const struct quantity_unit quantity_cpu_millis[] = {{"", 1000}, {0}};
const struct quantity_unit quantity_count[] = {{"", 1}, {0}};

static const struct quantity_unit *
find_unit(const struct quantity_unit *units, const char *suffix)
{
    for (const struct quantity_unit *u = units; u->suffix != NULL; u++)
        if (strcasecmp(u->suffix, suffix) == 0)
            return u;
    return NULL;
}

// Adds the digits after the point: each is worth a tenth of the previous one. Fractions of one unit are dropped.
static const char *
read_fraction(const char *p, uint64_t factor, uint64_t *value)
{
    uint64_t part = 0, scale = 1;
    for (; isdigit((unsigned char)*p); p++) {
        if (scale < 1000000) { // six digits are enough
            part = part * 10 + (uint64_t)(*p - '0');
            scale *= 10;
        }
    }
    // factor is at most 2^40 and part below 10^6 < 2^20: no overflow
    *value += part * factor / scale;
    return p;
}

int
quantity_read(const char *text, const struct quantity_unit *units, uint64_t *out)
{
    const char *end = text;
    while (isdigit((unsigned char)*end) || *end == '.')
        end++;
    const struct quantity_unit *u = find_unit(units, end);
    if (u == NULL || !isdigit((unsigned char)text[0]))
        return -EINVAL;
    uint64_t value = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return -ERANGE;
    if (__builtin_mul_overflow(value, u->factor, &value) || value > INT64_MAX)
        return -ERANGE;
    if (*p == '.' && units != quantity_count && isdigit((unsigned char)p[1]))
        p = read_fraction(p + 1, u->factor, &value);
    if (p != end)
        return -EINVAL;
    *out = value;
    return 0;
}

// Thousandths, without zeros at the end: "1.5", "0.05", "2".
static void
write_thousandths(uint64_t v, const char *unit, char out[QUANTITY_TEXT])
{
    char part[16];
    int n = snprintf(part, sizeof part, ".%03u", (unsigned)(v % 1000));
    while (n > 0 && (part[n - 1] == '0' || part[n - 1] == '.'))
        part[--n] = '\0';
    (void)snprintf(out, QUANTITY_TEXT, "%" PRIu64 "%.4s%s", v / 1000, part, unit);
}

// With the last unit of `names` that divides v.
static void
write_whole(uint64_t v, const struct quantity_unit *names, char out[QUANTITY_TEXT])
{
    const struct quantity_unit *best = names;
    for (const struct quantity_unit *u = names; u->suffix != NULL && v != 0; u++)
        if (v % u->factor == 0)
            best = u;
    (void)snprintf(out, QUANTITY_TEXT, "%" PRIu64 "%s", v / best->factor, best->suffix);
}

const char *
quantity_write(uint64_t v, const struct quantity_unit *units, char out[QUANTITY_TEXT])
{
    static const struct quantity_unit bytes[] = {
        {"", 1},
        {"K", UINT64_C(1) << 10},
        {"M", UINT64_C(1) << 20},
        {"G", UINT64_C(1) << 30},
        {"T", UINT64_C(1) << 40},
        {0},
    };
    static const struct quantity_unit seconds[] = {
        {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {0},
    };
    if (units == quantity_bytes)
        write_whole(v, bytes, out);
    else if (units == quantity_time_ms && v % 1000 == 0)
        write_whole(v / 1000, seconds, out);
    else if (units == quantity_time_ms && v < 1000)
        (void)snprintf(out, QUANTITY_TEXT, "%" PRIu64 "ms", v);
    else if (units == quantity_time_ms)
        write_thousandths(v, "s", out);
    else if (units == quantity_cpu_millis)
        write_thousandths(v, "", out);
    else
        (void)snprintf(out, QUANTITY_TEXT, "%" PRIu64, v);
    return out;
}

const char *
quantity_forms(const struct quantity_unit *units)
{
    if (units == quantity_bytes)
        return "a size, such as 4096, 64K, 256M or 1.5G";
    if (units == quantity_time_ms)
        return "a time, such as 300ms, 5s, 1.5m, 2h or 1d; without a unit it is in seconds";
    if (units == quantity_cpu_millis)
        return "a number of CPUs, such as 0.5 or 2";
    return "a whole number, such as 100, without a unit";
}

static bool
ends_with(const char *field, const char *end)
{
    size_t n = strlen(field), m = strlen(end);
    return n >= m && strcmp(field + n - m, end) == 0;
}

char *
quantity_show(const char *field, uint64_t value, char *out, size_t n)
{
    const struct quantity_unit *units = quantity_count;
    char text[QUANTITY_TEXT];
    if (ends_with(field, "_millis"))
        units = quantity_cpu_millis;
    else if (ends_with(field, "_ms"))
        units = quantity_time_ms;
    else if (ends_with(field, "_bytes") || ends_with(field, "bytes_max") ||
             ends_with(field, "_rate"))
        units = quantity_bytes;
    (void)snprintf(out, n, "%s", quantity_write(value, units, text));
    return out;
}
