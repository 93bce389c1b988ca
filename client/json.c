// SPDX-License-Identifier: Apache-2.0
// Messages as JSON (stockade.h, stockade_json). The only form of events, findings and records, generated from the
// schema, so that new fields are included automatically: names as in the .proto files, enums in lower case without
// their prefix, numbers as numbers, bytes as hex digits, times as RFC 3339 in UTC. Absent messages and unspecified enums are omitted.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "handout.h"
#include "stockade.h"

struct text {
    char *bytes; // owned
    size_t n, size;
    bool failed;
};

static void
put_n(struct text *o, const char *bytes, size_t n)
{
    if (!o->failed && o->n + n > o->size) {
        size_t size = 2 * (o->n + n) + 256;
        char *more = realloc(o->bytes, size);
        o->failed = more == NULL;
        o->bytes = more != NULL ? more : o->bytes;
        o->size = more != NULL ? size : o->size;
    }
    if (o->failed)
        return;
    memcpy(o->bytes + o->n, bytes, n);
    o->n += n;
}

static void
put(struct text *o, const char *text)
{
    put_n(o, text, strlen(text));
}

static void
put_string(struct text *o, const char *s)
{
    put(o, "\"");
    for (; *s != '\0'; s++) {
        char escaped[8];
        if (*s == '"' || *s == '\\')
            (void)snprintf(escaped, sizeof escaped, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s);
        else
            (void)snprintf(escaped, sizeof escaped, "%c", *s);
        put(o, escaped);
    }
    put(o, "\"");
}

// The largest integer that JSON readers accept; larger counters do not occur.
static void
put_number(struct text *o, uint64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof digits, "%" PRIu64, value > INT64_MAX ? INT64_MAX : value);
    put(o, digits);
}

static void
put_signed(struct text *o, int64_t value)
{
    char digits[32];
    (void)snprintf(digits, sizeof digits, "%" PRId64, value);
    put(o, digits);
}

// The shortest digits that give the same number.
static void
put_real(struct text *o, double value)
{
    char digits[40];
    if (!isfinite(value)) {
        put(o, "null");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
        double again = strtod(digits, NULL);
        if (!(again < value) && !(again > value))
            break;
    }
    put(o, digits);
    if (strpbrk(digits, ".e") == NULL)
        put(o, ".0");
}

// As protobuf formats it: with no, three, six or nine digits after the second.
static void
put_time(struct text *o, const Google__Protobuf__Timestamp *t)
{
    char text[64];
    struct tm tm;
    time_t seconds = t->seconds;
    size_t n = gmtime_r(&seconds, &tm) != NULL
                   ? strftime(text, sizeof text, "\"%Y-%m-%dT%H:%M:%S", &tm)
                   : 0;
    if (n == 0) {
        put(o, "null");
        return;
    }
    put_n(o, text, n);
    int32_t nanos = t->nanos >= 0 && t->nanos < 1000000000 ? t->nanos : 0;
    text[0] = '\0';
    if (nanos != 0 && nanos % 1000000 == 0)
        (void)snprintf(text, sizeof text, ".%03d", nanos / 1000000);
    else if (nanos != 0 && nanos % 1000 == 0)
        (void)snprintf(text, sizeof text, ".%06d", nanos / 1000);
    else if (nanos != 0)
        (void)snprintf(text, sizeof text, ".%09d", nanos);
    put(o, text);
    put(o, "Z\"");
}

static void
put_enum(struct text *o, const ProtobufCEnumDescriptor *type, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    const ProtobufCEnumValue *zero = protobuf_c_enum_descriptor_get_value(type, 0);
    size_t prefix = zero != NULL && strlen(zero->name) > strlen("UNSPECIFIED")
                        ? strlen(zero->name) - strlen("UNSPECIFIED")
                        : 0;
    char name[64];
    size_t n = 0;
    if (v == NULL || strlen(v->name) <= prefix) { // of a newer broker
        put_signed(o, value);
        return;
    }
    for (const char *c = v->name + prefix; *c != '\0' && n + 1 < sizeof name; c++)
        name[n++] = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    name[n] = '\0';
    put_string(o, name);
}

// Hashes, keys and signatures: hex digits.
static void
put_bytes(struct text *o, const ProtobufCBinaryData *bytes)
{
    put(o, "\"");
    for (size_t i = 0; i < bytes->len; i++) {
        char digits[3];
        (void)snprintf(digits, sizeof digits, "%02x", bytes->data[i]);
        put(o, digits);
    }
    put(o, "\"");
}

static void put_message(struct text *o, const ProtobufCMessage *m);

static void
put_value(struct text *o, const ProtobufCFieldDescriptor *f, const void *p)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        put_string(o, *(const char *const *)p);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        put_message(o, *(const ProtobufCMessage *const *)p);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        put_enum(o, f->descriptor, *(const int *)p);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        put(o, *(const protobuf_c_boolean *)p != 0 ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        put_number(o, *(const uint32_t *)p);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        put_number(o, *(const uint64_t *)p);
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        put_signed(o, *(const int32_t *)p);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        put_signed(o, *(const int64_t *)p);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        put_real(o, *(const double *)p);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        put_real(o, (double)*(const float *)p);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        put_bytes(o, p);
        break;
    default:
        put(o, "null");
    }
}

// A map is sent as a list of entries with a key and a value; in JSON it is an object.
static bool
is_map(const ProtobufCFieldDescriptor *f)
{
    const ProtobufCMessageDescriptor *of =
        f->type == PROTOBUF_C_TYPE_MESSAGE ? f->descriptor : NULL;
    size_t n = of != NULL ? strlen(of->short_name) : 0;
    return n > 5 && strcmp(of->short_name + n - 5, "Entry") == 0 && of->n_fields == 2 &&
           strcmp(of->fields[0].name, "key") == 0 && of->fields[0].type == PROTOBUF_C_TYPE_STRING;
}

static void
put_list(struct text *o, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    size_t n = *(const size_t *)(const void *)((const char *)m + f->quantifier_offset);
    const char *items = *(const char *const *)(const void *)((const char *)m + f->offset);
    bool map = is_map(f);
    put(o, map ? "{" : "[");
    for (size_t i = 0; i < n; i++) {
        const void *item = items + i * wire_element_bytes(f->type);
        put(o, i > 0 ? "," : "");
        if (!map) {
            put_value(o, f, item);
            continue;
        }
        const char *entry = *(const char *const *)item;
        const ProtobufCFieldDescriptor *pair =
            ((const ProtobufCMessageDescriptor *)f->descriptor)->fields;
        put_value(o, &pair[0], entry + pair[0].offset);
        put(o, ":");
        put_value(o, &pair[1], entry + pair[1].offset);
    }
    put(o, map ? "}" : "]");
}

static bool
is_there(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const void *p = (const char *)m + f->offset;
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        *(const uint32_t *)(const void *)((const char *)m + f->quantifier_offset) != f->id)
        return false;
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return true;
    if (f->type == PROTOBUF_C_TYPE_ENUM)
        return *(const int *)p != 0;
    return f->type != PROTOBUF_C_TYPE_MESSAGE || *(const void *const *)p != NULL;
}

static void
put_message(struct text *o, const ProtobufCMessage *m)
{
    if (m->descriptor == &google__protobuf__timestamp__descriptor) {
        put_time(o, (const Google__Protobuf__Timestamp *)m);
        return;
    }
    bool first = true;
    put(o, "{");
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        if (!is_there(m, f))
            continue;
        put(o, first ? "" : ",");
        put_string(o, f->name);
        put(o, ":");
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            put_list(o, m, f);
        else
            put_value(o, f, (const char *)m + f->offset);
        first = false;
    }
    put(o, "}");
}

const char *
stockade_json(const void *message)
{
    struct text o = {0};
    if (message == NULL)
        return NULL;
    put_message(&o, message);
    struct arena *a = o.failed ? NULL : arena_new(o.n + 4096);
    char *out = a != NULL ? hand_out(a, o.n + 1) : NULL;
    if (out != NULL)
        memcpy(out, o.bytes, o.n);
    else
        arena_free(a);
    free(o.bytes);
    return out;
}
