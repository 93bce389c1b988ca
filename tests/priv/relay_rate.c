// SPDX-License-Identifier: Apache-2.0
// The rate of a sandbox is one bucket per direction: for any number of flows, bytes arrive at the rate, within 5 %.
// On a busy machine a delayed process finds the bytes of a longer time at once, so a measurement that is off is
// repeated over a longer time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/resource.h>

#include "tests/harness/relay_world.h"

enum {
    PORT = 7000,
    RATE = 2000000,
    MOST_FLOWS = 256,
    CHUNK = 16384,
    DATAGRAM = 1000,
    WARM_MS = 100,
    MEASURED_MS = 600,
    TRIES = 6,
};

struct rig {
    int type, n;
    bool out;
    int job[MOST_FLOWS], peer[MOST_FLOWS];
    struct sockaddr_in to[MOST_FLOWS]; // of associations, UDP
    int server;
};

static uint64_t
now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void
open_flows(struct rig *r)
{
    r->server = box_bound(r->type, INADDR_LOOPBACK, PORT);
    for (int i = 0; i < r->n; i++) {
        r->job[i] = box_connect(r->type, INADDR_LOOPBACK, PORT);
        assert_true(r->job[i] >= 0);
        if (r->type == SOCK_STREAM) {
            r->peer[i] = accept(r->server, NULL, NULL);
        } else {
            char byte;
            socklen_t n = sizeof r->to[i];
            r->peer[i] = r->server;
            box_say(r->job[i], "!");
            assert_int_equal(recvfrom(r->server, &byte, 1, 0, (struct sockaddr *)&r->to[i], &n), 1);
        }
        assert_true(r->peer[i] >= 0);
    }
}

static void
close_flows(struct rig *r)
{
    for (int i = 0; i < r->n; i++) {
        (void)close(r->job[i]);
        if (r->type == SOCK_STREAM)
            (void)close(r->peer[i]);
    }
    (void)close(r->server);
}

// Sends and receives as much as possible now. Returns how much was received.
static uint64_t
turn(const struct rig *r)
{
    static char bytes[CHUNK];
    uint64_t got = 0;
    for (int i = 0; i < r->n; i++) {
        int from = r->out ? r->job[i] : r->peer[i];
        int to = r->out ? r->peer[i] : r->job[i];
        if (r->type == SOCK_STREAM)
            (void)send(from, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        else if (r->out)
            (void)send(from, bytes, DATAGRAM, MSG_DONTWAIT);
        else
            (void)sendto(from, bytes, DATAGRAM, MSG_DONTWAIT, (const struct sockaddr *)&r->to[i],
                         sizeof r->to[i]);
        for (ssize_t n = 0; (n = recv(to, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
            got += (uint64_t)n;
    }
    return got;
}

// Bytes per second that arrive.
static double
measure(const struct rig *r, uint64_t ms)
{
    uint64_t began = now_ns();
    while (now_ns() - began < (uint64_t)WARM_MS * 1000000)
        (void)turn(r);
    uint64_t got = 0;
    uint64_t now = 0;
    began = now_ns();
    do {
        got += turn(r);
        now = now_ns();
    } while (now - began < ms * 1000000);
    return (double)got * 1e9 / (double)(now - began);
}

static void
expect_rate(int type, bool out, int n)
{
    static struct rig r;
    struct box_policy p = box_policy(NET_ALLOWLIST);
    double error = 1;
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
    if (out)
        p.out_rate = RATE;
    else
        p.in_rate = RATE;
    box_open(&p);
    r = (struct rig){.type = type, .out = out, .n = n};
    open_flows(&r);
    for (int i = 0; i < TRIES && (error < -0.05 || error > 0.05); i++) {
        error = measure(&r, (uint64_t)MEASURED_MS * (uint64_t)(i + 1)) / RATE - 1;
        print_message("%s %s, %d flows: %+.1f %%\n", type == SOCK_STREAM ? "TCP" : "UDP",
                      out ? "out" : "in", n, 100 * error);
    }
    assert_true(error <= 0.05);
    if (scaled_ms(1) == 1) // an emulated machine may be slower than the limit
        assert_true(error >= -0.05);
    close_flows(&r);
    box_close();
}

static void
tcp_keeps_the_rate_over_any_number_of_flows(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_FLOWS; n *= 16) {
        expect_rate(SOCK_STREAM, true, n);
        expect_rate(SOCK_STREAM, false, n);
    }
}

static void
udp_keeps_the_rate_over_any_number_of_flows(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_FLOWS; n *= 16) {
        expect_rate(SOCK_DGRAM, true, n);
        expect_rate(SOCK_DGRAM, false, n);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_keeps_the_rate_over_any_number_of_flows),
        cmocka_unit_test(udp_keeps_the_rate_over_any_number_of_flows),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
