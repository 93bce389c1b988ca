// SPDX-License-Identifier: Apache-2.0
// Connections of one sandbox leave ports for others: they have a rate limit, and a lack of ports is reported as such.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_flow.h"

enum { PORT = 7000, BURST = 2000, MORE = 60, PER_SECOND = 150, PORTS = 2 };

static struct box_policy
loopback_policy(void)
{
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
    return p;
}

static double
now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Nothing listens, so each connection fails and is reset.
static void
dial_and_fail(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        box_expect_reset(box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT));
        box_drain();
    }
}

static void
beyond_its_burst_a_sandbox_connects_at_its_rate_without_failures(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    box_open(&p);
    double begin = now_s();
    dial_and_fail(BURST);
    double earned = (now_s() - begin) * PER_SECOND;
    begin = now_s();
    dial_and_fail((unsigned)earned + MORE);
    assert_true(now_s() - begin > 0.5 * MORE / PER_SECOND); // never faster, even on a slow machine
    box_close();
}

static void
a_lack_of_local_ports_is_reported_as_such(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range",
                    "we"); // of the namespace that stands for the host
    assert_non_null(f);
    assert_true(fprintf(f, "45000 %d", 45000 + PORTS - 1) > 0);
    assert_int_equal(fclose(f), 0);
    box_open(&p);
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    int jobs[PORTS + 1];
    for (int i = 0; i < PORTS + 1; i++)
        jobs[i] = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    struct relay_report end = box_await(RELAY_FLOW_END);
    assert_int_equal(end.error, EADDRNOTAVAIL);
    assert_int_equal(end.reason, NET_REASON_NONE);
    for (int i = 0; i < PORTS + 1; i++)
        (void)close(jobs[i]);
    (void)close(server);
    box_close();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beyond_its_burst_a_sandbox_connects_at_its_rate_without_failures),
        cmocka_unit_test(a_lack_of_local_ports_is_reported_as_such),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
