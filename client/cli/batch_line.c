// SPDX-License-Identifier: Apache-2.0
// See batch_line.h.
#include "batch_line.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

// A line that is being read.
struct reading {
    struct arena *arena;
    struct stockade_batch_job *job;
    char *why;
};

static bool
refuse(struct reading *r, const char *what, const char *expected)
{
    (void)snprintf(r->why, BATCH_WHY_MAX, "%.100s: expected %s", what, expected);
    return false;
}

static bool
full(struct reading *r)
{
    (void)snprintf(r->why, BATCH_WHY_MAX, "the job is too large");
    return false;
}

static bool
copy(struct reading *r, const json_t *value, const char *name, const char **out)
{
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
        return refuse(r, name, "text without NUL");
    *out = arena_copy(r->arena, json_string_value(value), json_string_length(value));
    return *out != NULL || full(r);
}

static bool
read_args(struct reading *r, const char *name, const json_t *value)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n == 0)
        return refuse(r, name, "a list of texts: the program and its arguments");
    const char **args = arena_alloc(r->arena, (n + 1) * sizeof *args);
    if (args == NULL)
        return full(r);
    for (size_t i = 0; i < n; i++)
        if (!copy(r, json_array_get(value, i), name, &args[i]))
            return false;
    args[n] = NULL;
    r->job->command.args = args;
    return true;
}

static bool
read_key(struct reading *r, const char *name, const json_t *value)
{
    return copy(r, value, name, &r->job->key);
}

static bool
read_workdir(struct reading *r, const char *name, const json_t *value)
{
    return copy(r, value, name, &r->job->command.workdir);
}

static bool
read_stdin(struct reading *r, const char *name, const json_t *value)
{
    struct stockade_command *c = &r->job->command;
    if (!json_is_string(value))
        return refuse(r, name, "text");
    c->stdin_n = json_string_length(value);
    c->stdin_bytes = arena_copy(r->arena, json_string_value(value), c->stdin_n);
    return c->stdin_bytes != NULL || full(r);
}

static int
digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static bool
read_base64(struct reading *r, const char *name, const json_t *value)
{
    struct stockade_command *c = &r->job->command;
    const char *text = json_string_value(value);
    size_t n = text != NULL ? strlen(text) : 0;
    uint32_t bits = 0;
    unsigned have = 0;
    if (text == NULL || n % 4 != 0)
        return refuse(r, name, "base64");
    for (int i = 0; i < 2 && n > 0 && text[n - 1] == '='; i++)
        n--;
    uint8_t *to = arena_alloc(r->arena, n + 1);
    if (to == NULL)
        return full(r);
    c->stdin_bytes = to;
    c->stdin_n = 0;
    for (size_t i = 0; i < n; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return refuse(r, name, "base64");
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            to[c->stdin_n++] = (uint8_t)(bits >> have);
        }
    }
    return true;
}

static bool
read_env(struct reading *r, const char *name, const json_t *value)
{
    struct stockade_command *c = &r->job->command;
    size_t n = json_object_size(value);
    if (!json_is_object(value))
        return refuse(r, name, "an object of texts");
    struct stockade_pair *env = arena_alloc(r->arena, (n + 1) * sizeof *env);
    if (env == NULL)
        return full(r);
    c->env = env;
    c->env_n = 0;
    for (void *it = json_object_iter((json_t *)(uintptr_t)value); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)value, it)) {
        const char *key = json_object_iter_key(it);
        struct stockade_pair *pair = &env[c->env_n++];
        pair->name = arena_copy(r->arena, key, strlen(key));
        if (pair->name == NULL)
            return full(r);
        if (!copy(r, json_object_iter_value(it), name, &pair->value))
            return false;
    }
    return true;
}

// Named as in the message, which has 32 bits for some.
#define NARROW(name)                                                                               \
    {                                                                                              \
#name, offsetof(struct stockade_limits, name), UINT32_MAX                                  \
    }
#define WIDE(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct stockade_limits, name), INT64_MAX                                   \
    }
static const struct limit_name {
    const char *name;
    size_t offset;
    int64_t most;
} limit_names[] = {
    WIDE(memory_bytes), NARROW(cpu_millis), NARROW(cpu_weight), WIDE(cpu_time_ms),
    WIDE(wall_ms),      NARROW(pids),       NARROW(files),      WIDE(file_size_bytes),
    WIDE(disk_bytes),   NARROW(inodes),     WIDE(output_bytes),
};
_Static_assert(sizeof limit_names / sizeof limit_names[0] ==
                   sizeof(struct stockade_limits) / sizeof(uint64_t),
               "a name for each limit");

static const struct limit_name *
find_limit(const char *name)
{
    for (size_t i = 0; i < sizeof limit_names / sizeof limit_names[0]; i++)
        if (strcmp(limit_names[i].name, name) == 0)
            return &limit_names[i];
    return NULL;
}

static bool
read_limits(struct reading *r, const char *name, const json_t *value)
{
    if (!json_is_object(value))
        return refuse(r, name, "an object of numbers, such as {\"wall_ms\": 1000}");
    for (void *it = json_object_iter((json_t *)(uintptr_t)value); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)value, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *one = json_object_iter_value(it);
        const struct limit_name *limit = find_limit(key);
        json_int_t n = json_integer_value(one);
        if (limit == NULL)
            return refuse(r, key, "the name of a limit, such as wall_ms or memory_bytes");
        if (!json_is_integer(one) || n <= 0 || n > limit->most)
            return refuse(r, key, "a whole number above 0");
        *(uint64_t *)(void *)((char *)&r->job->limits + limit->offset) = (uint64_t)n;
    }
    return true;
}

static const struct member {
    const char *name;
    bool (*read)(struct reading *r, const char *name, const json_t *value);
} members[] = {
    {"args", read_args},     {"key", read_key},         {"stdin", read_stdin},
    {"env", read_env},       {"workdir", read_workdir}, {"stdin_base64", read_base64},
    {"limits", read_limits},
};

static bool
read_member(struct reading *r, const char *name, const json_t *value)
{
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp(members[i].name, name) == 0)
            return members[i].read(r, name, value);
    return refuse(r, name, "args, key, stdin, stdin_base64, env, workdir or limits");
}

static bool
read_job(struct reading *r, const json_t *root)
{
    if (json_is_array(root))
        return read_args(r, "the line", root);
    if (!json_is_object(root))
        return refuse(r, "the line", "a list of arguments, or an object with \"args\"");
    for (void *it = json_object_iter((json_t *)(uintptr_t)root); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)root, it))
        if (!read_member(r, json_object_iter_key(it), json_object_iter_value(it)))
            return false;
    return r->job->command.args != NULL ||
           refuse(r, "args", "a list of texts: the program and its arguments");
}

bool
batch_line_read(const char *line, size_t n, struct arena *a, struct stockade_batch_job *out,
                char why[BATCH_WHY_MAX])
{
    struct reading r = {.arena = a, .job = out, .why = why};
    json_error_t e;
    json_t *root =
        json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (root == NULL) {
        (void)snprintf(why, BATCH_WHY_MAX, "not JSON: %.150s (column %d)", e.text, e.column);
        return false;
    }
    *out = (struct stockade_batch_job){0};
    bool whole = read_job(&r, root);
    json_decref(root);
    return whole;
}
