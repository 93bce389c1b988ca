// See cli_units.h. No floating point on the way in: 0.1 has to be exact, and 2^63 must not be rounded.
#include "cli_units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *suffix;
    uint64_t factor;
};

static const struct unit bytes_units[] = {
    {"", 1},
    {"B", 1},
    {"K", 1ull << 10},
    {"KB", 1ull << 10},
    {"KiB", 1ull << 10},
    {"M", 1ull << 20},
    {"MB", 1ull << 20},
    {"MiB", 1ull << 20},
    {"G", 1ull << 30},
    {"GB", 1ull << 30},
    {"GiB", 1ull << 30},
    {"T", 1ull << 40},
    {"TB", 1ull << 40},
    {"TiB", 1ull << 40},
    {0},
};

static const struct unit duration_units[] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {0},
};

static const struct unit cpu_units[] = {{"", 1000}, {0}};

static const struct unit count_units[] = {{"", 1}, {0}};

static const struct unit *
find_unit(const struct unit *units, const char *suffix)
{
    for (const struct unit *u = units; u->suffix != NULL; u++)
        if (strcasecmp(u->suffix, suffix) == 0)
            return u;
    return NULL;
}

// Adds the digits behind the point: each is worth a tenth of the one before. What is below one unit is dropped.
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

static int
read_number(const char *text, const struct unit *units, bool fraction, uint64_t *out)
{
    const char *end = text + strspn(text, "0123456789.");
    const struct unit *u = find_unit(units, end);
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
    if (*p == '.' && fraction && isdigit((unsigned char)p[1]))
        p = read_fraction(p + 1, u->factor, &value);
    if (p != end)
        return -EINVAL;
    if (value == 0)
        return -ERANGE;
    *out = value;
    return 0;
}

int
units_bytes(const char *text, uint64_t *out)
{
    return read_number(text, bytes_units, true, out);
}

int
units_duration_ms(const char *text, uint64_t *out)
{
    return read_number(text, duration_units, true, out);
}

int
units_cpu_millis(const char *text, uint64_t *out)
{
    return read_number(text, cpu_units, true, out);
}

int
units_count(const char *text, uint64_t *out)
{
    return read_number(text, count_units, false, out);
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
    else if (s < 7200)
        (void)snprintf(out, n, "%" PRId64 "m", (s + 30) / 60);
    else if (s < 172800)
        (void)snprintf(out, n, "%" PRId64 "h", (s + 1800) / 3600);
    else
        (void)snprintf(out, n, "%" PRId64 "d", s / 86400);
    return out;
}
