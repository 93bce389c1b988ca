// SPDX-License-Identifier: Apache-2.0
// client/exporter/trace.c and proto/traceparent.c: which trace a job belongs to. post.c and delivery.c: what a status and a header
// Retry-After mean.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/exporter/delivery.h"
#include "client/exporter/post.h"
#include "client/exporter/trace.h"
#include "proto/traceparent.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
#define JOB    "000102030405060708090a0b0c0d0e0f"

static struct stockade_event
event_of(const char *kind, const char *job, const struct stockade_fact *f)
{
    return (struct stockade_event){
        .kind = kind, .process_id = job, .facts = f, .facts_n = f != NULL ? 1 : 0};
}

static void
malformed_contexts_are_refused(void **state)
{
    (void)state;
    char wrong[TRACEPARENT_LENGTH + 1];
    static const struct {
        size_t at;
        char c;
    } changes[] = {{1, '1'}, {2, '_'}, {4, 'A'}, {35, '_'}, {36, 'g'}, {52, '_'}, {54, 'g'}};
    assert_false(traceparent_valid(""));
    assert_false(traceparent_valid(PARENT "-"));
    assert_false(traceparent_valid("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
    assert_false(traceparent_valid("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(wrong, PARENT, sizeof wrong);
        wrong[changes[i].at] = changes[i].c;
        assert_false(traceparent_valid(wrong));
    }
    assert_true(traceparent_valid(PARENT));
}

static void
a_job_without_a_caller_s_trace_is_its_own(void **state)
{
    (void)state;
    struct trace t;
    char hex[2 * TRACE_ID + 1];
    const struct stockade_event e = event_of("JOB_ENDED", "eu1-" JOB, NULL);
    assert_true(trace_of_job(&e, &t));
    trace_hex(t.trace_id, TRACE_ID, hex);
    assert_string_equal(hex, JOB);
    assert_true(t.recorded && !t.has_parent);
    const struct stockade_event zero =
        event_of("JOB_ENDED", "00000000000000000000000000000000", NULL);
    assert_true(trace_of_job(&zero, &t));
    assert_int_equal(t.span_id[0], 1); // an id of 0 is none
    const struct stockade_event none = event_of("JOB_ENDED", "", NULL);
    assert_false(trace_of_job(&none, &t));
    const struct stockade_event strange = event_of("JOB_ENDED", "0001x", NULL);
    assert_false(trace_of_job(&strange, &t));
}

static void
events_of_a_job_have_the_trace_that_it_started_with(void **state)
{
    (void)state;
    const struct stockade_fact parent = {
        .name = "traceparent", .type = STOCKADE_FACT_TEXT, .text = PARENT};
    struct traces *all = calloc(1, sizeof *all);
    struct trace t;
    char hex[2 * TRACE_ID + 1];
    assert_non_null(all);
    const struct stockade_event exec = event_of("EXEC", JOB, NULL);
    const struct stockade_event started = event_of("JOB_STARTED", JOB, &parent);
    assert_false(trace_find(all, &exec, &t));
    assert_true(trace_find(all, &started, &t));
    assert_true(trace_find(all, &exec, &t));
    trace_hex(t.trace_id, TRACE_ID, hex);
    assert_string_equal(hex, "0af7651916cd43dd8448eb211c80319c");
    trace_hex(t.parent_id, SPAN_ID, hex);
    assert_string_equal(hex, "b7ad6b7169203331");
    const struct stockade_event other = event_of("EXEC", "100102030405060708090a0b0c0d0e0f", NULL);
    assert_false(trace_find(all, &other, &t));
    free(all);
}

static void
spans_of_a_job_differ(void **state)
{
    (void)state;
    struct trace t;
    uint8_t id[6][SPAN_ID];
    const struct stockade_event e = event_of("JOB_ENDED", JOB, NULL);
    assert_true(trace_of_job(&e, &t));
    for (unsigned i = 0; i < 6; i++)
        trace_child(&t, i, id[i]);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned k = 0; k < i; k++)
            assert_memory_not_equal(id[i], id[k], SPAN_ID);
}

static void
statuses_mean_what_the_specification_says(void **state)
{
    (void)state;
    static const struct {
        unsigned status;
        enum delivery_verdict otlp, other;
    } rows[] = {
        {200, DELIVERY_OK, DELIVERY_OK},           {202, DELIVERY_OK, DELIVERY_OK},
        {0, DELIVERY_AGAIN, DELIVERY_AGAIN},       {429, DELIVERY_AGAIN, DELIVERY_AGAIN},
        {502, DELIVERY_AGAIN, DELIVERY_AGAIN},     {503, DELIVERY_AGAIN, DELIVERY_AGAIN},
        {504, DELIVERY_AGAIN, DELIVERY_AGAIN},     {500, DELIVERY_NEVER, DELIVERY_AGAIN},
        {408, DELIVERY_NEVER, DELIVERY_AGAIN},     {400, DELIVERY_NEVER, DELIVERY_NEVER},
        {301, DELIVERY_NEVER, DELIVERY_NEVER},     {401, DELIVERY_NEVER, DELIVERY_NEVER},
        {413, DELIVERY_SMALLER, DELIVERY_SMALLER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(delivery_judge(rows[i].status, true, 2), rows[i].otlp);
        assert_int_equal(delivery_judge(rows[i].status, false, 2), rows[i].other);
    }
    assert_int_equal(delivery_judge(413, false, 1), DELIVERY_NEVER);
}

static void
retry_after_is_seconds_or_a_date(void **state)
{
    (void)state;
    static const int64_t now = 1700000000; // Tue, 14 Nov 2023 22:13:20 GMT
    assert_int_equal(post_retry_after_ms("7", now), 7000);
    assert_int_equal(post_retry_after_ms("7\r\n", now), 7000);
    assert_int_equal(post_retry_after_ms("99999999999999999999", now), 86400000);
    assert_int_equal(post_retry_after_ms("-5", now), 0);
    assert_int_equal(post_retry_after_ms("", now), 0);
    assert_int_equal(post_retry_after_ms("soon", now), 0);
    assert_int_equal(post_retry_after_ms("Tue, 14 Nov 2023 22:13:30 GMT", now), 10000);
    assert_int_equal(post_retry_after_ms("Tue, 14 Nov 2023 22:13:10 GMT", now), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_contexts_are_refused),
        cmocka_unit_test(a_job_without_a_caller_s_trace_is_its_own),
        cmocka_unit_test(events_of_a_job_have_the_trace_that_it_started_with),
        cmocka_unit_test(spans_of_a_job_differ),
        cmocka_unit_test(statuses_mean_what_the_specification_says),
        cmocka_unit_test(retry_after_is_seconds_or_a_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
