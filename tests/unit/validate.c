// SPDX-License-Identifier: Apache-2.0
// The self-test refuses fields without a bound, and each bound is enforced with the field's path.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "google/protobuf/descriptor.pb-c.h"
#include "stockade/v1/options.pb-c.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/wire.pb-c.h"

#include "proto/arena.h"
#include "proto/rules.h"
#include "proto/validate.h"
#include "proto/wire.h"

typedef Google__Protobuf__FieldDescriptorProto field_pb;
typedef Google__Protobuf__DescriptorProto message_pb;

#define TYPE(name)  GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__TYPE__TYPE_##name
#define LABEL(name) GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__LABEL__LABEL_##name

// descriptor.pb-c.h requires char *, and nothing writes to it.
static char *
text(const char *literal)
{
    char *p;
    memcpy(&p, &literal, sizeof p);
    return p;
}

// A custom option as protobuf-c stores unknown fields: the length before the bytes.
static size_t
option_bytes(const ProtobufCMessage *rules, uint8_t out[256])
{
    size_t n = protobuf_c_message_get_packed_size(rules);
    assert_in_range(n, 0, 127);
    out[0] = (uint8_t)n;
    return 1 + protobuf_c_message_pack(rules, out + 1);
}

// Loads a set of one file with message stockade.test.M { <type> f = 1 [rules] }; map: f is map<string, string>.
static int
load_field(int type, int label, const Stockade__V1__FieldRules *rules, bool map, struct err *e)
{
    uint8_t option[256];
    ProtobufCMessageUnknownField unknown = {51002, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 0, option};
    Google__Protobuf__FieldOptions options = GOOGLE__PROTOBUF__FIELD_OPTIONS__INIT;
    Google__Protobuf__MessageOptions entry_options = GOOGLE__PROTOBUF__MESSAGE_OPTIONS__INIT;
    field_pb f = GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__INIT;
    field_pb key = f;
    field_pb value = f;
    message_pb m = GOOGLE__PROTOBUF__DESCRIPTOR_PROTO__INIT;
    message_pb entry = m;
    Google__Protobuf__FileDescriptorProto file = GOOGLE__PROTOBUF__FILE_DESCRIPTOR_PROTO__INIT;
    Google__Protobuf__FileDescriptorSet set = GOOGLE__PROTOBUF__FILE_DESCRIPTOR_SET__INIT;
    field_pb *fields[] = {&f};
    field_pb *entry_fields[] = {&key, &value};
    message_pb *messages[] = {&m};
    message_pb *entries[] = {&entry};
    Google__Protobuf__FileDescriptorProto *files[] = {&file};
    f.name = text("f");
    f.has_number = f.has_type = f.has_label = true;
    f.number = 1;
    f.type = (Google__Protobuf__FieldDescriptorProto__Type)type;
    f.label = (Google__Protobuf__FieldDescriptorProto__Label)label;
    if (rules != NULL) {
        unknown.len = option_bytes(&rules->base, option);
        options.base.n_unknown_fields = 1;
        options.base.unknown_fields = &unknown;
        f.options = &options;
    }
    m.name = text("M");
    m.n_field = 1;
    m.field = fields;
    if (map) {
        key = value = f;
        key.options = value.options = NULL;
        key.name = text("key");
        value.name = text("value");
        key.type = value.type = TYPE(STRING);
        f.type = TYPE(MESSAGE);
        f.type_name = text(".stockade.test.M.FEntry");
        entry_options.has_map_entry = entry_options.map_entry = true;
        entry.name = text("FEntry");
        entry.options = &entry_options;
        entry.n_field = 2;
        entry.field = entry_fields;
        m.n_nested_type = 1;
        m.nested_type = entries;
    }
    file.name = text("test.proto");
    file.package = text("stockade.test");
    file.n_message_type = 1;
    file.message_type = messages;
    set.n_file = 1;
    set.file = files;
    uint8_t bytes[1024];
    assert_in_range(protobuf_c_message_get_packed_size(&set.base), 1, sizeof bytes);
    struct rules *r = NULL;
    int rc = rules_new(bytes, protobuf_c_message_pack(&set.base, bytes), &r, e);
    if (rc == 0)
        assert_non_null(rules_message(r, "stockade.test.M"));
    rules_free(r);
    return rc;
}

struct field_case {
    const char *what;
    int type, label;
    bool map;
    Stockade__V1__FieldRules rules;
    const char *text_part; // NULL: accepted
};

#define RULES(...)                                                                                 \
    {                                                                                              \
        .base = {&stockade__v1__field_rules__descriptor, 0, NULL}, __VA_ARGS__                     \
    }

static const struct field_case field_cases[] = {
    {"string", TYPE(STRING), LABEL(OPTIONAL), false, RULES(.len_min = 1), "needs len_max"},
    {"bytes", TYPE(BYTES), LABEL(OPTIONAL), false, RULES(.len_min = 1), "needs len_max"},
    {"repeated string", TYPE(STRING), LABEL(REPEATED), false, RULES(.len_max = 9), "items_max"},
    {"repeated string", TYPE(STRING), LABEL(REPEATED), false, RULES(.items_max = 9), "len_max"},
    {"repeated number", TYPE(UINT32), LABEL(REPEATED), false, RULES(.max = 3), "items_max"},
    {"map", 0, LABEL(REPEATED), true, RULES(.key_len_max = 3, .value_len_max = 3), "items_max"},
    {"map", 0, LABEL(REPEATED), true, RULES(.items_max = 3, .value_len_max = 3), "key_len_max"},
    {"map", 0, LABEL(REPEATED), true, RULES(.items_max = 3, .key_len_max = 3), "value_len_max"},
    {"pattern", TYPE(STRING), LABEL(OPTIONAL), false, RULES(.len_max = 3, .pattern = "("),
     "does not compile"},
    {"pattern", TYPE(BYTES), LABEL(OPTIONAL), false, RULES(.len_max = 3, .pattern = "a"),
     "only a string"},
    {"number", TYPE(UINT32), LABEL(OPTIONAL), false, RULES(.max = 3), NULL},
    {"string", TYPE(STRING), LABEL(OPTIONAL), false, RULES(.len_max = 3, .pattern = "a*"), NULL},
    {"map", 0, LABEL(REPEATED), true, RULES(.items_max = 1, .key_len_max = 3, .value_len_max = 3),
     NULL},
};

static void
a_field_without_its_bound_fails_the_self_test(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(load_field(TYPE(STRING), LABEL(OPTIONAL), NULL, false, &e), -EINVAL);
    assert_string_equal(e.text, "stockade.test.M.f: a string or bytes field needs len_max");
    for (size_t i = 0; i < sizeof field_cases / sizeof field_cases[0]; i++) {
        const struct field_case *c = &field_cases[i];
        e = (struct err){0};
        int rc = load_field(c->type, c->label, &c->rules, c->map, &e);
        if (rc != (c->text_part != NULL ? -EINVAL : 0))
            fail_msg("%zu %s: %d %s", i, c->what, rc, e.text);
        if (c->text_part != NULL && strstr(e.text, c->text_part) == NULL)
            fail_msg("%zu %s: \"%s\" is not told", i, c->what, e.text);
    }
}

static int
load_method(const char *scope, bool with_rules, struct err *e)
{
    uint8_t option[256];
    ProtobufCMessageUnknownField unknown = {51001, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 0, option};
    Stockade__V1__MethodRules rules = STOCKADE__V1__METHOD_RULES__INIT;
    Google__Protobuf__MethodOptions options = GOOGLE__PROTOBUF__METHOD_OPTIONS__INIT;
    Google__Protobuf__MethodDescriptorProto m = GOOGLE__PROTOBUF__METHOD_DESCRIPTOR_PROTO__INIT;
    Google__Protobuf__ServiceDescriptorProto s = GOOGLE__PROTOBUF__SERVICE_DESCRIPTOR_PROTO__INIT;
    Google__Protobuf__FileDescriptorProto file = GOOGLE__PROTOBUF__FILE_DESCRIPTOR_PROTO__INIT;
    Google__Protobuf__FileDescriptorSet set = GOOGLE__PROTOBUF__FILE_DESCRIPTOR_SET__INIT;
    Google__Protobuf__MethodDescriptorProto *methods[] = {&m};
    Google__Protobuf__ServiceDescriptorProto *services[] = {&s};
    Google__Protobuf__FileDescriptorProto *files[] = {&file};
    rules.scope = scope;
    rules.idempotent = true;
    unknown.len = option_bytes(&rules.base, option);
    options.base.n_unknown_fields = 1;
    options.base.unknown_fields = &unknown;
    m.name = text("Do");
    m.options = with_rules ? &options : NULL;
    s.name = text("S");
    s.n_method = 1;
    s.method = methods;
    file.name = text("test.proto");
    file.package = text("stockade.test");
    file.n_service = 1;
    file.service = services;
    set.n_file = 1;
    set.file = files;
    uint8_t bytes[1024];
    assert_in_range(protobuf_c_message_get_packed_size(&set.base), 1, sizeof bytes);
    struct rules *r = NULL;
    int rc = rules_new(bytes, protobuf_c_message_pack(&set.base, bytes), &r, e);
    if (rc == 0)
        assert_string_equal(rules_method(r, "/stockade.test.S/Do")->scope, scope);
    rules_free(r);
    return rc;
}

static void
a_method_without_a_scope_fails_the_self_test(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(load_method("x.read", false, &e), -EINVAL);
    assert_string_equal(e.text, "/stockade.test.S/Do: a method needs a scope");
    assert_int_equal(load_method("", true, &e), -EINVAL);
    assert_int_equal(load_method("x.read", true, &e), 0);
}

static void
an_invalid_set_is_refused_and_the_rules_stay(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    assert_int_equal(validate_load((const uint8_t *)"\x0a\xff\xff", 3, &e), -EINVAL);
    assert_non_null(validate_method("/stockade.v1.SystemService/Info"));
}

static void
the_embedded_set_passes_and_its_methods_are_there(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    assert_null(validate_method("/stockade.v1.ProcessService/Nothing"));
    assert_null(validate_method(""));
    const struct method_rules *run = validate_method("/stockade.v1.ProcessService/Run");
    assert_string_equal(run->scope, "process.run");
    assert_true(run->server_streaming && !run->client_streaming && !run->idempotent);
    const struct method_rules *info = validate_method("/stockade.v1.SystemService/Info");
    assert_true(info->idempotent && !info->server_streaming && info->deadline_ms_max == 10000);
    size_t n = 0;
    while (validate_method_at(n) != NULL)
        assert_string_not_equal(validate_method_at(n++)->scope, "");
    assert_true(n >= 20);
}

// Length of the longest chain of messages; fails if there is a cycle.
static unsigned
message_depth(const ProtobufCMessageDescriptor *d, const ProtobufCMessageDescriptor **above,
              unsigned n)
{
    unsigned deepest = 1;
    for (unsigned i = 0; i < n; i++)
        if (above[i] == d)
            fail_msg("%s holds itself", d->name);
    assert_in_range(n, 0, 31);
    above[n] = d;
    for (unsigned i = 0; i < d->n_fields; i++) {
        if (d->fields[i].type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        unsigned below = message_depth(d->fields[i].descriptor, above, n + 1);
        deepest = below + 1 > deepest ? below + 1 : deepest;
    }
    return deepest;
}

static void
no_message_of_the_api_is_recursive(void **state)
{
    (void)state;
    const ProtobufCServiceDescriptor *services[] = {&stockade__v1__sandbox_service__descriptor,
                                                    &stockade__v1__process_service__descriptor};
    const ProtobufCMessageDescriptor *above[32];
    assert_in_range(message_depth(&stockade__v1__frame__descriptor, above, 0), 2, WIRE_DEPTH_MAX);
    for (size_t i = 0; i < 2; i++)
        for (unsigned j = 0; j < services[i]->n_methods; j++) {
            const ProtobufCMethodDescriptor *m = &services[i]->methods[j];
            assert_in_range(message_depth(m->input, above, 0), 1, WIRE_DEPTH_MAX);
            assert_in_range(message_depth(m->output, above, 0), 1, WIRE_DEPTH_MAX);
        }
}

static void
expect_refusal(const ProtobufCMessage *m, const char *text)
{
    struct err e = {0};
    assert_int_equal(validate_message(m, &e), -EINVAL);
    assert_string_equal(e.reason,
                        strstr(text, "above") != NULL ? "ABOVE_MAXIMUM" : "FIELD_INVALID");
    assert_string_equal(e.text, text);
}

static void
bounds_are_enforced_with_the_path_of_the_field(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    Stockade__V1__RunRequest r = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command c = STOCKADE__V1__COMMAND__INIT;
    Stockade__V1__Limits limits = STOCKADE__V1__LIMITS__INIT;
    Stockade__V1__EnvironmentVariable env[2] = {STOCKADE__V1__ENVIRONMENT_VARIABLE__INIT,
                                                STOCKADE__V1__ENVIRONMENT_VARIABLE__INIT};
    Stockade__V1__EnvironmentVariable *envs[] = {&env[0], &env[1]};
    const char *args[1025];
    for (size_t i = 0; i < 1025; i++)
        args[i] = "x";
    expect_refusal(&r.base, "command: must be set");
    r.command = &c;
    expect_refusal(&r.base, "command.args: must be set");
    c.args = (const char **)args;
    c.n_args = 1025;
    expect_refusal(&r.base, "command.args: 1025 elements, but at most 1024 are allowed");
    c.n_args = 2;
    c.workdir = "relative";
    expect_refusal(&r.base, "command.workdir: 'relative' must be an absolute path");
    c.workdir = "/tmp";
    c.n_env = 2;
    c.env = envs;
    env[0].name = "A";
    expect_refusal(&r.base, "command.env[1].name: 0 bytes, but at least 1 is needed");
    env[1].name = "A=B";
    expect_refusal(&r.base,
                   "command.env[1].name: 'A=B' must consist of letters, digits, '_', '.' and "
                   "'-', and begin with a letter or '_'");
    env[1].name = "B\n";
    expect_refusal(&r.base,
                   "command.env[1].name: 'B\n' must consist of letters, digits, '_', '.' and "
                   "'-', and begin with a letter or '_'");
    env[1].name = "B";
    r.limits = &limits;
    limits.memory_bytes = 4194303;
    expect_refusal(&r.base, "limits.memory_bytes: 4194303 is below the minimum of 4M");
    limits.memory_bytes = UINT64_MAX;
    expect_refusal(&r.base, "limits.memory_bytes: 18446744073709551615 is above the maximum of 1T");
    limits.memory_bytes = 0; // the template's
    assert_int_equal(validate_message(&r.base, &e), 0);
}

static void
the_sum_of_arguments_is_bounded(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    char *half = calloc(1, 49153);
    memset(half, 'a', 49152);
    const char *args[] = {half, half, "a"};
    Stockade__V1__RunRequest r = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command c = STOCKADE__V1__COMMAND__INIT;
    r.command = &c;
    c.args = args;
    c.n_args = 3;
    expect_refusal(&r.base, "command.args: 98305 bytes in all, but at most 98304 are allowed");
    c.n_args = 2;
    assert_int_equal(validate_message(&r.base, &e), 0);
    free(half);
}

static void
maps_are_bounded_and_have_unique_keys(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    Stockade__V1__SandboxServiceCreateRequest r =
        STOCKADE__V1__SANDBOX_SERVICE_CREATE_REQUEST__INIT;
    Stockade__V1__SandboxServiceCreateRequest__MetadataEntry entry[33];
    Stockade__V1__SandboxServiceCreateRequest__MetadataEntry *entries[33];
    char keys[33][8];
    char longer[300];
    memset(longer, 'k', sizeof longer);
    longer[299] = '\0';
    for (int i = 0; i < 33; i++) {
        entry[i] = (Stockade__V1__SandboxServiceCreateRequest__MetadataEntry)
            STOCKADE__V1__SANDBOX_SERVICE_CREATE_REQUEST__METADATA_ENTRY__INIT;
        (void)snprintf(keys[i], sizeof keys[i], "k%d", i);
        entry[i].key = keys[i];
        entries[i] = &entry[i];
    }
    r.metadata = entries;
    r.n_metadata = 33;
    expect_refusal(&r.base, "metadata: 33 elements, but at most 32 are allowed");
    r.n_metadata = 32;
    assert_int_equal(validate_message(&r.base, &e), 0);
    entry[2].value = longer;
    expect_refusal(&r.base, "metadata[2].value: 299 bytes, but at most 256 are allowed");
    entry[2].value = "";
    entry[3].key = longer;
    expect_refusal(&r.base, "metadata[3].key: 299 bytes, but at most 64 are allowed");
    entry[3].key = "k1";
    expect_refusal(&r.base, "metadata[3]: its key is a duplicate");
}

static void
required_numbers_and_ranges_hold(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(validate_init(&e), 0);
    Stockade__V1__SignalRequest r = STOCKADE__V1__SIGNAL_REQUEST__INIT;
    r.process_id = "0123456789abcdef0123456789abcdeg";
    r.signal = 65;
    expect_refusal(&r.base,
                   "process_id: '0123456789abcdef0123456789abcdeg' must be an id: 32 digits, "
                   "0 to 9 and a to f");
    r.process_id = "0123456789abcdef0123456789abcdef";
    expect_refusal(&r.base, "signal: 65 is above the maximum of 64");
    r.signal = 0;
    expect_refusal(&r.base, "signal: must be set");
    r.signal = 64;
    assert_int_equal(validate_message(&r.base, &e), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_without_its_bound_fails_the_self_test),
        cmocka_unit_test(a_method_without_a_scope_fails_the_self_test),
        cmocka_unit_test(an_invalid_set_is_refused_and_the_rules_stay),
        cmocka_unit_test(the_embedded_set_passes_and_its_methods_are_there),
        cmocka_unit_test(no_message_of_the_api_is_recursive),
        cmocka_unit_test(bounds_are_enforced_with_the_path_of_the_field),
        cmocka_unit_test(the_sum_of_arguments_is_bounded),
        cmocka_unit_test(maps_are_bounded_and_have_unique_keys),
        cmocka_unit_test(required_numbers_and_ranges_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
