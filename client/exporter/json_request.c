// SPDX-License-Identifier: Apache-2.0
// See json_request.h. Messages of the schema are not recursive, so the depth is bounded by their types.
#include "json_request.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "proto/wire.h"

struct reading {
    struct arena *a;
    struct err *e;
};

static int
fail(const struct reading *r, const ProtobufCFieldDescriptor *f, const char *what)
{
    return err_field(r->e, f->name, "must be %s", what);
}

static int
no_memory(const struct reading *r)
{
    return err_sys(r->e, ENOMEM, "read the request");
}

// ---- One value

static int
read_number(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    const json_int_t n = json_integer_value(v);
    const bool wide = f->type == PROTOBUF_C_TYPE_UINT64;
    if (!json_is_integer(v) || n < 0 || (!wide && n > (json_int_t)UINT32_MAX))
        return fail(r, f, "a whole number that is not negative");
    if (wide)
        *(uint64_t *)to = (uint64_t)n;
    else
        *(uint32_t *)to = (uint32_t)n;
    return 0;
}

// "pending" of APPROVAL_STATE_PENDING: what all values begin with ends before the name of the first, UNSPECIFIED.
static int
read_enum(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    static const char none[] = "UNSPECIFIED";
    const ProtobufCEnumDescriptor *type = f->descriptor;
    const char *word = json_string_value(v), *first = type->values[0].name;
    const size_t prefix = strlen(first) >= sizeof none ? strlen(first) - (sizeof none - 1) : 0;
    for (unsigned i = 0; word != NULL && i < type->n_values; i++)
        if (strlen(type->values[i].name) > prefix &&
            strcasecmp(type->values[i].name + prefix, word) == 0) {
            *(int *)to = type->values[i].value;
            return 0;
        }
    return fail(r, f, "one of the words of the schema");
}

static int
read_text(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    if (!json_is_string(v))
        return fail(r, f, "a text");
    char *copy = arena_copy(r->a, json_string_value(v), json_string_length(v));
    if (copy == NULL)
        return no_memory(r);
    *(char **)to = copy;
    return 0;
}

static int
digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int
read_bytes(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    const char *text = json_string_value(v);
    const size_t n = text != NULL ? strlen(text) : 1;
    if (n % 2 != 0)
        return fail(r, f, "hex digits");
    ProtobufCBinaryData b = {.len = n / 2, .data = arena_alloc(r->a, n / 2 + 1)};
    if (b.data == NULL)
        return no_memory(r);
    for (size_t i = 0; i < b.len; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return fail(r, f, "hex digits");
        b.data[i] = (uint8_t)(high * 16 + low);
    }
    *(ProtobufCBinaryData *)to = b;
    return 0;
}

static int read_message(const struct reading *r, const json_t *o,
                        const ProtobufCMessageDescriptor *type, ProtobufCMessage **out);

static int
read_flag(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    if (!json_is_boolean(v))
        return fail(r, f, "true or false");
    *(protobuf_c_boolean *)to = json_is_true(v);
    return 0;
}

static int
read_object(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
    return read_message(r, v, f->descriptor, to);
}

// The types of fields that are read, and what one value takes.
static const struct kind {
    ProtobufCType type;
    size_t size;
    int (*read)(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v,
                void *to);
} kinds[] = {
    {PROTOBUF_C_TYPE_UINT32, sizeof(uint32_t), read_number},
    {PROTOBUF_C_TYPE_UINT64, sizeof(uint64_t), read_number},
    {PROTOBUF_C_TYPE_BOOL, sizeof(protobuf_c_boolean), read_flag},
    {PROTOBUF_C_TYPE_ENUM, sizeof(int), read_enum},
    {PROTOBUF_C_TYPE_STRING, sizeof(char *), read_text},
    {PROTOBUF_C_TYPE_BYTES, sizeof(ProtobufCBinaryData), read_bytes},
    {PROTOBUF_C_TYPE_MESSAGE, sizeof(ProtobufCMessage *), read_object},
};

// NULL: a type that is not read, or a member of a oneof, where a further field says which one is set.
static const struct kind *
kind_of(const ProtobufCFieldDescriptor *f)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].type == f->type && (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0)
            return &kinds[i];
    return NULL;
}

// ---- Several

static int
read_list(const struct reading *r, const ProtobufCFieldDescriptor *f, const struct kind *kind,
          const json_t *v, ProtobufCMessage *m)
{
    const size_t n = json_array_size(v), size = kind->size;
    if (!json_is_array(v))
        return fail(r, f, "a list");
    char *items = arena_alloc(r->a, (n + 1) * size);
    if (items == NULL)
        return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        int rc = kind->read(r, f, json_array_get(v, i), items + i * size);
        if (rc < 0)
            return rc;
    }
    memcpy((char *)m + f->offset, (const void *)&items, sizeof(void *));
    memcpy((char *)m + f->quantifier_offset, &n, sizeof n);
    return 0;
}

static int
read_field(const struct reading *r, const ProtobufCFieldDescriptor *f, const json_t *v,
           ProtobufCMessage *m)
{
    const struct kind *kind = kind_of(f);
    if (kind == NULL)
        return fail(r, f, "left out: it cannot be given in JSON");
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return read_list(r, f, kind, v, m);
    return kind->read(r, f, v, (char *)m + f->offset);
}

static int
read_message(const struct reading *r, const json_t *o, const ProtobufCMessageDescriptor *type,
             ProtobufCMessage **out)
{
    const char *key = NULL;
    json_t *v = NULL;
    if (!json_is_object(o))
        return err_set(r->e, ERR_INVALID_ARGUMENT, "%s must be an object", type->short_name);
    ProtobufCMessage *m = wire_make(r->a, type);
    if (m == NULL)
        return no_memory(r);
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(type, key);
        if (f == NULL)
            return err_field(r->e, key, "%s has no such field", type->short_name);
        int rc = read_field(r, f, v, m);
        if (rc < 0)
            return rc;
    }
    *out = m;
    return 0;
}

int
json_request(const char *text, size_t n, const ProtobufCMessageDescriptor *type, struct arena *a,
             ProtobufCMessage **out, struct err *e)
{
    const struct reading r = {a, e};
    json_error_t why;
    if (n == 0) {
        *out = wire_make(a, type);
        return *out != NULL ? 0 : no_memory(&r);
    }
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (o == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "the body is no JSON: line %d: %s", why.line,
                       why.text);
    int rc = read_message(&r, o, type, out);
    json_decref(o);
    return rc;
}
