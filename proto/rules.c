// SPDX-License-Identifier: Apache-2.0
// See rules.h. The set is unpacked into an arena that also contains the tables, so one free releases everything. For
// protobuf-c the custom options are unknown fields of MethodOptions and FieldOptions; they are unpacked in a second
// step with the descriptors of their own messages.
#include "rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "google/protobuf/descriptor.pb-c.h"
#include "stockade/v1/options.pb-c.h"

#include "arena.h"
#include "wire.h"

enum {
    ARENA_BYTES_MAX = 64 * 1024 * 1024,
    OPTION_METHOD = 51001, // options.proto
    OPTION_FIELD = 51002,
    MESSAGE_DEPTH_MAX = 16, // messages defined within messages
    NAME_BYTES_MAX = 256,
};

typedef Google__Protobuf__FileDescriptorSet set_pb;
typedef Google__Protobuf__FileDescriptorProto file_pb;
typedef Google__Protobuf__DescriptorProto message_pb;
typedef Google__Protobuf__FieldDescriptorProto field_pb;
typedef Google__Protobuf__MethodDescriptorProto method_pb;

struct rules {
    struct arena *arena;
    struct message_rules *messages;
    struct method_rules *methods;
    size_t messages_n, methods_n;
    size_t messages_room, methods_room;
};

// The field that is being read, for error messages.
struct where {
    const char *message;
    const field_pb *field;
};

// A name for messages, which may be missing in another schema.
static const char *
known(const char *name)
{
    return name != NULL ? name : "";
}

static int
refuse(const struct where *w, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s.%s: %s", w->message, known(w->field->name), what);
}

static int
no_memory(struct err *e)
{
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "read the rules: more than their share of memory");
}

// Unpacks the custom option `number` from the unknown fields of an options message; *out stays NULL if there is none.
static int
custom_option(struct rules *r, const ProtobufCMessage *options, uint32_t number,
              const ProtobufCMessageDescriptor *type, ProtobufCMessage **out, struct err *e)
{
    for (unsigned i = 0; options != NULL && i < options->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *u = &options->unknown_fields[i];
        if (u->tag != number || u->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
            continue;
        // protobuf-c stores the length before the bytes
        size_t skip = 0;
        while (skip < u->len && (u->data[skip] & 0x80) != 0)
            skip++;
        if (skip == u->len)
            return err_set(e, ERR_INVALID_ARGUMENT, "option %u is truncated", (unsigned)number);
        skip++;
        return wire_unpack(type, u->data + skip, u->len - skip, r->arena, out, e);
    }
    return 0;
}

static const message_pb *
map_entry_of(const message_pb *holder, const field_pb *field)
{
    if (field->type != GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_MESSAGE ||
        field->type_name == NULL)
        return NULL;
    const char *dot = strrchr(field->type_name, '.');
    const char *name = dot != NULL ? dot + 1 : field->type_name;
    for (size_t i = 0; i < holder->n_nested_type; i++) {
        const message_pb *m = holder->nested_type[i];
        if (strcmp(known(m->name), name) == 0 && m->options != NULL && m->options->map_entry &&
            m->n_field == 2)
            return m;
    }
    return NULL;
}

static bool
is_text(const field_pb *f)
{
    return f->type == GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_STRING;
}

static bool
is_text_or_bytes(const field_pb *f)
{
    return is_text(f) || f->type == GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_BYTES;
}

// The self-test: each field without a natural bound has a rule that bounds it.
static int
check_bounds(const struct field_rule *rule, const message_pb *entry, const struct where *w,
             struct err *e)
{
    const field_pb *f = w->field;
    bool repeated = f->label == GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__LABEL__LABEL_REPEATED;
    if (repeated && rule->items_max == 0)
        return refuse(w, "a repeated field or map needs items_max", e);
    if (entry != NULL && is_text_or_bytes(entry->field[0]) && rule->key_len_max == 0)
        return refuse(w, "a map with text as key needs key_len_max", e);
    if (entry != NULL && is_text_or_bytes(entry->field[1]) && rule->value_len_max == 0)
        return refuse(w, "a map with text or bytes as value needs value_len_max", e);
    if (is_text_or_bytes(f) && rule->len_max == 0)
        return refuse(w, "a string or bytes field needs len_max", e);
    if (rule->pattern != NULL && rule->pattern[0] != '\0' && !is_text(f))
        return refuse(w, "only a string can have a pattern", e);
    return 0;
}

static int
compile_pattern(struct field_rule *rule, const struct where *w, struct err *e)
{
    char anchored[512];
    if (rule->pattern == NULL || rule->pattern[0] == '\0')
        return 0;
    int n = snprintf(anchored, sizeof anchored, "^(%s)$", rule->pattern);
    if (n < 0 || (size_t)n >= sizeof anchored)
        return refuse(w, "the pattern is too long", e);
    if (regcomp(&rule->compiled, anchored, REG_EXTENDED | REG_NOSUB) != 0)
        return refuse(w, "the pattern does not compile", e);
    rule->has_pattern = true;
    return 0;
}

static int
read_field(struct rules *r, const message_pb *holder, const struct where *w,
           struct field_rule *rule, struct err *e)
{
    const field_pb *f = w->field;
    ProtobufCMessage *option = NULL;
    const message_pb *entry = map_entry_of(holder, f);
    *rule = (struct field_rule){.number = (uint32_t)f->number, .map = entry != NULL};
    int failed = custom_option(r, f->options != NULL ? &f->options->base : NULL, OPTION_FIELD,
                               &stockade__v1__field_rules__descriptor, &option, e);
    if (failed)
        return err_wrap(e, "%s.%s", w->message, known(f->name));
    if (option != NULL) {
        const Stockade__V1__FieldRules *o = (const Stockade__V1__FieldRules *)option;
        rule->required = o->required;
        rule->len_min = o->len_min;
        rule->len_max = o->len_max;
        rule->items_max = o->items_max;
        rule->key_len_max = o->key_len_max;
        rule->value_len_max = o->value_len_max;
        rule->total_len_max = o->total_len_max;
        rule->min = o->min;
        rule->max = o->max;
        rule->pattern = o->pattern;
    }
    failed = check_bounds(rule, entry, w, e);
    return failed ? failed : compile_pattern(rule, w, e);
}

static int
compare_fields(const void *a, const void *b)
{
    uint32_t x = ((const struct field_rule *)a)->number;
    uint32_t y = ((const struct field_rule *)b)->number;
    return x < y ? -1 : x > y;
}

// Makes room for another row of `size` bytes in a growing table in the arena.
static void *
grow(struct rules *r, void *rows, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return rows;
    size_t wanted = *room == 0 ? 64 : *room * 2;
    void *bigger = arena_alloc(r->arena, wanted * size);
    if (bigger == NULL)
        return NULL;
    if (n > 0)
        memcpy(bigger, rows, n * size);
    *room = wanted;
    return bigger;
}

static int
add_message(struct rules *r, const message_pb *m, const char *name, struct err *e)
{
    struct message_rules *rows =
        grow(r, r->messages, r->messages_n, &r->messages_room, sizeof *rows);
    struct field_rule *fields = arena_alloc(r->arena, (m->n_field + 1) * sizeof *fields);
    const char *kept = arena_copy(r->arena, name, strlen(name));
    if (rows == NULL || fields == NULL || kept == NULL)
        return no_memory(e);
    r->messages = rows;
    // the row is added before its fields, so that rules_free() finds all compiled patterns
    struct message_rules *row = &rows[r->messages_n++];
    *row = (struct message_rules){.name = kept, .fields = fields};
    for (size_t i = 0; i < m->n_field; i++) {
        struct where w = {kept, m->field[i]};
        row->fields_n = i + 1;
        int failed = read_field(r, m, &w, &fields[i], e);
        if (failed)
            return failed;
    }
    qsort(fields, row->fields_n, sizeof *fields, compare_fields);
    return 0;
}

static int
add_messages(struct rules *r, const message_pb *m, const char *scope, unsigned depth, struct err *e)
{
    char name[NAME_BYTES_MAX];
    int n = snprintf(name, sizeof name, "%s.%s", scope, known(m->name));
    if (n < 0 || (size_t)n >= sizeof name || depth > MESSAGE_DEPTH_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s.%s: name too long or nested too deep", scope,
                       known(m->name));
    if (m->options != NULL && m->options->map_entry)
        return 0; // the map field has its rules
    int failed = add_message(r, m, name, e);
    for (size_t i = 0; !failed && i < m->n_nested_type; i++)
        failed = add_messages(r, m->nested_type[i], name, depth + 1, e);
    return failed;
}

static int
add_method(struct rules *r, const char *service, const method_pb *m, struct err *e)
{
    char path[NAME_BYTES_MAX];
    ProtobufCMessage *option = NULL;
    int n = snprintf(path, sizeof path, "/%s/%s", service, known(m->name));
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: name too long", service);
    int failed = custom_option(r, m->options != NULL ? &m->options->base : NULL, OPTION_METHOD,
                               &stockade__v1__method_rules__descriptor, &option, e);
    if (failed)
        return err_wrap(e, "%s", path);
    const Stockade__V1__MethodRules *o = (const Stockade__V1__MethodRules *)option;
    if (o == NULL || o->scope == NULL || o->scope[0] == '\0')
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: a method needs a scope", path);
    struct method_rules *rows = grow(r, r->methods, r->methods_n, &r->methods_room, sizeof *rows);
    const char *kept = arena_copy(r->arena, path, (size_t)n);
    if (rows == NULL || kept == NULL)
        return no_memory(e);
    r->methods = rows;
    rows[r->methods_n++] = (struct method_rules){
        .path = kept,
        .scope = o->scope,
        .others_scope = o->others_scope != NULL ? o->others_scope : "",
        .wakes = o->wakes != NULL ? o->wakes : "",
        .deadline_ms_max = o->deadline_ms_max,
        .idempotent = o->idempotent,
        .begins = o->begins,
        .client_streaming = m->client_streaming,
        .server_streaming = m->server_streaming,
    };
    return 0;
}

static bool
is_ours(const file_pb *f)
{
    return f->package != NULL && strncmp(f->package, "stockade", strlen("stockade")) == 0 &&
           // this file defines the options, so it cannot use them
           strcmp(known(f->name), "stockade/v1/options.proto") != 0;
}

static int
add_file(struct rules *r, const file_pb *f, struct err *e)
{
    char service[NAME_BYTES_MAX];
    int failed = 0;
    for (size_t i = 0; !failed && i < f->n_message_type; i++)
        failed = add_messages(r, f->message_type[i], f->package, 0, e);
    for (size_t i = 0; !failed && i < f->n_service; i++) {
        const Google__Protobuf__ServiceDescriptorProto *s = f->service[i];
        (void)snprintf(service, sizeof service, "%s.%s", f->package, known(s->name));
        for (size_t j = 0; !failed && j < s->n_method; j++)
            failed = add_method(r, service, s->method[j], e);
    }
    return failed;
}

static int
compare_messages(const void *a, const void *b)
{
    return strcmp(((const struct message_rules *)a)->name, ((const struct message_rules *)b)->name);
}

static int
compare_methods(const void *a, const void *b)
{
    return strcmp(((const struct method_rules *)a)->path, ((const struct method_rules *)b)->path);
}

static int
read_set(struct rules *r, const uint8_t *set, size_t n, struct err *e)
{
    ProtobufCMessage *m = NULL;
    int failed = wire_unpack_schema(&google__protobuf__file_descriptor_set__descriptor, set, n,
                                    r->arena, &m, e);
    if (failed)
        return err_wrap(e, "read the descriptor set");
    const set_pb *files = (const set_pb *)m;
    for (size_t i = 0; !failed && i < files->n_file; i++)
        if (is_ours(files->file[i]))
            failed = add_file(r, files->file[i], e);
    if (failed)
        return failed;
    if (r->messages_n > 0)
        qsort(r->messages, r->messages_n, sizeof *r->messages, compare_messages);
    if (r->methods_n > 0)
        qsort(r->methods, r->methods_n, sizeof *r->methods, compare_methods);
    return 0;
}

int
rules_new(const uint8_t *set, size_t n, struct rules **out, struct err *e)
{
    struct rules *r = calloc(1, sizeof *r);
    if (r != NULL)
        r->arena = arena_new(ARENA_BYTES_MAX);
    if (r == NULL || r->arena == NULL) {
        free(r);
        return err_sys(e, ENOMEM, "read the rules");
    }
    int failed = read_set(r, set, n, e);
    if (failed) {
        rules_free(r);
        return failed;
    }
    *out = r;
    return 0;
}

void
rules_free(struct rules *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->messages_n; i++)
        for (size_t j = 0; j < r->messages[i].fields_n; j++)
            if (r->messages[i].fields[j].has_pattern)
                regfree(&r->messages[i].fields[j].compiled);
    arena_free(r->arena);
    free(r);
}

const struct message_rules *
rules_message(const struct rules *r, const char *name)
{
    struct message_rules key = {.name = name};
    if (r->messages_n == 0)
        return NULL;
    return bsearch(&key, r->messages, r->messages_n, sizeof key, compare_messages);
}

const struct field_rule *
rules_field(const struct message_rules *m, uint32_t number)
{
    struct field_rule key = {.number = number};
    return bsearch(&key, m->fields, m->fields_n, sizeof key, compare_fields);
}

const struct method_rules *
rules_method(const struct rules *r, const char *path)
{
    struct method_rules key = {.path = path};
    if (r->methods_n == 0)
        return NULL;
    return bsearch(&key, r->methods, r->methods_n, sizeof key, compare_methods);
}

const struct method_rules *
rules_method_at(const struct rules *r, size_t i)
{
    return i < r->methods_n ? &r->methods[i] : NULL;
}
