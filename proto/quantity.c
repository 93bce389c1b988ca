// SPDX-License-Identifier: Apache-2.0
// See quantity.h. No floating point: 0.1 must be exact, and 2^63 must not be rounded.
#include "quantity.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
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
