// SPDX-License-Identifier: Apache-2.0
// See validate.h. One pass over a message along its descriptor; each field is checked against the row that rules.c
// made from its options. Fields of foreign messages (google's) have no rules; only their sub-messages are checked.
#include "validate.h"

#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "proto/plural.h"
#include "path.h"
#include "quantity.h"
#include "rules.h"
#include "wire.h"

static struct rules *loaded;

int
validate_load(const uint8_t *set, size_t n, struct err *e)
{
    struct rules *fresh = NULL;
    int failed = rules_new(set, n, &fresh, e);
    if (failed)
        return failed;
    rules_free(loaded);
    loaded = fresh;
    return 0;
}

int
validate_init(struct err *e)
{
    size_t n;
    const uint8_t *set = wire_descriptor_set(&n);
    return validate_load(set, n, e);
}

const struct method_rules *
validate_method(const char *path)
{
    return loaded != NULL ? rules_method(loaded, path) : NULL;
}

const struct method_rules *
validate_method_at(size_t i)
{
    return loaded != NULL ? rules_method_at(loaded, i) : NULL;
}

// A scalar of any type, as far as rules need it.
struct value {
    bool negative;
    uint64_t magnitude; // of integers, enums and bools
    const char *text;   // of strings; never NULL
    size_t len;         // of strings and bytes
    const ProtobufCMessage *message;
};

static bool
is_signed(ProtobufCType type)
{
    return type == PROTOBUF_C_TYPE_INT32 || type == PROTOBUF_C_TYPE_SINT32 ||
           type == PROTOBUF_C_TYPE_SFIXED32 || type == PROTOBUF_C_TYPE_INT64 ||
           type == PROTOBUF_C_TYPE_SINT64 || type == PROTOBUF_C_TYPE_SFIXED64;
}

static struct value
read_integer(ProtobufCType type, const uint8_t *at)
{
    uint64_t raw = 0;
    int64_t number = 0;
    if (wire_element_bytes(type) == 4) {
        uint32_t small;
        memcpy(&small, at, sizeof small);
        raw = small;
        number = (int32_t)small;
    } else {
        memcpy(&raw, at, sizeof raw);
        memcpy(&number, at, sizeof number);
    }
    if (is_signed(type) && number < 0)
        return (struct value){.negative = true, .magnitude = 0 - (uint64_t)number};
    return (struct value){.magnitude = raw};
}

static struct value
read_value(const ProtobufCFieldDescriptor *f, const uint8_t *at)
{
    struct value v = {.text = ""};
    ProtobufCBinaryData data;
    protobuf_c_boolean flag;
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&v.text, at, sizeof v.text);
        if (v.text == NULL)
            v.text = "";
        v.len = strlen(v.text);
        return v;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(&data, at, sizeof data);
        v.len = data.len;
        return v;
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&v.message, at, sizeof(void *));
        return v;
    case PROTOBUF_C_TYPE_BOOL:
        memcpy(&flag, at, sizeof flag);
        v.magnitude = flag != 0;
        return v;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return v;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_ENUM:
    default:
        return read_integer(f->type, at);
    }
}

static bool
is_zero(const struct value *v)
{
    return v->magnitude == 0 && v->len == 0 && v->message == NULL;
}

static int
check_range(const struct field_rule *rule, const struct value *v, const struct path *at,
            struct err *e)
{
    if ((rule->min == 0 && rule->max == 0) || v->magnitude == 0)
        return 0;
    bool below = v->negative ? rule->min >= 0 || v->magnitude > 0 - (uint64_t)rule->min
                             : rule->min > 0 && v->magnitude < (uint64_t)rule->min;
    bool above =
        !v->negative && rule->max != 0 && (rule->max < 0 || v->magnitude > (uint64_t)rule->max);
    char value[32], bound[32];
    if (!below && !above)
        return 0;
    (void)quantity_show(at->field, v->magnitude, value, sizeof value);
    if (rule->min >= 0 && rule->max >= 0)
        (void)quantity_show(at->field, (uint64_t)(below ? rule->min : rule->max), bound,
                            sizeof bound);
    else
        (void)snprintf(bound, sizeof bound, "%lld", (long long)(below ? rule->min : rule->max));
    int r = path_refuse(at, e, "%s%s is %s %s", v->negative ? "-" : "", value,
                        below ? "below the minimum of" : "above the maximum of", bound);
    if (above)
        err_detail(e, "ABOVE_MAXIMUM", NULL, NULL);
    return r;
}

// What a pattern allows, in words.
static const char *
words_of(const char *pattern)
{
    static const char *const words[][2] = {
        {"[a-zA-Z0-9][a-zA-Z0-9._-]*",
         "must consist of letters, digits, '.', '_' and '-', and begin with a letter or a digit"},
        {"([a-zA-Z0-9][a-zA-Z0-9._-]*)?",
         "must consist of letters, digits, '.', '_' and '-', and begin with a letter or a digit"},
        {"(/[a-zA-Z0-9._+@-]+)+",
         "must be an absolute path of letters, digits, '.', '_', '+', '@' and '-'"},
        {"[a-z0-9][a-z0-9._-]*", "must consist of lower-case letters, digits, '.', '_' and '-', "
                                 "and begin with a letter or a digit"},
        {"[A-Za-z_][A-Za-z0-9_.-]*",
         "must consist of letters, digits, '_', '.' and '-', and begin with a letter or '_'"},
        {"[a-z0-9_.-]+", "must consist of lower-case letters, digits, '_', '.' and '-'"},
        {"[a-z][a-z-]*", "must consist of lower-case letters and '-'"},
        {"[A-Za-z0-9_.]*", "must consist of letters, digits, '_' and '.'"},
        {"[A-Za-z0-9_./]+", "must consist of letters, digits, '_', '.' and '/'"},
        {"[0-9a-f]*", "must consist of the digits 0 to 9 and a to f"},
        {"([a-z0-9]{1,15}-)?[0-9a-f]{32}", "must be an id: 32 digits, 0 to 9 and a to f"},
        {"([a-z0-9]{1,15}-)?[0-9a-f]*", "must be an id, or its first digits"},
        {"/.*", "must be an absolute path"},
        {"[*]|[a-z][a-z0-9._-]*(:[0-9]+)?", "must be a tenant, such as uid:1000, or * for all"},
        {"host|[0-9A-Fa-f:.]+(/[0-9]+)?",
         "must be an address or a range of addresses, such as 192.0.2.0/24, or the word host"},
        {"@[a-z]+|([*][.])?[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*",
         "must be a name, such as example.com, *.example.com for all names below it, or @pypi for a set"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], pattern) == 0)
            return words[i][1];
    return NULL;
}

static int
refuse_text(const char *pattern, const char *text, const struct path *at, struct err *e)
{
    const char *words = words_of(pattern);
    if (words != NULL)
        return path_refuse(at, e, "'%.64s' %s", text, words);
    return path_refuse(at, e, "does not match %s", pattern);
}

static int
check_text(const struct field_rule *rule, const struct value *v, const struct path *at,
           struct err *e)
{
    if (v->len < rule->len_min)
        return path_refuse(at, e, "%zu %s, but at least %u %s needed", v->len,
                           plural(v->len, "byte", "bytes"), (unsigned)rule->len_min,
                           plural(rule->len_min, "is", "are"));
    if (rule->len_max != 0 && v->len > rule->len_max)
        return path_refuse(at, e, "%zu bytes, but at most %u are allowed", v->len,
                           (unsigned)rule->len_max);
    if (rule->has_pattern && v->len > 0 && regexec(&rule->compiled, v->text, 0, NULL, 0) != 0)
        return refuse_text(rule->pattern, v->text, at, e);
    return 0;
}

static int
check_enum(const ProtobufCFieldDescriptor *f, const struct value *v, const struct path *at,
           struct err *e)
{
    int number = v->magnitude <= INT32_MAX ? (int)v->magnitude : -1;
    if (protobuf_c_enum_descriptor_get_value(f->descriptor, number) == NULL)
        return path_refuse(at, e, "%llu is not a value of this enum",
                           (unsigned long long)v->magnitude);
    return 0;
}

static int check_message(const ProtobufCMessage *m, const struct path *at, struct err *e);

static int
check_scalar(const ProtobufCFieldDescriptor *f, const struct field_rule *rule,
             const struct value *v, const struct path *at, struct err *e)
{
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return v->message != NULL ? check_message(v->message, at, e) : 0;
    if (rule == NULL)
        return 0;
    if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_BYTES)
        return check_text(rule, v, at, e);
    if (f->type == PROTOBUF_C_TYPE_ENUM)
        return check_enum(f, v, at, e);
    return check_range(rule, v, at, e);
}

// Keys and values of one entry of a map, whose message the compiler generates: key = 1, value = 2.
static int
check_entry(const struct field_rule *rule, const ProtobufCMessage *entry, const struct path *at,
            struct err *e)
{
    const uint32_t len_max[2] = {rule->key_len_max, rule->value_len_max};
    for (unsigned i = 0; i < 2 && i < entry->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &entry->descriptor->fields[i];
        struct value v = read_value(f, (const uint8_t *)entry + f->offset);
        struct path here = {at, f->name, -1};
        if (len_max[i] != 0 && v.len > len_max[i])
            return path_refuse(&here, e, "%zu bytes, but at most %u are allowed", v.len,
                               (unsigned)len_max[i]);
        if (v.message != NULL) {
            int failed = check_message(v.message, &here, e);
            if (failed)
                return failed;
        }
    }
    return 0;
}

// protobuf-c keeps every entry that was sent. A map must not have two entries with one key.
static bool
key_is_repeated(const ProtobufCMessage *const *entries, size_t n)
{
    const ProtobufCFieldDescriptor *f = &entries[n]->descriptor->fields[0];
    struct value last = read_value(f, (const uint8_t *)entries[n] + f->offset);
    for (size_t i = 0; i < n; i++) {
        struct value v = read_value(f, (const uint8_t *)entries[i] + f->offset);
        if (v.magnitude == last.magnitude && v.negative == last.negative &&
            strcmp(v.text != NULL ? v.text : "", last.text != NULL ? last.text : "") == 0)
            return true;
    }
    return false;
}

static int
check_map(const struct field_rule *rule, const ProtobufCMessage *const *entries, size_t n,
          const struct path *at, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct path here = *at;
        here.index = (ptrdiff_t)i;
        int failed = check_entry(rule, entries[i], &here, e);
        if (failed)
            return failed;
        if (key_is_repeated(entries, i))
            return path_refuse(&here, e, "its key is a duplicate");
    }
    return 0;
}

static int
check_repeated(const ProtobufCFieldDescriptor *f, const struct field_rule *rule, const uint8_t *m,
               const struct path *at, struct err *e)
{
    size_t n;
    const uint8_t *items;
    size_t total = 0;
    memcpy(&n, m + f->quantifier_offset, sizeof n);
    memcpy(&items, m + f->offset, sizeof items);
    if (rule != NULL && rule->required && n == 0)
        return path_refuse(at, e, "must be set");
    if (rule != NULL && rule->items_max != 0 && n > rule->items_max)
        return path_refuse(at, e, "%zu elements, but at most %u are allowed", n,
                           (unsigned)rule->items_max);
    if (rule != NULL && rule->map)
        return check_map(rule, (const ProtobufCMessage *const *)(const void *)items, n, at, e);
    for (size_t i = 0; i < n; i++) {
        struct value v = read_value(f, items + i * wire_element_bytes(f->type));
        struct path here = *at;
        here.index = (ptrdiff_t)i;
        int failed = check_scalar(f, rule, &v, &here, e);
        if (failed)
            return failed;
        total += v.len;
    }
    if (rule != NULL && rule->total_len_max != 0 && total > rule->total_len_max)
        return path_refuse(at, e, "%zu bytes in all, but at most %u are allowed", total,
                           (unsigned)rule->total_len_max);
    return 0;
}

static int
check_field(const ProtobufCFieldDescriptor *f, const struct field_rule *rule, const uint8_t *m,
            const struct path *at, struct err *e)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED)
        return check_repeated(f, rule, m, at, e);
    struct value v = {0};
    bool there = true;
    if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t which;
        memcpy(&which, m + f->quantifier_offset, sizeof which);
        there = which == f->id;
    }
    if (there)
        v = read_value(f, m + f->offset);
    if (rule != NULL && rule->required && is_zero(&v))
        return path_refuse(at, e, "must be set");
    return there ? check_scalar(f, rule, &v, at, e) : 0;
}

static int
check_message(const ProtobufCMessage *m, const struct path *at, struct err *e)
{
    const struct message_rules *rules =
        loaded != NULL ? rules_message(loaded, m->descriptor->name) : NULL;
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const struct field_rule *rule = rules != NULL ? rules_field(rules, f->id) : NULL;
        struct path here = {at, f->name, -1};
        int failed = check_field(f, rule, (const uint8_t *)m, &here, e);
        if (failed)
            return failed;
    }
    return 0;
}

int
validate_message(const ProtobufCMessage *m, struct err *e)
{
    return check_message(m, NULL, e);
}
