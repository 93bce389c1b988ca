// SPDX-License-Identifier: Apache-2.0
// The JSON of events, findings and records: it uses the names of the schema, and its form is the same for all kinds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client/stockade.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/telemetry_service.pb-c.h"

static void
says(const void *message, const char *part)
{
    const char *text = stockade_json(message);
    assert_non_null(text);
    if (strstr(text, part) == NULL)
        fail_msg("no %s in %s", part, text);
    stockade_free(text);
}

static void
says_not(const void *message, const char *part)
{
    const char *text = stockade_json(message);
    assert_non_null(text);
    assert_null(strstr(text, part));
    stockade_free(text);
}

static void
an_event_has_the_names_of_the_schema_and_enums_in_lower_case(void **state)
{
    (void)state;
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__Finding f = STOCKADE__V1__FINDING__INIT;
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    t.seconds = 1700000000;
    t.nanos = 1500000;
    m.sequence = UINT64_MAX;
    m.time = &t;
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_ENDED;
    m.sandbox_id = "a\"b\\\x01";
    f.rule = "oom";
    f.severity = STOCKADE__V1__SEVERITY__SEVERITY_WARNING;
    f.score = 0.1;
    f.threshold = 8;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_FINDING;
    m.finding = &f;
    says(&m, "{\"sequence\":9223372036854775807,\"time\":\"2023-11-14T22:13:20.001500Z\",\"kind\":"
             "\"job_ended\",\"sandbox_id\":\"a\\\"b\\\\\\u0001\",\"process_id\":\"\"");
    says(&m, "\"finding\":{\"rule\":\"oom\",\"severity\":\"warning\",\"text\":\"\",\"score\":0.1,"
             "\"threshold\":8.0,");
    says_not(&m, "\"execution\"");        // a message that is not set
    says_not(&m, "unspecified");          // an unspecified enum value
    m.kind = (Stockade__V1__EventKind)99; // of a newer broker
    says(&m, "\"kind\":99");
}

static void
times_have_as_many_digits_as_they_need(void **state)
{
    (void)state;
    static const struct {
        int32_t nanos;
        const char *text;
    } rows[] = {{0, ":20Z"}, {7000000, ":20.007Z"}, {7000, ":20.000007Z"}, {7, ":20.000000007Z"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
        Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
        t.seconds = 1700000000;
        t.nanos = rows[i].nanos;
        m.time = &t;
        says(&m, rows[i].text);
    }
}

static void
lists_are_lists_and_maps_are_objects(void **state)
{
    (void)state;
    Stockade__V1__Record r = STOCKADE__V1__RECORD__INIT;
    Stockade__V1__SyscallCount c = STOCKADE__V1__SYSCALL_COUNT__INIT;
    Stockade__V1__SyscallCount *by[] = {&c, &c};
    c.name = "read";
    c.count = 3;
    r.by_number = by;
    r.n_by_number = 2;
    says(&r, "\"by_number\":[{\"name\":\"read\",\"count\":3},{\"name\":\"read\",\"count\":3}],"
             "\"by_error\":[]");
    says_not(&r, "\"network\""); // a message that is not set
    Stockade__V1__RunRequest run = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__RunRequest__MetadataEntry pair = STOCKADE__V1__RUN_REQUEST__METADATA_ENTRY__INIT;
    Stockade__V1__RunRequest__MetadataEntry *pairs[] = {&pair};
    pair.key = "owner";
    pair.value = "ci";
    run.metadata = pairs;
    run.n_metadata = 1;
    says(&run, "\"metadata\":{\"owner\":\"ci\"}");
    assert_null(stockade_json(NULL));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_has_the_names_of_the_schema_and_enums_in_lower_case),
        cmocka_unit_test(times_have_as_many_digits_as_they_need),
        cmocka_unit_test(lists_are_lists_and_maps_are_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
