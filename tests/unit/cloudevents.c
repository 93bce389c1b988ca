// SPDX-License-Identifier: Apache-2.0
// client/exporter/cloudevents.c and falco.c: what receivers require is there, whatever the event lacks; hostile texts stay data.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "client/exporter/cloudevents.h"
#include "client/exporter/falco.h"

static const char hostile[] = "a\n{\"x\":1}\x1b[31m\x7f\xc2\x9b\xe2\x80\xae\"\\\xe2\x80\xac";

static struct stockade_event
event_of(const char *text)
{
    return (struct stockade_event){
        .sequence = 7,
        .time_ns = INT64_C(1700000000123456789),
        .kind = "FINDING",
        .severity = STOCKADE_SEVERITY_CRITICAL,
        .sandbox_id = text,
        .process_id = text,
        .tenant = text,
        .template_name = text,
        .comm = text,
        .instance = "0123456789abcdef",
    };
}

static const char *
text_member(const json_t *o, const char *name)
{
    const char *v = json_string_value(json_object_get(o, name));
    return v != NULL ? v : "";
}

// One line of printable ASCII.
static json_t *
read_line(char *line)
{
    assert_non_null(line);
    const size_t n = strlen(line);
    for (size_t i = 0; i < n; i++)
        assert_true(line[i] == '\n' ? i == n - 1 : line[i] >= ' ' && line[i] <= '\x7f');
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    free(line);
    assert_non_null(o);
    return o;
}

static void
a_cloudevent_has_its_attributes_and_hostile_texts_apart(void **state)
{
    (void)state;
    const struct stockade_fact facts[] = {
        {.name = "text", .type = STOCKADE_FACT_TEXT, .text = hostile},
        {.name = "count", .type = STOCKADE_FACT_NUMBER, .text = "", .number = UINT64_MAX},
    };
    struct stockade_event event = event_of("");
    event.kind = "KIND_1000";
    event.comm = hostile;
    event.facts = facts;
    event.facts_n = 2;
    json_t *o = read_line(cloudevents_event(&event));
    assert_string_equal(text_member(o, "specversion"), "1.0");
    assert_string_equal(text_member(o, "id"), "0123456789abcdef-7");
    assert_string_equal(text_member(o, "source"), "/stockade/events");
    assert_string_equal(text_member(o, "type"), "dev.stockade.event.kind_1000");
    assert_string_equal(text_member(o, "time"), "2023-11-14T22:13:20.123456789Z");
    assert_null(json_object_get(o, "subject")); // an empty one is not allowed
    const json_t *data = json_object_get(o, "data");
    const json_t *untrusted = json_object_get(data, "untrusted");
    assert_null(json_object_get(data, "comm"));
    assert_string_equal(text_member(untrusted, "comm"), hostile);
    const json_t *details = json_object_get(untrusted, "details");
    assert_string_equal(text_member(details, "text"), hostile);
    assert_string_equal(text_member(details, "count"), "18446744073709551615");
    json_decref(o);
}

static void
an_alert_has_what_readers_require_and_a_printable_output(void **state)
{
    (void)state;
    static const char *const required[] = {"output", "rule", "priority", "time", "source"};
    char text[4096];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    const char *const texts[] = {"", hostile, text};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct stockade_fact facts[] = {
            {.name = "text", .type = STOCKADE_FACT_TEXT, .text = texts[i]}};
        struct stockade_event event = event_of(texts[i]);
        event.facts = facts;
        event.facts_n = 1;
        json_t *o = read_line(falco_line(&event, "host"));
        for (size_t m = 0; m < sizeof required / sizeof required[0]; m++)
            assert_true(text_member(o, required[m])[0] != '\0');
        const char *output = text_member(o, "output");
        assert_true(strlen(output) < FALCO_OUTPUT_MAX);
        for (const char *c = output; *c != '\0'; c++)
            assert_true(*c >= ' ' && *c <= '~');
        assert_memory_equal(output, "22:13:20.123456789: Critical ", 29);
        const json_t *fields = json_object_get(o, "output_fields");
        assert_string_equal(text_member(fields, "stockade.text"), texts[i]);
        json_decref(o);
    }
}

static void
severities_are_priorities_of_falco(void **state)
{
    (void)state;
    static const char *const names[] = {"Debug",   "Informational", "Notice",
                                        "Warning", "Critical",      "Debug"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct stockade_event event = event_of("x");
        event.severity = i;
        json_t *o = read_line(falco_line(&event, ""));
        assert_string_equal(text_member(o, "priority"), names[i]);
        json_decref(o);
    }
}

static void
what_is_missing_is_said(void **state)
{
    (void)state;
    for (uint64_t count = 0; count < 2; count++) {
        json_t *o = read_line(cloudevents_gap(count, "slow", 1));
        const json_t *data = json_object_get(o, "data");
        assert_string_equal(text_member(o, "type"), "dev.stockade.events_missed");
        assert_string_equal(text_member(data, "reason"), "slow");
        assert_int_equal(json_object_get(data, "count") != NULL, count != 0);
        json_decref(o);
        o = read_line(falco_gap_line(count, "slow", 1, "host"));
        assert_string_equal(text_member(o, "rule"), "Stockade internal: events were missed");
        assert_non_null(strstr(text_member(o, "output"), count != 0 ? "1 event was" : "unknown"));
        json_decref(o);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cloudevent_has_its_attributes_and_hostile_texts_apart),
        cmocka_unit_test(an_alert_has_what_readers_require_and_a_printable_output),
        cmocka_unit_test(severities_are_priorities_of_falco),
        cmocka_unit_test(what_is_missing_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
