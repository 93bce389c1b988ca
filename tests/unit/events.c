// SPDX-License-Identifier: Apache-2.0
// The event hub: filters are applied, every bound is kept, and missing events are reported at their position.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "server/telemetry/events.h"
#include "server/telemetry/events_kept.h"

static const char box_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char box_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

struct fixture {
    uv_loop_t loop;
    struct events *hub;
    unsigned woken;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    metrics_clear();
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->hub = events_new(&f->loop);
    assert_non_null(f->hub);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    events_free(f->hub);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static void
wake(void *cookie)
{
    ((struct fixture *)cookie)->woken++;
}

static struct events_reader *
subscribe(struct fixture *f, const struct event_filter *filter, uint64_t from)
{
    static const struct event_filter all;
    const struct events_listener l = {"uid:1", wake, f};
    struct events_reader *r = NULL;
    struct err e;
    assert_int_equal(events_subscribe(f->hub, filter != NULL ? filter : &all, from, "", &l, &r, &e),
                     0);
    return r;
}

static void
publish_note(struct fixture *f, const char *box, Stockade__V1__EventKind kind, const char *note)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    m.sandbox_id = box;
    m.tenant = box == box_a ? "uid:1" : "uid:2";
    m.kind = kind;
    m.severity = STOCKADE__V1__SEVERITY__SEVERITY_INFO;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_NOTE;
    m.note = note;
    events_publish(f->hub, &m);
}

static void
publish(struct fixture *f, const char *box)
{
    publish_note(f, box, STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC, "x");
}

// Takes all available events: how many, how many of them are missing, and the last number.
static uint64_t
take_all(struct events_reader *r, uint64_t *missing, uint64_t *last)
{
    struct events_batch *auto_free b = malloc(sizeof *b);
    uint64_t n = 0;
    assert_non_null(b);
    while (events_peek(r, b)) {
        if (b->gap.from != 0) {
            assert_true(b->gap.from > *last && b->gap.to >= b->gap.from);
            *missing += b->gap.count;
            *last = b->gap.to;
        }
        assert_true(b->n <= EVENTS_BATCH);
        for (uint32_t i = 0; i < b->n; i++) {
            assert_true(b->event[i]->sequence > *last);
            *last = b->event[i]->sequence;
        }
        n += b->n;
        events_taken(r, b);
    }
    return n;
}

static void
a_future_number_is_out_of_range(void **state)
{
    struct fixture *f = *state;
    static const struct event_filter all;
    const struct events_listener l = {"uid:1", wake, f};
    struct events_reader *r = NULL;
    struct err e;
    publish(f, box_a);
    assert_true(events_subscribe(f->hub, &all, 3, "", &l, &r, &e) < 0);
    assert_int_equal(e.code, ERR_OUT_OF_RANGE);
    r = subscribe(f, NULL, 2); // the next one
    events_unsubscribe(r);
}

static void
subscriptions_are_bounded_for_one_and_for_all(void **state)
{
    struct fixture *f = *state;
    static const struct event_filter all;
    struct events_reader *r[EVENTS_READERS + 1] = {0};
    struct err e;
    uint32_t n = 0;
    for (uint32_t owner = 0; owner < EVENTS_READERS / EVENTS_READERS_PER_TENANT; owner++) {
        char name[32];
        (void)snprintf(name, sizeof name, "uid:%u", owner);
        const struct events_listener l = {name, wake, f};
        for (uint32_t i = 0; i < EVENTS_READERS_PER_TENANT; i++)
            assert_int_equal(events_subscribe(f->hub, &all, 0, "", &l, &r[n++], &e), 0);
        assert_true(events_subscribe(f->hub, &all, 0, "", &l, &r[n], &e) < 0);
        assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    }
    const struct events_listener another = {"tcp", wake, f};
    assert_true(events_subscribe(f->hub, &all, 0, "", &another, &r[n], &e) < 0);
    for (uint32_t i = 0; i < n; i++)
        events_unsubscribe(r[i]);
}

static void
a_filter_passes_what_it_names_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct event_filter filter = {.sandboxes_n = 1};
    uint64_t missing = 0;
    uint64_t last = 0;
    memcpy(filter.sandbox_id[0], box_b, sizeof box_b);
    struct events_reader *box = subscribe(f, &filter, 0);
    filter = (struct event_filter){.tenant = "uid:1"};
    struct events_reader *tenant = subscribe(f, &filter, 0);
    filter = (struct event_filter){.severity = 2};
    struct events_reader *grave = subscribe(f, &filter, 0);
    filter = (struct event_filter){0};
    uint32_t kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_GAP;
    filter.kinds[kind / 64] |= UINT64_C(1) << kind % 64;
    struct events_reader *kinds = subscribe(f, &filter, 0);
    publish(f, box_a);
    publish(f, box_b);
    publish_note(f, box_b, STOCKADE__V1__EVENT_KIND__EVENT_KIND_GAP, "g");
    assert_int_equal(take_all(box, &missing, &last), 2);
    last = 0;
    assert_int_equal(take_all(tenant, &missing, &last), 1);
    assert_int_equal(last, 1);
    assert_int_equal(take_all(grave, &missing, &last), 0);
    last = 0;
    assert_int_equal(take_all(kinds, &missing, &last), 1);
    assert_int_equal(last, 3);
    assert_int_equal(missing, 0);
    events_unsubscribe(box);
    events_unsubscribe(tenant);
    events_unsubscribe(grave);
    events_unsubscribe(kinds);
}

static void
a_subscriber_is_woken_by_the_loop_and_once_for_many(void **state)
{
    struct fixture *f = *state;
    struct events_reader *r = subscribe(f, NULL, 0);
    for (unsigned i = 0; i < 100; i++)
        publish(f, box_a);
    assert_int_equal(f->woken, 0);
    (void)uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(f->woken, 1);
    events_unsubscribe(r);
}

static void
events_that_do_not_fit_into_a_ring_are_a_gap(void **state)
{
    struct fixture *f = *state;
    struct events_reader *slow = subscribe(f, NULL, 0);
    struct events_reader *quick = subscribe(f, NULL, 0);
    uint64_t missing = 0;
    uint64_t last = 0;
    uint64_t quick_missing = 0;
    uint64_t quick_last = 0;
    uint64_t quick_n = 0;
    for (unsigned i = 0; i < EVENTS_QUEUED + 1000; i++) {
        publish(f, box_a);
        quick_n += take_all(quick, &quick_missing, &quick_last);
    }
    assert_int_equal(quick_n, EVENTS_QUEUED + 1000);
    assert_int_equal(quick_missing, 0);
    assert_int_equal(take_all(slow, &missing, &last), EVENTS_QUEUED);
    assert_int_equal(missing, 1000);
    publish(f, box_a);
    assert_int_equal(take_all(slow, &missing, &last), 1);
    assert_int_equal(missing, 1000);
    events_unsubscribe(slow);
    events_unsubscribe(quick);
}

static void
a_ring_is_bounded_by_bytes_as_well(void **state)
{
    struct fixture *f = *state;
    static char large[500];
    struct events_reader *r = subscribe(f, NULL, 0);
    uint64_t missing = 0;
    uint64_t last = 0;
    memset(large, 'x', sizeof large - 1);
    for (unsigned i = 0; i < EVENTS_QUEUED; i++)
        publish_note(f, box_a, STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC, large);
    uint64_t n = take_all(r, &missing, &last);
    assert_true(n < EVENTS_QUEUED_BYTES / 500 && missing == EVENTS_QUEUED - n);
    events_unsubscribe(r);
}

static void
kept_events_are_sent_from_a_number_on_after_a_gap(void **state)
{
    struct fixture *f = *state;
    uint64_t missing = 0;
    uint64_t last = 4;
    for (unsigned i = 0; i < 10; i++)
        publish(f, box_a);
    struct events_reader *r = subscribe(f, NULL, 5);
    assert_false(events_caught_up(r));
    assert_int_equal(take_all(r, &missing, &last), 6);
    assert_true(events_caught_up(r));
    publish(f, box_a);
    assert_int_equal(take_all(r, &missing, &last), 1);
    events_unsubscribe(r);
    for (unsigned i = 0; i < EVENTS_KEPT; i++)
        publish(f, box_a);
    struct events_batch *auto_free b = malloc(sizeof *b);
    assert_non_null(b);
    r = subscribe(f, NULL, 1);
    assert_true(events_peek(r, b));
    assert_int_equal(b->gap.from, 1);
    assert_string_equal(b->gap.reason, "forgotten");
    assert_int_equal(b->event[0]->sequence, b->gap.to + 1);
    last = 0;
    assert_int_equal(take_all(r, &missing, &last), EVENTS_KEPT);
    events_unsubscribe(r);
}

static void
publish_of(struct fixture *f, const char *tenant, const char *note)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    m.tenant = tenant;
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    m.severity = STOCKADE__V1__SEVERITY__SEVERITY_INFO;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_NOTE;
    m.note = note;
    events_publish(f->hub, &m);
}

static void
a_tenant_does_not_displace_anothers_entries(void **state)
{
    struct fixture *f = *state;
    const struct event_filter of_b = {.tenant = "uid:2"};
    uint64_t missing = 0;
    uint64_t last = 0;
    publish(f, box_b);
    for (unsigned i = 0; i < 2 * EVENTS_KEPT; i++)
        publish(f, box_a);
    publish(f, box_b);
    struct events_reader *r = subscribe(f, &of_b, 1);
    assert_int_equal(take_all(r, &missing, &last), 2);
    assert_int_equal(last, 2 * EVENTS_KEPT + 2);
    publish(f, box_a);
    publish(f, box_b);
    assert_int_equal(take_all(r, &missing, &last), 1);
    events_unsubscribe(r);
    struct events_batch *auto_free b = malloc(sizeof *b);
    assert_non_null(b);
    r = subscribe(f, NULL, 1); // of all tenants: with a gap, and in the order of their numbers
    assert_true(events_peek(r, b));
    assert_true(b->gap.from == 1 && b->event[0]->sequence == 1);
    for (uint32_t i = 1; i < b->n; i++)
        assert_true(b->event[i]->sequence > b->event[i - 1]->sequence);
    events_unsubscribe(r);
}

static void
the_total_is_bounded_and_the_largest_tenant_loses_events(void **state)
{
    struct fixture *f = *state;
    char *auto_free large = malloc(4001);
    char tenant[32];
    uint64_t missing = 0;
    uint64_t last = 0;
    assert_non_null(large);
    memset(large, 'x', 4000);
    large[4000] = '\0';
    publish_of(f, "small", "x");
    for (unsigned who = 0; who < 12; who++) { // 8 MiB each would be 96 MiB
        (void)snprintf(tenant, sizeof tenant, "uid:%u", who);
        for (unsigned i = 0; i < 2200; i++)
            publish_of(f, tenant, large);
    }
    const struct event_filter small = {.tenant = "small"};
    struct events_reader *r = subscribe(f, &small, 1);
    assert_int_equal(take_all(r, &missing, &last), 1);
    events_unsubscribe(r);
    for (unsigned who = 0; who < EVENTS_TENANTS; who++) {
        (void)snprintf(tenant, sizeof tenant, "more:%u", who);
        publish_of(f, tenant, "x");
    }
    last = 0;
    struct events_batch *auto_free b = malloc(sizeof *b);
    assert_non_null(b);
    r = subscribe(f, &small, 1); // its tenant was inactive for longest
    assert_true(events_peek(r, b));
    assert_true(b->gap.from == 1 && b->n == 0);
    assert_string_equal(b->gap.reason, "forgotten");
    events_unsubscribe(r);
}

static void
a_number_of_an_earlier_run_is_a_gap_followed_by_this_run(void **state)
{
    struct fixture *f = *state;
    static const struct event_filter all;
    const struct events_listener l = {"uid:1", wake, f};
    struct events_batch *auto_free b = malloc(sizeof *b);
    struct events_reader *r = NULL;
    struct err e;
    assert_non_null(b);
    assert_int_equal(strlen(events_instance(f->hub)), 16);
    for (unsigned events = 0; events < 3; events += 2) {
        assert_int_equal(events_subscribe(f->hub, &all, 7000, "0123456789abcdef", &l, &r, &e), 0);
        assert_true(events_peek(r, b));
        assert_int_equal(b->gap.from, 7000);
        assert_int_equal(b->gap.to, 0);
        assert_string_equal(b->gap.reason, "restarted");
        assert_int_equal(b->n, events);
        events_taken(r, b);
        assert_false(events_peek(r, b));
        publish(f, box_a);
        assert_true(events_peek(r, b));
        assert_true(b->gap.from == 0 && b->n == 1);
        events_unsubscribe(r);
        publish(f, box_a);
    }
    assert_int_equal(events_subscribe(f->hub, &all, 4, events_instance(f->hub), &l, &r, &e), 0);
    assert_true(events_peek(r, b));
    assert_true(b->gap.from == 0 && b->event[0]->sequence == 4);
    events_unsubscribe(r);
    assert_true(events_subscribe(f->hub, &all, 400, events_instance(f->hub), &l, &r, &e) < 0);
    assert_int_equal(e.code, ERR_OUT_OF_RANGE);
}

static void
an_event_that_is_too_large_leaves_a_gap_and_is_counted(void **state)
{
    struct fixture *f = *state;
    char *auto_free huge = malloc(EVENT_BYTES + 1);
    assert_non_null(huge);
    memset(huge, 'x', EVENT_BYTES);
    huge[EVENT_BYTES] = '\0';
    struct events_reader *r = subscribe(f, NULL, 0);
    uint64_t missing = 0;
    uint64_t last = 0;
    publish_note(f, box_a, STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC, huge);
    publish(f, box_a);
    assert_int_equal(take_all(r, &missing, &last), 1);
    assert_int_equal(last, 2);
    assert_int_equal(metrics_sum(METRIC_EVENTS_FAILED), 1);
    assert_int_equal(metrics_sum(METRIC_EVENTS), 1);
    events_unsubscribe(r);
}

static void
a_packed_event_is_the_message_with_its_length_before_it(void **state)
{
    struct fixture *f = *state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    struct events_batch *auto_free b = malloc(sizeof *b);
    ProtobufCMessage *m = NULL;
    struct err e;
    assert_non_null(b);
    struct events_reader *r = subscribe(f, NULL, 0);
    publish(f, box_b);
    assert_true(events_peek(r, b));
    const struct event_packed *p = b->event[0];
    assert_int_equal(wire_unpack(&stockade__v1__event__descriptor, p->bytes + p->head_n,
                                 p->n - p->head_n, a, &m, &e),
                     0);
    const Stockade__V1__Event *got = (const Stockade__V1__Event *)m;
    assert_string_equal(got->sandbox_id, box_b);
    assert_int_equal(got->sequence, 1);
    assert_string_equal(got->instance, events_instance(f->hub));
    assert_true(got->time->seconds > 1000000000);
    events_taken(r, b);
    events_unsubscribe(r);
}

int
main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_future_number_is_out_of_range),
        TEST(subscriptions_are_bounded_for_one_and_for_all),
        TEST(an_event_that_is_too_large_leaves_a_gap_and_is_counted),
        TEST(a_filter_passes_what_it_names_and_nothing_else),
        TEST(a_subscriber_is_woken_by_the_loop_and_once_for_many),
        TEST(events_that_do_not_fit_into_a_ring_are_a_gap),
        TEST(a_ring_is_bounded_by_bytes_as_well),
        TEST(kept_events_are_sent_from_a_number_on_after_a_gap),
        TEST(a_tenant_does_not_displace_anothers_entries),
        TEST(the_total_is_bounded_and_the_largest_tenant_loses_events),
        TEST(a_number_of_an_earlier_run_is_a_gap_followed_by_this_run),
        TEST(a_packed_event_is_the_message_with_its_length_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
