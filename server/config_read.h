// How a value of the configuration file becomes a field of a struct: the plain kinds of values, for tables of keys.
// For config_keys.c and the files beside it that read a section of their own.
#pragma once

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/err.h"
#include "config.h"
#include "yaml_tree.h"

struct reader {
    const char *name; // of the file
    struct err *e;
};

struct key;
typedef int read_fn(const struct reader *r, const struct key *k, struct yaml_node *n, void *to);

// One key of a mapping. What `to` points to is the struct that the mapping fills; `offset` is the field in it.
struct key {
    const char *name;
    read_fn *read;
    size_t offset;
    size_t size;            // TEXT: of the buffer; numbers: 4 or 8
    uint64_t min, max;      // numbers
    const struct key *keys; // MAP
};

static inline int fail(const struct reader *r, const struct yaml_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline int
fail(const struct reader *r, const struct yaml_node *n, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    (void)err_set(r->e, ERR_INVALID_ARGUMENT, "%s:%u:%u: %s%s%s", r->name, n->line, n->column,
                  n->key != NULL ? n->key : "", n->key != NULL ? ": " : "", what);
    return -EINVAL;
}

static inline void *
field(const struct key *k, void *to)
{
    assert(to != NULL);
    return (char *)to + k->offset;
}

static inline int
read_map(const struct reader *r, const struct key *keys, struct yaml_node *map, void *to)
{
    if (map->kind != YAML_MAP)
        return fail(r, map, "must be a mapping of keys to values");
    for (struct yaml_node *n = map->child; n != NULL; n = n->next) {
        const struct key *k = keys;
        while (k->name != NULL && strcmp(k->name, n->key) != 0)
            k++;
        if (k->name == NULL)
            return fail(r, n, "there is no such key");
        int err = k->read(r, k, n, to);
        if (err < 0)
            return err;
    }
    return 0;
}

static inline int
read_section(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    return read_map(r, k->keys, n, field(k, to));
}

static inline int
text_of(const struct reader *r, const struct yaml_node *n, const char **out)
{
    if (n->kind != YAML_TEXT)
        return fail(r, n, "must be one value");
    *out = n->text;
    return 0;
}

static inline int
read_text(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    const char *text = NULL;
    int err = text_of(r, n, &text);
    if (err < 0)
        return err;
    assert(text != NULL);
    if (strlen(text) >= k->size)
        return fail(r, n, "longer than %zu bytes", k->size - 1);
    (void)snprintf(field(k, to), k->size, "%s", text);
    return 0;
}

static inline int
read_path(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    if (n->kind != YAML_TEXT || n->text[0] != '/' || strstr(n->text, "/..") != NULL)
        return fail(r, n, "must be an absolute path without \"..\"");
    return read_text(r, k, n, to);
}

// Letters, digits, '.', '_' and '-', as template names and host names have them.
static inline int
read_name(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    if (n->kind != YAML_TEXT || n->text[0] == '\0' || n->text[0] == '-' || n->text[0] == '.' ||
        n->text[strspn(n->text, allowed)] != '\0')
        return fail(r, n, "must be lower-case letters, digits, '.', '_' and '-'");
    return read_text(r, k, n, to);
}

struct suffix {
    const char *name;
    uint64_t factor;
};
#define SECOND UINT64_C(1000)

static const struct suffix none[] = {{"", 1}, {NULL, 0}};
static const struct suffix sizes[] = {
    {"", 1},
    {"K", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
    {NULL, 0},
};
static const struct suffix times[] = {
    {"", 1},
    {"ms", 1},
    {"s", SECOND},
    {"m", 60 * SECOND},
    {"h", 3600 * SECOND},
    {"d", 86400 * SECOND},
    {NULL, 0},
};

static inline int
number_of(const struct reader *r, const struct yaml_node *n, const struct suffix *suffixes,
          uint64_t min, uint64_t max, uint64_t *out)
{
    if (n->kind != YAML_TEXT || n->text[0] < '0' || n->text[0] > '9')
        return fail(r, n, "must be a number");
    char *end = NULL;
    errno = 0;
    uint64_t v = strtoull(n->text, &end, 10);
    while (suffixes->name != NULL && strcmp(end, suffixes->name) != 0)
        suffixes++;
    if (errno != 0 || suffixes->name == NULL)
        return fail(r, n, "\"%.40s\" is no number that is understood here", n->text);
    if (__builtin_mul_overflow(v, suffixes->factor, &v) || v < min || v > max)
        return fail(r, n, "must be from %" PRIu64 " to %" PRIu64, min, max);
    *out = v;
    return 0;
}

static inline void
store(const struct key *k, void *to, uint64_t v)
{
    assert(k->size == 4 || k->size == 8);
    if (k->size == 4)
        *(uint32_t *)field(k, to) = (uint32_t)v;
    else
        *(uint64_t *)field(k, to) = v;
}

static inline int
read_count(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint64_t v = 0;
    int err = number_of(r, n, none, k->min, k->max, &v);
    if (err == 0)
        store(k, to, v);
    return err;
}

static inline int
read_size(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint64_t v = 0;
    int err = number_of(r, n, sizes, k->min, k->max, &v);
    if (err == 0)
        store(k, to, v);
    return err;
}

static inline int
read_ms(const struct reader *r, const struct key *k, struct yaml_node *n, void *to)
{
    uint64_t v = 0;
    int err = number_of(r, n, times, k->min, k->max, &v);
    if (err == 0)
        store(k, to, v);
    return err;
}

#define AT(type, member) offsetof(struct type, member), sizeof(((struct type *)0)->member)
#define SECTION(name, keys)                                                                        \
    {                                                                                              \
        name, read_section, 0, 0, 0, 0, keys                                                       \
    }

// config_anomaly.c: the section "anomalies", of the host (struct config) or of a template (struct config_template).
extern const struct key config_anomaly_keys[];
