// SPDX-License-Identifier: Apache-2.0
// The broker's end of the relay's socket: the broker does not trust the relay, and its reports are bounded by its
// orders.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/fdpass.h"
#include "server/network/relay_link.h"
#include "server/sandbox/simulation.h"

enum { SLOT = 3, GENERATION = 9 };

struct fixture {
    uv_loop_t loop;
    struct relay_link *link;
    int relay; // the other end
    unsigned reports, in_force, ready, silent, gone, done;
    bool free_in_event;
    struct relay_report last;
    char why[512];
};

static void
on_report(void *cookie, const struct relay_report *r)
{
    struct fixture *f = cookie;
    f->reports++;
    f->last = *r;
    if (f->free_in_event)
        relay_link_free(f->link);
}

static void
on_ready(void *cookie)
{
    ((struct fixture *)cookie)->ready++;
}

static void
on_silent(void *cookie)
{
    struct fixture *f = cookie;
    f->silent++;
    if (f->free_in_event)
        relay_link_free(f->link);
}

static void
on_gone(void *cookie, const struct err *why)
{
    struct fixture *f = cookie;
    f->gone++;
    (void)snprintf(f->why, sizeof f->why, "%s", why->text);
}

static void
on_done(void *cookie)
{
    struct fixture *f = cookie;
    assert_int_equal(f->gone, 0); // not before
    f->done++;
}

static void
on_in_force(void *cookie, uint32_t slot, uint32_t generation)
{
    struct fixture *f = cookie;
    assert_int_equal(slot, SLOT);
    assert_int_equal(generation, GENERATION);
    assert_int_equal(f->gone, 0); // not before
    f->in_force++;
}

static const struct relay_events events = {.report = on_report,
                                           .in_force = on_in_force,
                                           .ready = on_ready,
                                           .silent = on_silent,
                                           .gone = on_gone};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int ends[2];
    struct err e;
    assert_non_null(f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->relay = ends[1];
    f->link = relay_link_new(&f->loop, ends[0], &events, f, &e);
    assert_non_null(f->link);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    if (!f->free_in_event)
        relay_link_free(f->link);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    if (f->relay >= 0)
        (void)close(f->relay);
    free(f);
    return 0;
}

static void
turn(struct fixture *f)
{
    for (int i = 0; i < 3; i++)
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void
configure(struct fixture *f)
{
    struct err e;
    const struct relay_servers servers = {.n = 0};
    assert_int_equal(relay_configure(f->link, &servers, &e), 0);
}

static int
open_slot(struct fixture *f, const struct relay_policy *p, struct err *e)
{
    int fds[RELAY_FDS] = {open("/dev/null", O_RDONLY | O_CLOEXEC), -1,
                          open("/dev/null", O_RDONLY | O_CLOEXEC), -1};
    int kept[2] = {fds[0], fds[2]};
    int r = relay_open(f->link, SLOT, GENERATION, fds, p, e);
    assert_int_equal(fds[0], -1);
    // either sent or closed
    assert_true(fcntl(kept[0], F_GETFD) < 0 && fcntl(kept[1], F_GETFD) < 0);
    return r;
}

static void
say(struct fixture *f, const struct relay_report *r)
{
    assert_int_equal(send(f->relay, r, sizeof *r, 0), sizeof *r);
    turn(f);
}

static struct relay_report
flow(void)
{
    return (struct relay_report){
        .kind = RELAY_FLOW, .slot = SLOT, .generation = GENERATION, .rule = UINT32_MAX};
}

static void
expect_gone(struct fixture *f, const char *words)
{
    assert_int_equal(f->gone, 1);
    if (strstr(f->why, words) == NULL)
        print_error("\"%s\", expected \"%s\"\n", f->why, words);
    assert_non_null(strstr(f->why, words));
}

static void
open_one(struct fixture *f)
{
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    configure(f);
    assert_int_equal(open_slot(f, &p, &e), 0);
}

#define BREAKS(test, words, spoil)                                                                 \
    static void test(void **state)                                                                 \
    {                                                                                              \
        struct fixture *f = *state;                                                                \
        struct relay_report r = flow();                                                            \
        open_one(f);                                                                               \
        spoil;                                                                                     \
        say(f, &r);                                                                                \
        expect_gone(f, words);                                                                     \
        assert_int_equal(f->reports, 0);                                                           \
    }

BREAKS(a_report_of_no_kind_ends_the_link, "of kind 99", r.kind = 99)
BREAKS(a_report_about_a_slot_that_is_not_open_ends_the_link, "not open", r.slot = SLOT + 1)
BREAKS(a_report_about_a_slot_beyond_the_table_ends_the_link, "not open", r.slot = UINT32_MAX)
BREAKS(a_report_of_another_generation_ends_the_link, "not open", r.generation++)
BREAKS(a_reason_that_is_none_ends_the_link, "reason", r.reason = NET_REASONS)
BREAKS(an_errno_that_is_none_ends_the_link, "error", r.error = 4096)
BREAKS(a_rule_that_is_none_ends_the_link, "rule", r.rule = NET_RULES)
BREAKS(a_name_without_an_end_ends_the_link, "invalid name", memset(r.name, 'a', sizeof r.name))
BREAKS(a_name_of_other_bytes_ends_the_link, "invalid name", r.name[0] = '\x1b')
BREAKS(an_answer_without_a_ping_ends_the_link, "an unexpected PONG", r.kind = RELAY_PONG)
BREAKS(a_policy_in_force_that_was_not_given_ends_the_link, "was not sent", r.kind = RELAY_IN_FORCE)
BREAKS(closed_without_an_order_ends_the_link, "without an order", r.kind = RELAY_CLOSED)

static void
a_report_of_another_size_ends_the_link(void **state)
{
    struct fixture *f = *state;
    struct relay_report r[2] = {flow(), flow()};
    open_one(f);
    assert_int_equal(send(f->relay, r, sizeof r, 0), sizeof r);
    turn(f);
    expect_gone(f, "bytes");
}

// Of a slot that is simulated, or not; n: the bytes of the packet.
static void
send_sent(struct fixture *f, const struct simulation *m, uint32_t first, size_t n)
{
    struct err e;
    struct relay_sent r = {.report = flow(), .n = first};
    const struct relay_policy p = {.mode = NET_OPEN, .simulation = m};
    r.report.kind = RELAY_SENT;
    configure(f);
    assert_int_equal(open_slot(f, &p, &e), 0);
    assert_int_equal(send(f->relay, &r, n, 0), n);
    turn(f);
}

static void
what_was_sent_ends_the_link_unless_the_sandbox_is_simulated(void **state)
{
    send_sent(*state, NULL, 1, sizeof(struct relay_sent));
    expect_gone(*state, "not simulated");
}

static void
what_was_sent_without_its_bytes_ends_the_link(void **state)
{
    static const struct simulation m = {.refs = 1};
    send_sent(*state, &m, 1, sizeof(struct relay_report));
    expect_gone(*state, "about what was sent");
}

static void
what_was_sent_with_too_many_bytes_ends_the_link(void **state)
{
    static const struct simulation m = {.refs = 1};
    send_sent(*state, &m, RELAY_FIRST_MAX + 1, sizeof(struct relay_sent));
    expect_gone(*state, "about what was sent");
}

static void
what_was_sent_is_passed_on(void **state)
{
    static const struct simulation m = {.refs = 1};
    struct fixture *f = *state;
    send_sent(f, &m, RELAY_FIRST_MAX, sizeof(struct relay_sent));
    assert_int_equal(f->gone, 0);
    assert_int_equal(f->reports, 1);
}

static void
orders_in_the_wrong_state_are_refused(void **state)
{
    struct fixture *f = *state;
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    const struct relay_policy large = {.mode = NET_OPEN, .rules_n = NET_RULES + 1};
    const struct relay_servers servers = {.n = RELAY_SERVERS + 1};
    assert_true(relay_configure(f->link, &servers, &e) < 0);
    configure(f);
    assert_true(relay_configure(f->link, &(struct relay_servers){.n = 0}, &e) < 0);
    assert_null(relay_policy(f->link, SLOT, GENERATION, &p, &e));
    assert_true(relay_close(f->link, SLOT, GENERATION, on_done, f, &e) < 0);
    assert_true(open_slot(f, &large, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    int none[RELAY_FDS] = {-1, -1, -1, -1};
    assert_true(relay_open(f->link, SLOT, GENERATION, none, &p, &e) < 0);
    assert_int_equal(open_slot(f, &p, &e), 0);
    assert_true(open_slot(f, &p, &e) < 0);
    assert_null(relay_policy(f->link, SLOT, GENERATION + 1, &p, &e));
    assert_null(relay_policy(f->link, BPF_SLOTS, GENERATION, &p, &e));
    assert_true(relay_is_open(f->link, SLOT, GENERATION));
    assert_false(relay_is_open(f->link, SLOT, GENERATION + 1));
    assert_int_equal(f->done, 0);
}

static void
orders_carry_policy_and_descriptors(void **state)
{
    struct fixture *f = *state;
    struct err e;
    struct relay_rule rule = {.kind = RELAY_NAME, .name = "a.example"};
    const struct relay_policy p = {
        .mode = NET_ALLOWLIST, .out_bytes_max = 5, .in_rate = 6, .rules_n = 1, .rules = &rule};
    configure(f);
    assert_int_equal(open_slot(f, &p, &e), 0);
    struct relay_order o;
    assert_int_equal(recv(f->relay, &o, sizeof o, 0), sizeof o);
    assert_int_equal(o.kind, RELAY_CONFIGURE);
    _Alignas(struct relay_order) uint8_t bytes[sizeof o + 2 * sizeof rule];
    int fds[RELAY_FDS];
    struct fdpass m = {bytes, sizeof bytes, fds, RELAY_FDS};
    assert_int_equal(fdpass_receive(f->relay, &m, 0), 1);
    assert_int_equal(m.n, sizeof o + sizeof rule);
    memcpy(&o, bytes, sizeof o);
    assert_int_equal(o.kind, RELAY_OPEN);
    assert_int_equal(o.slot, SLOT);
    assert_int_equal(o.mode, NET_ALLOWLIST);
    assert_int_equal(o.out_bytes_max, 5);
    assert_int_equal(o.in_rate, 6);
    assert_memory_equal(bytes + sizeof o, &rule, sizeof rule);
    assert_int_equal(m.fds_n, 2);
    fdpass_close(fds, RELAY_FDS);
}

// Sends until no more is accepted. Returns how many were.
static unsigned
fill(struct fixture *f, const struct relay_policy *p)
{
    struct err e;
    unsigned sent = 0;
    struct packet *order = NULL;
    while (sent < 20000 && (order = relay_policy(f->link, SLOT, GENERATION, p, &e)) != NULL) {
        relay_give(f->link, order);
        sent++;
    }
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(f->gone, 0);
    return sent;
}

static void
orders_that_the_relay_does_not_read_wait_within_bounds(void **state)
{
    struct fixture *f = *state;
    struct err e;
    static struct relay_rule rules[NET_RULES];
    const struct relay_policy p = {.mode = NET_OPEN, .rules_n = NET_RULES, .rules = rules};
    configure(f);
    assert_int_equal(open_slot(f, &p, &e), 0);
    unsigned sent = fill(f, &p);
    assert_true(sent > 100 && sent < 1000);
    static uint8_t bytes[sizeof(struct relay_order) + sizeof rules];
    for (unsigned i = 0; i < sent + 2; i++) { // now the relay reads
        ssize_t n = -1;
        for (int tries = 0; n < 0 && tries < 100; tries++) {
            n = recv(f->relay, bytes, sizeof bytes, MSG_DONTWAIT);
            turn(f);
        }
        assert_true(n > 0);
    }
    struct packet *order = relay_policy(f->link, SLOT, GENERATION, &p, &e);
    assert_non_null(order);
    relay_give(f->link, order);
}

static void
a_relay_that_does_not_read_is_disconnected_when_a_sandbox_closes(void **state)
{
    struct fixture *f = *state;
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    open_one(f);
    (void)fill(f, &p);
    assert_int_equal(relay_close(f->link, SLOT, GENERATION, on_done, f, &e), 0);
    assert_int_equal(f->done, 0); // never from inside
    turn(f);
    assert_int_equal(f->done, 1);
    expect_gone(f, "the relay has ended");
}

static void
reports_are_passed_on_and_a_close_is_called_back_once(void **state)
{
    struct fixture *f = *state;
    struct err e;
    struct relay_report r = {.kind = RELAY_READY, .rule = UINT32_MAX};
    open_one(f);
    say(f, &r);
    assert_int_equal(f->ready, 1);
    r = flow();
    (void)snprintf(r.name, sizeof r.name, "a.example");
    say(f, &r);
    assert_int_equal(f->reports, 1);
    assert_string_equal(f->last.name, "a.example");
    assert_int_equal(relay_close(f->link, SLOT, GENERATION, on_done, f, &e), 0);
    assert_true(relay_close(f->link, SLOT, GENERATION, on_done, f, &e) < 0);
    say(f, &r); // a report that was in transit
    assert_int_equal(f->reports, 2);
    r.kind = RELAY_CLOSED;
    say(f, &r);
    assert_int_equal(f->done, 1);
    const struct relay_policy p = {.mode = NET_OPEN};
    assert_int_equal(open_slot(f, &p, &e), 0); // the slot can be opened again
}

static void
the_relays_end_calls_back_every_close_and_is_reported_once(void **state)
{
    struct fixture *f = *state;
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    open_one(f);
    assert_int_equal(relay_close(f->link, SLOT, GENERATION, on_done, f, &e), 0);
    (void)close(f->relay);
    f->relay = -1;
    turn(f);
    assert_int_equal(f->done, 1);
    expect_gone(f, "has ended");
    turn(f);
    assert_int_equal(f->gone, 1);
    assert_true(open_slot(f, &p, &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
}

static void
the_link_may_be_freed_inside_an_event(void **state)
{
    struct fixture *f = *state;
    struct relay_report r = flow();
    open_one(f);
    f->free_in_event = true;
    assert_int_equal(send(f->relay, &r, sizeof r, 0), sizeof r);
    assert_int_equal(send(f->relay, &r, sizeof r, 0), sizeof r);
    turn(f);
    assert_int_equal(f->reports, 1);
}

static unsigned
orders_of(struct fixture *f, uint32_t kind)
{
    struct relay_order o = {0};
    unsigned n = 0;
    while (recv(f->relay, &o, sizeof o, MSG_DONTWAIT) > 0)
        n += o.kind == kind;
    return n;
}

static void
a_policy_is_in_force_when_the_relay_has_carried_out_the_last_or_has_ended(void **state)
{
    struct fixture *f = *state;
    struct relay_report r = flow();
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    open_one(f);
    r.kind = RELAY_IN_FORCE;
    for (int i = 0; i < 2; i++)
        relay_give(f->link, relay_policy(f->link, SLOT, GENERATION, &p, &e));
    turn(f);
    assert_int_equal(f->in_force, 0);
    say(f, &r);
    assert_int_equal(f->in_force, 0);
    say(f, &r);
    assert_int_equal(f->in_force, 1);
    relay_give(f->link, relay_policy(f->link, SLOT, GENERATION, &p, &e));
    (void)close(f->relay);
    f->relay = -1;
    turn(f);
    assert_int_equal(f->in_force, 2);
    assert_int_equal(f->gone, 1);
}

static void
cuts_by_the_kernel_are_sent_once_under_each_policy(void **state)
{
    struct fixture *f = *state;
    struct err e;
    const struct relay_policy p = {.mode = NET_OPEN};
    open_one(f);
    relay_spent(f->link, SLOT, GENERATION);
    relay_spent(f->link, SLOT, GENERATION);
    relay_spent(f->link, SLOT, GENERATION + 1);
    assert_int_equal(orders_of(f, RELAY_SPENT), 1);
    relay_give(f->link, relay_policy(f->link, SLOT, GENERATION, &p, &e));
    relay_spent(f->link, SLOT, GENERATION);
    assert_int_equal(orders_of(f, RELAY_SPENT), 1);
}

// Reads orders up to the next ping. Returns its number.
static uint32_t
await_ping(struct fixture *f)
{
    struct relay_order o = {0};
    while (o.kind != RELAY_PING) {
        (void)uv_run(&f->loop, UV_RUN_ONCE);
        o.kind = 0;
        (void)recv(f->relay, &o, sizeof o, MSG_DONTWAIT);
    }
    return o.generation;
}

static void
only_a_relay_that_does_not_respond_is_silent(void **state)
{
    struct fixture *f = *state;
    struct relay_report r = {.kind = RELAY_READY, .rule = UINT32_MAX};
    open_one(f);
    say(f, &r);
    r.kind = RELAY_PONG;
    for (int i = 0; i < 2; i++) {
        r.generation = await_ping(f);
        assert_int_equal(f->silent, 0);
        say(f, &r);
    }
    uint64_t began = uv_hrtime();
    while (f->silent == 0 && f->gone == 0)
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    assert_true(uv_hrtime() - began >= (uint64_t)RELAY_SILENT_MS * 1000000);
    assert_int_equal(f->gone, 0);
    struct err why;
    (void)err_set(&why, ERR_UNAVAILABLE, "enough");
    relay_link_end(f->link, &why);
    expect_gone(f, "enough");
    relay_link_end(f->link, &why);
    assert_int_equal(f->gone, 1);
}

#define LINK_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LINK_TEST(a_report_of_no_kind_ends_the_link),
        LINK_TEST(a_report_about_a_slot_that_is_not_open_ends_the_link),
        LINK_TEST(a_report_about_a_slot_beyond_the_table_ends_the_link),
        LINK_TEST(a_report_of_another_generation_ends_the_link),
        LINK_TEST(a_reason_that_is_none_ends_the_link),
        LINK_TEST(an_errno_that_is_none_ends_the_link),
        LINK_TEST(a_rule_that_is_none_ends_the_link),
        LINK_TEST(a_name_without_an_end_ends_the_link),
        LINK_TEST(a_name_of_other_bytes_ends_the_link),
        LINK_TEST(an_answer_without_a_ping_ends_the_link),
        LINK_TEST(closed_without_an_order_ends_the_link),
        LINK_TEST(a_report_of_another_size_ends_the_link),
        LINK_TEST(what_was_sent_ends_the_link_unless_the_sandbox_is_simulated),
        LINK_TEST(what_was_sent_without_its_bytes_ends_the_link),
        LINK_TEST(what_was_sent_with_too_many_bytes_ends_the_link),
        LINK_TEST(what_was_sent_is_passed_on),
        LINK_TEST(orders_in_the_wrong_state_are_refused),
        LINK_TEST(orders_carry_policy_and_descriptors),
        LINK_TEST(orders_that_the_relay_does_not_read_wait_within_bounds),
        LINK_TEST(a_relay_that_does_not_read_is_disconnected_when_a_sandbox_closes),
        LINK_TEST(reports_are_passed_on_and_a_close_is_called_back_once),
        LINK_TEST(the_relays_end_calls_back_every_close_and_is_reported_once),
        LINK_TEST(the_link_may_be_freed_inside_an_event),
        LINK_TEST(a_policy_in_force_that_was_not_given_ends_the_link),
        LINK_TEST(a_policy_is_in_force_when_the_relay_has_carried_out_the_last_or_has_ended),
        LINK_TEST(cuts_by_the_kernel_are_sent_once_under_each_policy),
        LINK_TEST(only_a_relay_that_does_not_respond_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
