// SPDX-License-Identifier: Apache-2.0
// The cost of the relay: a TCP connection with one byte in each direction, and bulk data, with the relay and without.
//
//   bench-relay CONNECTIONS TRANSFERS
//
// As root. The relay is the real one, between two network namespaces of this program (tests/harness/relay_box.h); the
// rows alternate. "direct": the same sockets in one namespace.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_flow.h"
#include "bench.h"

enum { PORT = 7000, TRANSFER_BYTES = 256 << 20, BLOCK = 1 << 18 };

static int server;

// Connects to the server (number 0), or to a flow.
static int
connect_to(uint32_t number)
{
    int fd = box_socket(AF_INET, SOCK_STREAM);
    struct sockaddr_in sa =
        number == 0 ? box_v4(INADDR_LOOPBACK, PORT) : box_v4(NET_FLOW_V4 + number, NET_RELAY_PORT);
    if (connect(fd, (const struct sockaddr *)&sa, sizeof sa) < 0)
        bench_die("connect: %s", strerror(errno));
    return fd;
}

// The kernel's part, which is not measured: adds the flow. The job's socket is made in the sandbox.
static uint32_t
prepare(bool relayed)
{
    uint8_t to[16];
    box_mapped(INADDR_LOOPBACK, to);
    uint32_t number = box_flow(to, PORT, IPPROTO_TCP);
    box_enter(relayed ? box.sandbox_ns : box.host_ns);
    return relayed ? number : 0;
}

static int
accept_one(void)
{
    int fd = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        bench_die("accept: %s", strerror(errno));
    return fd;
}

// From socket() until the byte returns.
static void
one_connection(struct samples *s, bool relayed)
{
    char byte = 'x';
    uint32_t number = prepare(relayed);
    double begin = bench_now();
    int job = connect_to(number);
    int peer = accept_one();
    if (send(job, &byte, 1, 0) != 1 || recv(peer, &byte, 1, 0) != 1 ||
        send(peer, &byte, 1, 0) != 1 || recv(job, &byte, 1, 0) != 1)
        bench_die("no byte came back");
    samples_add(s, bench_now() - begin);
    box_enter(box.host_ns);
    (void)close(job);
    (void)close(peer);
    box_drain();
}

static void
one_transfer(struct samples *s, bool relayed)
{
    static uint8_t block[BLOCK];
    int job = connect_to(prepare(relayed));
    int peer = accept_one();
    double begin = bench_now();
    pid_t writer = fork();
    if (writer == 0) {
        for (size_t left = TRANSFER_BYTES; left > 0;) {
            ssize_t n = send(job, block, left < BLOCK ? left : BLOCK, MSG_NOSIGNAL);
            if (n <= 0)
                _exit(1);
            left -= (size_t)n;
        }
        (void)shutdown(job, SHUT_WR);
        _exit(0);
    }
    size_t got = 0;
    for (ssize_t n = 1; n > 0; got += (size_t)(n > 0 ? n : 0))
        n = recv(peer, block, sizeof block, 0);
    if (got != TRANSFER_BYTES)
        bench_die("%zu bytes came", got);
    samples_add(s, bench_now() - begin);
    (void)waitpid(writer, NULL, 0);
    box_enter(box.host_ns);
    (void)close(job);
    (void)close(peer);
    box_drain();
}

static void
print_transfers(struct samples *s)
{
    char more[64];
    // samples_at() needs them sorted; the printed median uses the same samples.
    double us = 0;
    for (size_t i = 0; i < s->n; i++)
        us += s->us[i] / (double)s->n;
    (void)snprintf(more, sizeof more, ", \"mb_per_second\": %.0f", TRANSFER_BYTES / us);
    samples_print(s, "relay 256 MiB", more);
}

int
main(int argc, char **argv)
{
    long connections = argc > 1 ? strtol(argv[1], NULL, 10) : 2000;
    long transfers = argc > 2 ? strtol(argv[2], NULL, 10) : 10;
    struct samples rows[4] = {{.row = "direct"},
                              {.row = "through the relay"},
                              {.row = "direct"},
                              {.row = "through the relay"}};
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
    (void)box_setup(NULL);
    box_open(&p);
    server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    for (long i = 0; i < connections; i++)
        for (int relayed = 0; relayed < 2; relayed++)
            one_connection(&rows[relayed], relayed != 0);
    for (long i = 0; i < transfers; i++)
        for (int relayed = 0; relayed < 2; relayed++)
            one_transfer(&rows[2 + relayed], relayed != 0);
    samples_print(&rows[0], "relay connect", "");
    samples_print(&rows[1], "relay connect", "");
    print_transfers(&rows[2]);
    print_transfers(&rows[3]);
    box_close();
    return box_teardown(NULL);
}
