// SPDX-License-Identifier: Apache-2.0
// See batch_line.h.
#include "batch_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/wire.h"

// A line that is being read.
struct reading {
    struct arena *arena;
    Stockade__V1__BatchJob *job;
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
    Stockade__V1__Command *c = r->job->command;
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n == 0)
        return refuse(r, name, "a list of texts: the program and its arguments");
    c->args = arena_alloc(r->arena, n * sizeof *c->args);
    if (c->args == NULL)
        return full(r);
    for (c->n_args = 0; c->n_args < n; c->n_args++)
        if (!copy(r, json_array_get(value, c->n_args), name, &c->args[c->n_args]))
            return false;
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
    return copy(r, value, name, &r->job->command->workdir);
}

static bool
read_stdin(struct reading *r, const char *name, const json_t *value)
{
    ProtobufCBinaryData *to = &r->job->command->stdin;
    if (!json_is_string(value))
        return refuse(r, name, "text");
    to->len = json_string_length(value);
    to->data = (uint8_t *)arena_copy(r->arena, json_string_value(value), to->len);
    return to->data != NULL || full(r);
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
    ProtobufCBinaryData *to = &r->job->command->stdin;
    const char *text = json_string_value(value);
    size_t n = text != NULL ? strlen(text) : 0;
    uint32_t bits = 0;
    unsigned have = 0;
    if (text == NULL || n % 4 != 0)
        return refuse(r, name, "base64");
    for (int i = 0; i < 2 && n > 0 && text[n - 1] == '='; i++)
        n--;
    to->data = arena_alloc(r->arena, n + 1);
    if (to->data == NULL)
        return full(r);
    for (size_t i = 0; i < n; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return refuse(r, name, "base64");
        bits = bits << 6 | (uint32_t)d;
        have += 6;
        if (have >= 8) {
            have -= 8;
            to->data[to->len++] = (uint8_t)(bits >> have);
        }
    }
    return true;
}

static bool
read_env(struct reading *r, const char *name, const json_t *value)
{
    Stockade__V1__Command *c = r->job->command;
    size_t n = json_object_size(value);
    const char *key = NULL;
    const json_t *one = NULL;
    if (!json_is_object(value))
        return refuse(r, name, "an object of texts");
    c->env = arena_alloc(r->arena, (n + 1) * sizeof(void *));
    if (c->env == NULL)
        return full(r);
    for (void *it = json_object_iter((json_t *)(uintptr_t)value); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)value, it)) {
        Stockade__V1__EnvironmentVariable *v =
            wire_make(r->arena, &stockade__v1__environment_variable__descriptor);
        key = json_object_iter_key(it);
        one = json_object_iter_value(it);
        if (v == NULL)
            return full(r);
        v->name = arena_copy(r->arena, key, strlen(key));
        if (v->name == NULL)
            return full(r);
        if (!copy(r, one, name, &v->value))
            return false;
        c->env[c->n_env++] = v;
    }
    return true;
}

// The names are those of the message.
static bool
read_limits(struct reading *r, const char *name, const json_t *value)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__limits__descriptor;
    Stockade__V1__Limits *l = wire_make(r->arena, type);
    if (l == NULL)
        return full(r);
    if (!json_is_object(value))
        return refuse(r, name, "an object of numbers, such as {\"wall_ms\": 1000}");
    for (void *it = json_object_iter((json_t *)(uintptr_t)value); it != NULL;
         it = json_object_iter_next((json_t *)(uintptr_t)value, it)) {
        const char *key = json_object_iter_key(it);
        const json_t *one = json_object_iter_value(it);
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(type, key);
        json_int_t n = json_integer_value(one);
        if (f == NULL)
            return refuse(r, key, "the name of a limit, such as wall_ms or memory_bytes");
        if (!json_is_integer(one) || n <= 0 ||
            (f->type == PROTOBUF_C_TYPE_UINT32 && n > UINT32_MAX))
            return refuse(r, key, "a whole number above 0");
        if (f->type == PROTOBUF_C_TYPE_UINT32)
            *(uint32_t *)(void *)((char *)l + f->offset) = (uint32_t)n;
        else
            *(uint64_t *)(void *)((char *)l + f->offset) = (uint64_t)n;
    }
    r->job->limits = l;
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
    return r->job->command->n_args > 0 ||
           refuse(r, "args", "a list of texts: the program and its arguments");
}

Stockade__V1__BatchJob *
batch_line_read(const char *line, size_t n, struct arena *a, char why[BATCH_WHY_MAX])
{
    struct reading r = {.arena = a, .why = why};
    json_error_t e;
    json_t *root =
        json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (root == NULL) {
        (void)snprintf(why, BATCH_WHY_MAX, "not JSON: %.150s (column %d)", e.text, e.column);
        return NULL;
    }
    r.job = wire_make(a, &stockade__v1__batch_job__descriptor);
    if (r.job != NULL)
        r.job->command = wire_make(a, &stockade__v1__command__descriptor);
    bool whole = r.job != NULL && r.job->command != NULL ? read_job(&r, root) : full(&r);
    json_decref(root);
    return whole ? r.job : NULL;
}
