// SPDX-License-Identifier: Apache-2.0
// See yaml_message.h. The maps of protobuf are lists of messages with the fields key and value.
#include "yaml_message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"
#include "wire.h"
#include "words.h"

enum { FIELDS_MAX = 64 };

struct reading {
    const char *name; // of the file
    struct arena *a;
    struct err *e;
};

static int fail(const struct reading *r, const struct yaml_node *n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
fail(const struct reading *r, const struct yaml_node *n, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return err_set(r->e, ERR_INVALID_ARGUMENT, "%s:%u:%u: %s%s%s", r->name, n->line, n->column,
                   n->key != NULL ? n->key : "", n->key != NULL ? ": " : "", what);
}

static int
no_memory(const struct reading *r)
{
    return err_sys(r->e, ENOMEM, "read %s", r->name);
}

// ---- one value

static int
read_number(const struct reading *r, const struct yaml_node *n, uint64_t most, uint64_t *out)
{
    char *end = NULL;
    if (n->kind != YAML_TEXT || n->text[0] < '0' || n->text[0] > '9')
        return fail(r, n, "must be a number");
    errno = 0;
    *out = strtoull(n->text, &end, 10);
    if (errno != 0 || *end != '\0' || *out > most)
        return fail(r, n, "must be a number up to %llu", (unsigned long long)most);
    return 0;
}

static int read_map(const struct reading *r, const struct yaml_node *n,
                    const ProtobufCMessageDescriptor *type, ProtobufCMessage **out);

// The values of an enum as words: POLICY_VERDICT_DENY of PolicyVerdict is "deny". The one with the number 0 names no word; it begins
// with what all begin with.
static int
read_enum(const struct reading *r, const struct yaml_node *n, const ProtobufCEnumDescriptor *type,
          uint32_t *out)
{
    static const char none[] = "UNSPECIFIED";
    char all[200] = "", word[64];
    size_t used = 0;
    const size_t prefix = strlen(type->values[0].name) - (sizeof none - 1);
    for (unsigned i = 1; i < type->n_values; i++) {
        size_t k = 0;
        for (const char *p = type->values[i].name + prefix; *p != '\0' && k + 1 < sizeof word; p++)
            word[k++] = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
        word[k] = '\0';
        if (n->kind == YAML_TEXT && strcmp(word, n->text) == 0) {
            *out = (uint32_t)type->values[i].value;
            return 0;
        }
        const char *between = i == 1 ? "" : i + 1 == type->n_values ? " or " : ", ";
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", between, word);
    }
    return fail(r, n, "must be %s", all);
}

// Stores a value at `to`, which has the type of the field. Other types are not in the definitions that are read.
static int
read_value(const struct reading *r, const struct yaml_node *n, const ProtobufCFieldDescriptor *f,
           void *to)
{
    uint64_t number = 0;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return read_map(r, n, f->descriptor, to);
    if (f->type == PROTOBUF_C_TYPE_STRING) {
        if (n->kind != YAML_TEXT)
            return fail(r, n, "must be a text");
        *(const char **)to = n->text;
        return 0;
    }
    if (f->type == PROTOBUF_C_TYPE_BOOL) {
        if (n->kind != YAML_TEXT || (strcmp(n->text, "true") != 0 && strcmp(n->text, "false") != 0))
            return fail(r, n, "must be true or false");
        *(protobuf_c_boolean *)to = n->text[0] == 't';
        return 0;
    }
    if (f->type == PROTOBUF_C_TYPE_ENUM)
        return read_enum(r, n, f->descriptor, to);
    const bool wide = f->type == PROTOBUF_C_TYPE_UINT64;
    int rc = read_number(r, n, wide ? UINT64_MAX : UINT32_MAX, &number);
    if (rc == 0 && wide)
        *(uint64_t *)to = number;
    else if (rc == 0)
        *(uint32_t *)to = (uint32_t)number;
    return rc;
}

// ---- several

static size_t
count(const struct yaml_node *n)
{
    size_t children = 0;
    for (const struct yaml_node *it = n->child; it != NULL; it = it->next)
        children++;
    return children;
}

static bool
is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *entry =
        f->type == PROTOBUF_C_TYPE_MESSAGE ? f->descriptor : NULL;
    return entry != NULL && entry->n_fields == 2 && strcmp(entry->fields[0].name, "key") == 0 &&
           strcmp(entry->fields[1].name, "value") == 0;
}

static int
read_entry(const struct reading *r, const struct yaml_node *n, const ProtobufCFieldDescriptor *f,
           void *to)
{
    const ProtobufCMessageDescriptor *type = f->descriptor;
    ProtobufCMessage *entry = wire_make(r->a, type);
    if (entry == NULL)
        return no_memory(r);
    memcpy((char *)entry + type->fields[0].offset, &n->key, sizeof n->key);
    *(ProtobufCMessage **)to = entry;
    return read_value(r, n, &type->fields[1], (char *)entry + type->fields[1].offset);
}

// Of a value in a list.
static size_t
size_of(const ProtobufCFieldDescriptor *f)
{
    switch ((int)f->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_UINT32:
        return sizeof(uint32_t);
    default: // a pointer, or 64 bits
        return sizeof(uint64_t);
    }
}

static int
read_list(const struct reading *r, const struct yaml_node *n, const ProtobufCFieldDescriptor *f,
          ProtobufCMessage *m)
{
    const bool map = is_map(f);
    const size_t children = count(n);
    if (n->kind != (map ? YAML_MAP : YAML_LIST))
        return fail(r, n, map ? "must be a mapping of names and texts" : "must be a list");
    // Of pointers, or numbers.
    char *all = arena_alloc(r->a, (children + 1) * sizeof(uint64_t));
    const size_t each = size_of(f);
    size_t i = 0;
    int rc = all == NULL ? no_memory(r) : 0;
    for (const struct yaml_node *it = n->child; it != NULL && rc == 0; it = it->next) {
        void *to = all + i++ * each;
        rc = map ? read_entry(r, it, f, to) : read_value(r, it, f, to);
    }
    memcpy((char *)m + f->offset, (const void *)&all, sizeof(void *));
    memcpy((char *)m + f->quantifier_offset, &i, sizeof i);
    return rc;
}

// ---- a message

static int
no_such_key(const struct reading *r, const struct yaml_node *n,
            const ProtobufCMessageDescriptor *type)
{
    const char *names[FIELDS_MAX];
    size_t names_n = 0;
    for (; names_n < type->n_fields && names_n < FIELDS_MAX; names_n++)
        names[names_n] = type->fields[names_n].name;
    const char *near = words_nearest(n->key, names, names_n);
    return near != NULL ? fail(r, n, "there is no such key; did you mean %s?", near)
                        : fail(r, n, "there is no such key");
}

// The tree has no mapping with a key twice.
static int
read_map(const struct reading *r, const struct yaml_node *n, const ProtobufCMessageDescriptor *type,
         ProtobufCMessage **out)
{
    struct err why;
    int rc = 0;
    if (n->kind != YAML_MAP)
        return fail(r, n, "must be a mapping");
    ProtobufCMessage *m = wire_make(r->a, type);
    if (m == NULL)
        return no_memory(r);
    for (const struct yaml_node *it = n->child; it != NULL && rc == 0; it = it->next) {
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(type, it->key);
        if (f == NULL)
            rc = no_such_key(r, it, type);
        else if (f->label == PROTOBUF_C_LABEL_REPEATED)
            rc = read_list(r, it, f, m);
        else
            rc = read_value(r, it, f, (char *)m + f->offset);
    }
    if (rc == 0 && validate_message(m, &why) < 0)
        rc = fail(r, n, "%s", why.text);
    *out = m;
    return rc;
}

int
yaml_message(const char *name, const struct yaml_node *n, const ProtobufCMessageDescriptor *type,
             struct arena *a, ProtobufCMessage **out, struct err *e)
{
    const struct reading r = {name, a, e};
    return read_map(&r, n, type, out);
}
