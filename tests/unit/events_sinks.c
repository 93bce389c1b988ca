// SPDX-License-Identifier: Apache-2.0
// The receivers of all events in the broker: each gets every event once and in order, whatever another one does meanwhile.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/base/metrics.h"
#include "server/telemetry/events.h"

enum { SEEN_MAX = 16 };

struct fixture;

struct receiver {
    struct events_sink sink;
    struct fixture *of;
    uint64_t seen[SEEN_MAX];
    unsigned n;
    int result;
    struct receiver *removes, *adds; // inside its next call
};

struct fixture {
    uv_loop_t loop;
    struct events *hub;
    struct receiver r[EVENTS_SINKS + 1];
};

static int
on_event(void *cookie, const struct event_packed *e)
{
    struct receiver *r = cookie;
    struct err why;
    assert_true(r->n < SEEN_MAX);
    r->seen[r->n++] = e->sequence;
    if (r->removes != NULL)
        events_sink_remove(r->of->hub, &r->removes->sink);
    if (r->adds != NULL)
        assert_int_equal(events_sink_add(r->of->hub, &r->adds->sink, &why), 0);
    r->removes = r->adds = NULL;
    return r->result;
}

static int
setup(void **state)
{
    static const char *const names[EVENTS_SINKS + 1] = {"a", "b", "c", "d", "e",
                                                        "f", "g", "h", "i"};
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    metrics_clear();
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->hub = events_new(&f->loop);
    assert_non_null(f->hub);
    for (unsigned i = 0; i <= EVENTS_SINKS; i++) {
        f->r[i].of = f;
        f->r[i].sink =
            (struct events_sink){.name = names[i], .on_event = on_event, .cookie = &f->r[i]};
        list_init(&f->r[i].sink.node);
    }
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
add(struct fixture *f, unsigned n)
{
    struct err e;
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(events_sink_add(f->hub, &f->r[i].sink, &e), 0);
}

static void
publish(struct fixture *f)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    m.tenant = "uid:1";
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    m.severity = STOCKADE__V1__SEVERITY__SEVERITY_INFO;
    events_publish(f->hub, &m);
}

// It has seen these numbers, a digit each.
static void
assert_seen(const struct receiver *r, const char *numbers)
{
    assert_int_equal(r->n, strlen(numbers));
    for (unsigned i = 0; i < r->n; i++)
        assert_int_equal(r->seen[i], numbers[i] - '0');
}

static void
there_are_so_many_and_no_more_until_one_is_removed(void **state)
{
    struct fixture *f = *state;
    struct err e;
    add(f, EVENTS_SINKS);
    assert_true(events_sink_add(f->hub, &f->r[EVENTS_SINKS].sink, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    publish(f);
    assert_seen(&f->r[EVENTS_SINKS], "");
    events_sink_remove(f->hub, &f->r[EVENTS_SINKS].sink); // it never was added
    events_sink_remove(f->hub, &f->r[3].sink);
    events_sink_remove(f->hub, &f->r[3].sink); // again
    assert_int_equal(events_sink_add(f->hub, &f->r[EVENTS_SINKS].sink, &e), 0);
    publish(f);
    assert_seen(&f->r[EVENTS_SINKS], "2");
    assert_seen(&f->r[3], "1");
    assert_seen(&f->r[7], "12");
}

static void
a_sink_that_fails_is_counted_and_hinders_no_other(void **state)
{
    struct fixture *f = *state;
    add(f, 3);
    f->r[1].result = -ENOMEM;
    publish(f);
    publish(f);
    f->r[1].result = 0;
    publish(f);
    for (unsigned i = 0; i < 3; i++)
        assert_seen(&f->r[i], "123");
    assert_int_equal(metrics_sum(METRIC_SINK_FAILED), 2);
    assert_int_equal(metrics_value(METRIC_SINK_FAILED, f->r[1].sink.number, 0), 2);
    assert_string_equal(metrics_label_value(METRIC_BY_SINK, f->r[1].sink.number), "b");
}

static void
a_sink_may_remove_itself_and_any_other_while_it_is_called(void **state)
{
    struct fixture *f = *state;
    add(f, 5);
    f->r[0].removes = &f->r[1]; // the next one
    f->r[2].removes = &f->r[2]; // itself
    f->r[3].removes = &f->r[0]; // one that had its turn
    publish(f);
    publish(f);
    assert_seen(&f->r[0], "1");
    assert_seen(&f->r[1], "");
    assert_seen(&f->r[2], "1");
    assert_seen(&f->r[3], "12");
    assert_seen(&f->r[4], "12");
}

static void
the_last_sink_may_be_removed_while_the_one_before_is_called(void **state)
{
    struct fixture *f = *state;
    add(f, 2);
    f->r[0].removes = &f->r[1];
    publish(f);
    f->r[0].removes = &f->r[0];
    publish(f);
    publish(f);
    assert_seen(&f->r[0], "12");
    assert_seen(&f->r[1], "");
}

static void
a_sink_that_is_added_during_an_event_gets_the_next_one(void **state)
{
    struct fixture *f = *state;
    add(f, 2);
    f->r[0].adds = &f->r[2];
    f->r[1].adds = &f->r[3];
    publish(f);
    assert_seen(&f->r[2], "");
    assert_seen(&f->r[3], "");
    publish(f);
    assert_seen(&f->r[0], "12");
    assert_seen(&f->r[1], "12");
    assert_seen(&f->r[2], "2");
    assert_seen(&f->r[3], "2");
}

// The first that was added during an event ends the walk, so its removal must not.
static void
a_sink_may_be_added_and_removed_during_one_event(void **state)
{
    struct fixture *f = *state;
    add(f, 3);
    f->r[0].adds = &f->r[3];
    f->r[1].removes = &f->r[3];
    f->r[2].adds = &f->r[4];
    publish(f);
    publish(f);
    assert_seen(&f->r[2], "12");
    assert_seen(&f->r[3], "");
    assert_seen(&f->r[4], "2");
}

// One that is removed and added again during an event is a new one: it had its turn, or gets the next event.
static void
a_sink_that_comes_back_during_an_event_does_not_get_it_twice(void **state)
{
    struct fixture *f = *state;
    add(f, 2);
    f->r[0].removes = &f->r[0];
    f->r[0].adds = &f->r[0];
    publish(f);
    assert_seen(&f->r[0], "1");
    publish(f);
    assert_seen(&f->r[0], "12");
    assert_seen(&f->r[1], "12");
}

int
main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(there_are_so_many_and_no_more_until_one_is_removed),
        TEST(a_sink_that_fails_is_counted_and_hinders_no_other),
        TEST(a_sink_may_remove_itself_and_any_other_while_it_is_called),
        TEST(the_last_sink_may_be_removed_while_the_one_before_is_called),
        TEST(a_sink_that_is_added_during_an_event_gets_the_next_one),
        TEST(a_sink_may_be_added_and_removed_during_one_event),
        TEST(a_sink_that_comes_back_during_an_event_does_not_get_it_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
