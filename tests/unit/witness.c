// SPDX-License-Identifier: Apache-2.0
// When the two witnesses of a sandbox's traffic agree, contradict each other, or cannot be compared.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "server/network/witness.h"

enum { SLOT = 5, GENERATION = 2 };

// Two connections, 1,000 bytes out and 9,000 in, 100 bytes as datagrams each way, and all of it reported.
static struct witness
honest(void)
{
    struct witness w = {
        .before = {.out_packets = 9,
                   .in_packets = 9,
                   .connections = 2,
                   .tcp_sent = 1000,
                   .tcp_acknowledged = 1000,
                   .tcp_received = 9000,
                   .udp_sent = 100,
                   .udp_received = 100},
        .relay = {.connections = 2, .tcp_out = 1000, .tcp_in = 9000, .udp_out = 100, .udp_in = 100},
        .reported = 2,
        .asked = true,
        .answered = true,
    };
    w.after = w.before;
    return w;
}

static const char *
disagrees(const struct witness *w)
{
    const char *why = NULL;
    assert_int_equal(witness_judge(w, &why), WITNESS_DISAGREE);
    return why;
}

static void
what_the_relay_leaves_out_contradicts_the_kernel(void **state)
{
    (void)state;
    struct witness w = honest();
    w.relay.tcp_out--;
    assert_non_null(strstr(disagrees(&w), "fewer bytes than the job sent"));
    w = honest();
    w.relay.tcp_in--;
    assert_non_null(strstr(disagrees(&w), "fewer bytes than the job received"));
    w = honest();
    w.relay.udp_out--;
    assert_non_null(strstr(disagrees(&w), "fewer bytes than the job sent"));
    w = honest();
    w.relay.udp_in--;
    assert_non_null(strstr(disagrees(&w), "fewer bytes than the job received"));
    w = honest();
    w.relay.connections--;
    assert_non_null(strstr(disagrees(&w), "fewer connections"));
    w = honest();
    w.reported--;
    assert_non_null(strstr(disagrees(&w), "did not report every connection"));
}

static void
what_the_relay_invents_contradicts_the_kernel(void **state)
{
    (void)state;
    struct witness w = honest();
    w.relay.tcp_out++;
    (void)disagrees(&w);
    w = honest();
    w.relay.tcp_in++;
    (void)disagrees(&w);
    w = honest();
    w.relay.udp_out++;
    (void)disagrees(&w);
    w = honest();
    w.relay.connections++;
    (void)disagrees(&w);
    w = (struct witness){.reported = 1}; // no packet left the sandbox
    (void)disagrees(&w);
}

static void
what_the_relay_accounts_for_agrees(void **state)
{
    (void)state;
    const char *why = NULL;
    struct witness w = honest();
    assert_int_equal(witness_judge(&w, &why), WITNESS_AGREE);
    assert_string_equal(why, "");
    w.relay.tcp_out -= 400; // a slow destination
    w.relay.tcp_left = 400;
    w.relay.tcp_in += 50; // the job reads no more
    w.relay.tcp_unsent = 50;
    w.relay.udp_out -= 10; // a rate
    w.relay.udp_dropped = 10;
    w.relay.udp_in += 7;      // the socket was closed
    w.after.tcp_sent += 5000; // while the relay answered
    assert_int_equal(witness_judge(&w, &why), WITNESS_AGREE);
    w = (struct witness){0};
    assert_int_equal(witness_judge(&w, &why), WITNESS_AGREE);
}

static void
is_unknown(const struct witness *w, const char *part)
{
    const char *why = NULL;
    assert_int_equal(witness_judge(w, &why), WITNESS_UNKNOWN);
    assert_non_null(strstr(why, part));
}

static void
what_was_lost_is_unknown_and_never_agrees(void **state)
{
    (void)state;
    struct witness w = honest();
    w.lost = 1;
    w.reported--;
    is_unknown(&w, "reports of the relay were lost");
    w = honest();
    w.answered = false;
    is_unknown(&w, "did not report its counters");
    w = honest();
    w.restarted = true;
    is_unknown(&w, "started again");
    w = honest();
    w.after.failures = 1;
    is_unknown(&w, "could not count");
    w = honest();
    w.overrun = true;
    w.relay.connections--;
    is_unknown(&w, "more waited");
    w = honest();
    w.reported--;
    w.relay.undecided = 1;
    is_unknown(&w, "still being made");
    w = honest();
    w.relay.tcp_lost = 1;
    w.relay.connections--;
    w.reported--;
    is_unknown(&w, "connections were lost");
    w = honest();
    w.relay.udp_lost = 1;
    w.relay.udp_out -= 30;
    is_unknown(&w, "datagrams were lost");
}

static void
a_reset_hides_no_more_than_was_on_its_way(void **state)
{
    (void)state;
    struct witness w = honest();
    w.before.tcp_sent = w.before.tcp_acknowledged = w.after.tcp_sent = w.after.tcp_acknowledged =
        10 * WITNESS_WAY_BYTES;
    w.after.resets = 2;
    w.relay.tcp_out = 8 * (uint64_t)WITNESS_WAY_BYTES;
    is_unknown(&w, "reset");
    w.relay.tcp_out--;
    assert_non_null(strstr(disagrees(&w), "fewer bytes than the job sent"));
}

static void
reports_about_another_sandbox_or_none_change_nothing(void **state)
{
    (void)state;
    static struct net_counters kernel[BPF_SLOTS];
    struct witness w;
    struct relay_report r = {.kind = RELAY_FLOW,
                             .slot = SLOT,
                             .generation = GENERATION,
                             .protocol = 6,
                             .first = 1,
                             .lost = 3};
    struct witnesses *all = witnesses_new(kernel);
    assert_non_null(all);
    witnesses_report(all, NULL, &r);
    assert_null(witnesses_of(all, SLOT, GENERATION, &w));
    witnesses_open(all, SLOT, GENERATION);
    r.generation++;
    witnesses_report(all, NULL, &r);
    r.slot++;
    witnesses_report(all, NULL, &r);
    assert_non_null(witnesses_of(all, SLOT, GENERATION, &w));
    assert_int_equal(w.reported + w.lost, 0);
    r.slot = SLOT;
    r.generation = GENERATION;
    witnesses_report(all, NULL, &r);
    witnesses_open(all, SLOT, GENERATION); // again, after a restart
    r.first = 0;
    witnesses_report(all, NULL, &r);
    assert_non_null(witnesses_of(all, SLOT, GENERATION, &w));
    assert_int_equal(w.reported, 1);
    assert_int_equal(w.lost, 3);
    assert_null(witnesses_of(all, SLOT, GENERATION + 1, &w));
    assert_false(witnesses_ask(all, NULL, SLOT, GENERATION, NULL)); // there is no relay
    witnesses_relay_gone(all);
    assert_true(witnesses_of(all, SLOT, GENERATION, &w)->restarted);
    witnesses_forget(all, SLOT);
    assert_null(witnesses_of(all, SLOT, GENERATION, &w));
    witnesses_free(all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_relay_leaves_out_contradicts_the_kernel),
        cmocka_unit_test(what_the_relay_invents_contradicts_the_kernel),
        cmocka_unit_test(what_the_relay_accounts_for_agrees),
        cmocka_unit_test(what_was_lost_is_unknown_and_never_agrees),
        cmocka_unit_test(a_reset_hides_no_more_than_was_on_its_way),
        cmocka_unit_test(reports_about_another_sandbox_or_none_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
