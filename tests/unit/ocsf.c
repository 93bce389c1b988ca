// SPDX-License-Identifier: Apache-2.0
// client/exporter/ocsf.c: each kind of event as a line; what the classes require is there, whatever the event lacks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "client/exporter/ocsf.h"
#include "stockade/v1/telemetry_service.pb-c.h"

static const struct {
    int class_uid;
    const char *required[4];
} classes[] = {
    {0, {"message"}},
    {1001, {"actor", "device", "file"}},
    {1007, {"actor", "device", "process"}},
    {2004, {"finding_info"}},
    {3002, {"user", "service", "src_endpoint"}},
    {4001, {"actor"}},
    {4003, {"src_endpoint", "query"}},
    {6003, {"actor", "api", "src_endpoint"}},
};

static const char *const kinds[] = {
    "SANDBOX_CREATED",
    "SANDBOX_DELETED",
    "SANDBOX_PAUSED",
    "SANDBOX_RESUMED",
    "SANDBOX_ASLEEP",
    "SANDBOX_AWAKE",
    "POLICY_CHANGED",
    "JOB_STARTED",
    "JOB_ENDED",
    "LIMIT_HIT",
    "FILE_TRANSFER",
    "CREDENTIAL_REFUSED",
    "HANDSHAKE_REFUSED",
    "EXEC",
    "EXIT",
    "SENSITIVE_OPEN",
    "SIGNAL",
    "DANGEROUS_CALL",
    "IO_URING",
    "OUT_OF_MEMORY",
    "REMOTE_TERMINAL",
    "CONNECT",
    "DENIED",
    "LOOKUP",
    "FLOW",
    "FLOW_ENDED",
    "LISTEN",
    "PROFILE",
    "FINDING",
    "GAP",
    "KIND_1000",
};

#define TEXT(n, t)                                                                                 \
    {                                                                                              \
        .name = (n), .type = STOCKADE_FACT_TEXT, .text = (t)                                       \
    }
#define NUMBER(n, v)                                                                               \
    {                                                                                              \
        .name = (n), .type = STOCKADE_FACT_NUMBER, .text = "", .number = (v)                       \
    }

static struct stockade_event
event_of(const char *kind, const struct stockade_fact *facts, size_t n)
{
    return (struct stockade_event){
        .sequence = 7,
        .time_ns = INT64_C(1700000000123456789),
        .kind = kind,
        .severity = STOCKADE_SEVERITY_CRITICAL,
        .sandbox_id = "5a",
        .process_id = "7b",
        .tenant = "uid:1000",
        .template_name = "default",
        .comm = "sh",
        .pid = 42,
        .facts = facts,
        .facts_n = n,
        .instance = "0123456789abcdef",
    };
}

static json_int_t
member(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static const char *
text_member(const json_t *o, const char *name)
{
    const char *v = json_string_value(json_object_get(o, name));
    return v != NULL ? v : "";
}

// The line as JSON: one line of printable ASCII, and what its class requires.
static json_t *
read_line(char *line)
{
    json_error_t failed;
    assert_non_null(line);
    const size_t n = strlen(line);
    for (size_t i = 0; i < n; i++)
        assert_true(line[i] == '\n' ? i == n - 1 : line[i] >= ' ' && line[i] <= '\x7f');
    assert_true(n > 0 && line[n - 1] == '\n');
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &failed);
    free(line);
    assert_non_null(o);
    const json_int_t class_uid = member(o, "class_uid");
    assert_int_equal(member(o, "type_uid"), class_uid * 100 + member(o, "activity_id"));
    assert_int_equal(member(o, "category_uid"), class_uid / 1000);
    assert_string_equal(text_member(json_object_get(o, "metadata"), "version"), "1.8.0");
    size_t c = 0;
    while (c < sizeof classes / sizeof classes[0] && classes[c].class_uid != class_uid)
        c++;
    assert_true(c < sizeof classes / sizeof classes[0]);
    for (size_t i = 0; classes[c].required[i] != NULL; i++)
        assert_non_null(json_object_get(o, classes[c].required[i]));
    return o;
}

static json_t *
converted(const struct stockade_event *event)
{
    return read_line(ocsf_line(event));
}

static void
an_event_without_details_has_what_its_class_requires(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct stockade_event bare = {.kind = kinds[i],
                                      .sandbox_id = "",
                                      .process_id = "",
                                      .tenant = "",
                                      .template_name = "",
                                      .comm = "",
                                      .instance = ""};
        json_decref(converted(&bare));
        bare = event_of(kinds[i], NULL, 0);
        json_decref(converted(&bare));
    }
}

// A job chooses them: a line break would be another event, and a control byte would reach a terminal.
static void
hostile_texts_stay_on_their_line(void **state)
{
    (void)state;
    static const char hostile[] = "a\n{\"x\":1}\x1b[31m\x7f\xc2\x9b\xc3\xa4\"\\";
    static const char *const names[] = {
        "path",        "arguments", "cwd",      "resolved", "operation",
        "destination", "name",      "protocol", "reason",   "hint",
        "rule",        "text",      "response", "note",     "event_class",
    };
    struct stockade_fact facts[sizeof names / sizeof names[0]];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        facts[i] = (struct stockade_fact)TEXT(names[i], hostile);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct stockade_event event = event_of(kinds[i], facts, sizeof facts / sizeof facts[0]);
        event.comm = hostile;
        json_t *o = converted(&event);
        const json_t *details = json_object_get(json_object_get(o, "unmapped"), "details");
        assert_string_equal(text_member(details, "path"), hostile);
        json_decref(o);
    }
}

static void
a_refusal_is_blocked_and_names_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *operation, *destination;
        int class_uid, activity, action, disposition;
    } cases[] = {
        {"connect", "192.0.2.1:80", 4001, 5, 2, 2},
        {"connect", "[2001:db8::1]:80", 4001, 5, 2, 2},
        {"device", "device 10:200", 4001, 5, 2, 2},
        {"dns", "example.com", 4003, 2, 2, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct stockade_fact facts[] = {TEXT("operation", cases[i].operation),
                                              TEXT("destination", cases[i].destination),
                                              TEXT("reason", "no-rule")};
        const struct stockade_event event = event_of("DENIED", facts, 3);
        json_t *o = converted(&event);
        assert_int_equal(member(o, "class_uid"), cases[i].class_uid);
        assert_int_equal(member(o, "activity_id"), cases[i].activity);
        assert_int_equal(member(o, "action_id"), cases[i].action);
        assert_int_equal(member(o, "disposition_id"), cases[i].disposition);
        assert_int_equal(json_object_get(o, "firewall_rule") != NULL, cases[i].activity == 5);
        assert_string_equal(text_member(o, "status_detail"), "no-rule");
        json_decref(o);
    }
}

static void
an_endpoint_is_an_address_or_a_name(void **state)
{
    (void)state;
    static const struct {
        const char *destination, *ip, *name;
        int port;
    } cases[] = {
        {"example.com:443", "", "example.com", 443},
        {"192.0.2.1:443", "192.0.2.1", "", 443},
        {"[2001:db8::1]:53", "2001:db8::1", "", 53},
        {"192.0.2.1", "192.0.2.1", "", -1},
        {"/run/x.sock", "", "/run/x.sock", -1},
        {"device 10:200", "", "device 10:200", -1},
        {"", "", "unknown", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct stockade_fact facts[] = {TEXT("destination", cases[i].destination),
                                              TEXT("name", "example.com")};
        const struct stockade_event event = event_of("CONNECT", facts, 2);
        json_t *o = converted(&event);
        const json_t *to = json_object_get(o, "dst_endpoint");
        assert_string_equal(text_member(to, "ip"), cases[i].ip);
        assert_string_equal(text_member(to, "name"), cases[i].name);
        assert_string_equal(text_member(to, "domain"), "example.com");
        assert_int_equal(json_object_get(to, "port") != NULL ? member(to, "port") : -1,
                         cases[i].port);
        json_decref(o);
    }
}

static void
numbers_keep_their_value(void **state)
{
    (void)state;
    const struct stockade_fact facts[] = {
        NUMBER("first", UINT64_MAX),
        NUMBER("second", 5),
        {.name = "result", .type = STOCKADE_FACT_SIGNED, .number = (uint64_t)-1}};
    const struct stockade_event event = event_of("DANGEROUS_CALL", facts, 3);
    json_t *o = converted(&event);
    const json_t *details = json_object_get(json_object_get(o, "unmapped"), "details");
    assert_string_equal(text_member(details, "first"), "18446744073709551615");
    assert_int_equal(member(details, "second"), 5);
    assert_int_equal(member(details, "result"), -1);
    assert_int_equal(member(o, "time"), INT64_C(1700000000123));
    assert_int_equal(member(o, "severity_id"), 5);
    json_decref(o);
}

static void
a_gap_reports_how_many_are_missing_if_that_is_known(void **state)
{
    (void)state;
    json_t *o = read_line(ocsf_gap_line(3, "too slow", 0));
    assert_string_equal(text_member(o, "message"), "3 events were missed: too slow");
    json_decref(o);
    o = read_line(ocsf_gap_line(0, "the broker was restarted", 0));
    assert_string_equal(text_member(o, "message"),
                        "an unknown number of events was missed: the broker was restarted");
    json_decref(o);
}

// The n-th label of a line.
static const char *
tag(const json_t *o, size_t n, const char *member_name)
{
    const json_t *tags = json_object_get(json_object_get(o, "metadata"), "tags");
    return text_member(json_array_get(tags, n), member_name);
}

static void
the_name_and_the_labels_of_the_sandbox_are_there(void **state)
{
    static char model[] = "gen_ai.request.model", name[] = "m-1", team[] = "team", blue[] = "<b>\n";
    static char provider[] = "gen_ai.provider.name", who[] = "them", box[] = "box";
    Stockade__V1__Event__MetadataEntry entries[3];
    Stockade__V1__Event__MetadataEntry *labels[] = {&entries[0], &entries[1], &entries[2]};
    Stockade__V1__Event message = STOCKADE__V1__EVENT__INIT;
    struct stockade_event event = event_of("EXEC", NULL, 0);
    (void)state;
    stockade__v1__event__metadata_entry__init(&entries[0]);
    entries[1] = entries[2] = entries[0];
    entries[0].key = team;
    entries[0].value = blue;
    entries[1].key = model;
    entries[1].value = name;
    entries[2].key = provider;
    entries[2].value = who;
    message.sandbox_name = box;
    message.metadata = labels;
    message.n_metadata = 1;
    event.message = &message;
    json_t *o = converted(&event);
    assert_string_equal(text_member(json_object_get(o, "device"), "name"), "box");
    assert_string_equal(tag(o, 0, "name"), "team");
    assert_string_equal(tag(o, 0, "value"), "<b>\n");
    assert_null(json_object_get(o, "ai_model"));
    json_decref(o);
    message.n_metadata = 3;
    o = converted(&event);
    assert_string_equal(text_member(json_object_get(o, "ai_model"), "name"), "m-1");
    assert_string_equal(text_member(json_object_get(o, "ai_model"), "ai_provider"), "them");
    assert_int_equal(json_array_size(json_object_get(json_object_get(o, "metadata"), "profiles")),
                     3);
    json_decref(o);
    event.kind = "FINDING"; // the schema has no such profile for its class
    o = converted(&event);
    assert_null(json_object_get(o, "ai_model"));
    assert_string_equal(tag(o, 2, "value"), "them");
    json_decref(o);
}

static void
tags_of_a_finding_are_techniques_or_labels(void **state)
{
    const struct stockade_fact facts[] = {TEXT("rule", "nc"), TEXT("text", "x"),
                                          TEXT("tags", "T1059.004 T1571 T15 mine T1059.0044")};
    const struct stockade_event event = event_of("FINDING", facts, 3);
    (void)state;
    json_t *o = converted(&event);
    const json_t *info = json_object_get(o, "finding_info");
    const json_t *attacks = json_object_get(info, "attacks");
    assert_int_equal(json_array_size(attacks), 2);
    const json_t *first = json_array_get(attacks, 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(first, "technique"), "uid")), "T1059");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(first, "sub_technique"), "uid")),
        "T1059.004");
    assert_int_equal(json_array_size(json_object_get(info, "types")), 3);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(info, "analytic"), "uid")), "nc");
    json_decref(o);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_of_a_finding_are_techniques_or_labels),
        cmocka_unit_test(an_event_without_details_has_what_its_class_requires),
        cmocka_unit_test(hostile_texts_stay_on_their_line),
        cmocka_unit_test(a_refusal_is_blocked_and_names_its_reason),
        cmocka_unit_test(an_endpoint_is_an_address_or_a_name),
        cmocka_unit_test(numbers_keep_their_value),
        cmocka_unit_test(the_name_and_the_labels_of_the_sandbox_are_there),
        cmocka_unit_test(a_gap_reports_how_many_are_missing_if_that_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
