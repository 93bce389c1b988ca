// SPDX-License-Identifier: Apache-2.0
// Packets to a socket: refused ones, queued ones, and descriptors that are closed exactly once.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "proto/fdpass.h"
#include "server/base/packets.h"
#include "tests/harness/process.h"

enum { PACKET_MAX = 64 * 1024, QUEUE_MAX = 8, QUEUE_BYTES_MAX = 3 * PACKET_MAX, SMALL = 100 };

struct fixture {
    struct packets q;
    int peer;
    struct err e;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int ends[2];
    const int small = 1; // the kernel uses 4,608 then
    assert_non_null(f);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    f->q = (struct packets){.fd = ends[0],
                            .peer = "the other",
                            .packet_max = PACKET_MAX,
                            .queue_max = QUEUE_MAX,
                            .queue_bytes_max = QUEUE_BYTES_MAX};
    packets_init(&f->q);
    f->peer = ends[1];
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    packets_clear(&f->q);
    assert_int_equal(f->q.queued_bytes, 0);
    (void)close(f->q.fd);
    if (f->peer >= 0)
        (void)close(f->peer);
    free(f);
    return 0;
}

static struct packet *
packet(struct fixture *f, size_t n, size_t fds_n)
{
    struct packet *p = packet_new(&f->q, n, &f->e);
    assert_non_null(p);
    for (; p->fds_n < fds_n; p->fds_n++) {
        p->fds[p->fds_n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(p->fds[p->fds_n] >= 0);
    }
    return p;
}

// Sends until the socket is full and one packet is queued. Returns how many the socket accepted.
static unsigned
fill(struct fixture *f)
{
    for (unsigned n = 0;; n++) {
        struct packet *p = packet(f, SMALL, 0);
        p->bytes[0] = (uint8_t)n;
        assert_int_equal(packets_send(&f->q, p, &f->e), 0);
        if (f->q.queued > 0)
            return n;
    }
}

static void
a_packet_above_its_size_is_refused_before_anything_is_made(void **state)
{
    struct fixture *f = *state;
    assert_null(packet_new(&f->q, PACKET_MAX + 1, &f->e));
    assert_int_equal(f->e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(f->e.text, "65537 bytes; the other accepts at most 65536");
    assert_null(packet_new(&f->q, SIZE_MAX, &f->e));
    packet_free(packet(f, PACKET_MAX, 0));
}

static void
a_packet_that_never_fits_is_an_error_and_is_closed(void **state)
{
    struct fixture *f = *state;
    unsigned before = process_fds(getpid());
    assert_true(packets_send(&f->q, packet(f, PACKET_MAX, PACKET_FDS), &f->e) < 0);
    assert_int_equal(f->e.sys, EMSGSIZE);
    assert_int_equal(process_fds(getpid()), before);
    assert_int_equal(f->q.queued, 0);
}

static void
a_full_queue_refuses_by_number_and_keeps_what_it_has(void **state)
{
    struct fixture *f = *state;
    (void)fill(f);
    while (f->q.queued < QUEUE_MAX)
        assert_int_equal(packets_send(&f->q, packet(f, SMALL, 0), &f->e), 0);
    unsigned before = process_fds(getpid());
    assert_true(packets_send(&f->q, packet(f, SMALL, 2), &f->e) < 0);
    assert_int_equal(f->e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(f->e.text, "the other does not read its messages");
    assert_int_equal(process_fds(getpid()), before);
    assert_int_equal(f->q.queued, QUEUE_MAX);
}

static void
a_full_queue_refuses_by_bytes_to_the_last_one(void **state)
{
    struct fixture *f = *state;
    (void)fill(f);
    assert_int_equal(packets_send(&f->q, packet(f, PACKET_MAX, 0), &f->e), 0);
    assert_int_equal(packets_send(&f->q, packet(f, PACKET_MAX, 0), &f->e), 0);
    size_t rest = QUEUE_BYTES_MAX - f->q.queued_bytes;
    assert_true(packets_send(&f->q, packet(f, rest + 1, 1), &f->e) < 0);
    assert_int_equal(f->e.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(packets_send(&f->q, packet(f, rest, 0), &f->e), 0);
    assert_true(packets_send(&f->q, packet(f, 1, 0), &f->e) < 0);
}

static void
packets_to_a_closed_peer_are_discarded(void **state)
{
    struct fixture *f = *state;
    unsigned before = process_fds(getpid()) - 1;
    (void)close(f->peer);
    f->peer = -1;
    assert_int_equal(packets_send(&f->q, packet(f, SMALL, 3), &f->e), 0);
    assert_int_equal(process_fds(getpid()), before);
    assert_int_equal(packets_events(&f->q), UV_READABLE);
}

static void
the_queue_is_emptied_if_the_peer_closes(void **state)
{
    struct fixture *f = *state;
    unsigned before = process_fds(getpid()) - 1;
    (void)fill(f);
    assert_int_equal(packets_send(&f->q, packet(f, SMALL, 3), &f->e), 0);
    (void)close(f->peer);
    f->peer = -1;
    assert_int_equal(packets_flush(&f->q, &f->e), 0);
    assert_int_equal(f->q.queued, 0);
    assert_int_equal(process_fds(getpid()), before);
}

static void
a_packet_that_is_lost_after_acceptance_is_reported(void **state)
{
    struct fixture *f = *state;
    unsigned taken = fill(f);
    unsigned before = process_fds(getpid());
    assert_int_equal(packets_send(&f->q, packet(f, PACKET_MAX, 2), &f->e), 0); // it is only queued
    uint8_t bytes[SMALL];
    for (unsigned i = 0; i < taken; i++)
        assert_int_equal(recv(f->peer, bytes, sizeof bytes, MSG_DONTWAIT), SMALL);
    assert_true(packets_flush(&f->q, &f->e) < 0);
    assert_int_equal(f->e.sys, EMSGSIZE);
    assert_int_equal(process_fds(getpid()), before);
}

// The kernel counts them per user, but not for privileged ones, so this runs as another user.
static int
send_until_too_many(struct fixture *f)
{
    const int large = 1 << 20;
    const struct rlimit few = {64, 64};
    (void)setsockopt(f->q.fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    if (setrlimit(RLIMIT_NOFILE, &few) < 0 ||
        (geteuid() == 0 && setresuid(62001, 62001, 62001) < 0))
        return 1;
    for (int i = 0; i < 100; i++)
        if (packets_send(&f->q, packet(f, 1, PACKET_FDS), &f->e) < 0)
            return f->e.code == ERR_RESOURCE_EXHAUSTED &&
                           strstr(f->e.text, "too many descriptors") != NULL
                       ? 0
                       : 2;
    return 3;
}

static void
more_descriptors_than_the_kernel_holds_for_us_are_an_error(void **state)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(send_until_too_many(*state));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void
a_descriptor_is_closed_once_even_if_its_number_is_reused(void **state)
{
    struct fixture *f = *state;
    struct packet *p = packet(f, SMALL, 1);
    int number = p->fds[0];
    assert_int_equal(packets_send(&f->q, p, &f->e), 0);
    int again = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(again, number);
    (void)fill(f);
    assert_int_equal(packets_flush(&f->q, &f->e), 0);
    packets_clear(&f->q);
    assert_true(fcntl(again, F_GETFD) >= 0);
    (void)close(again);
}

static void
queued_packets_arrive_in_order_with_their_descriptors(void **state)
{
    struct fixture *f = *state;
    unsigned taken = fill(f); // packet number `taken` is queued
    struct packet *last = packet(f, SMALL, 2);
    last->bytes[0] = (uint8_t)(taken + 1);
    assert_int_equal(packets_send(&f->q, last, &f->e), 0);
    assert_int_equal(packets_events(&f->q), UV_READABLE | UV_WRITABLE);
    for (unsigned i = 0; i < taken + 2; i++) {
        uint8_t bytes[SMALL + 1];
        int fds[PACKET_FDS];
        struct fdpass m = {bytes, sizeof bytes, fds, PACKET_FDS};
        assert_int_equal(packets_flush(&f->q, &f->e), 0);
        assert_int_equal(fdpass_receive(f->peer, &m, MSG_DONTWAIT), 1);
        assert_int_equal(m.n, SMALL);
        assert_int_equal(bytes[0], (uint8_t)i);
        assert_int_equal(m.fds_n, i <= taken ? 0 : 2);
        fdpass_close(fds, PACKET_FDS);
    }
    assert_int_equal(packets_events(&f->q), UV_READABLE);
}

#define PACKETS(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PACKETS(a_packet_above_its_size_is_refused_before_anything_is_made),
        PACKETS(a_packet_that_never_fits_is_an_error_and_is_closed),
        PACKETS(a_full_queue_refuses_by_number_and_keeps_what_it_has),
        PACKETS(a_full_queue_refuses_by_bytes_to_the_last_one),
        PACKETS(packets_to_a_closed_peer_are_discarded),
        PACKETS(the_queue_is_emptied_if_the_peer_closes),
        PACKETS(a_packet_that_is_lost_after_acceptance_is_reported),
        PACKETS(more_descriptors_than_the_kernel_holds_for_us_are_an_error),
        PACKETS(a_descriptor_is_closed_once_even_if_its_number_is_reused),
        PACKETS(queued_packets_arrive_in_order_with_their_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
