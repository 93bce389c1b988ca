// SPDX-License-Identifier: Apache-2.0
// Packets with descriptors: invalid ones are refused, and no descriptor is leaked.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/fdpass.h"
#include "tests/harness/process.h"

enum { ROOM = 3, BYTES = 8 };

static int ends[2]; // data sent into the first comes out of the second
static int got[ROOM];
static char text[BYTES];

static int
setup(void **state)
{
    (void)state;
    memset(got, 0x5a, sizeof got);
    memset(text, 0, sizeof text);
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int
teardown(void **state)
{
    (void)state;
    fdpass_close(ends, 2);
    return 0;
}

static void
say(const char *bytes, size_t n, size_t fds_n)
{
    int fds[FDPASS_MAX];
    for (size_t i = 0; i < fds_n; i++)
        fds[i] = ends[0];
    const struct fdpass m = {(void *)(uintptr_t)bytes, n, fds, fds_n};
    assert_int_equal(fdpass_send(ends[0], &m, 0), 0);
}

static int
hear(struct fdpass *m)
{
    *m = (struct fdpass){text, sizeof text, got, ROOM};
    return fdpass_receive(ends[1], m, MSG_DONTWAIT);
}

static void
is_refused(size_t bytes_n, size_t fds_n, int why)
{
    const unsigned before = process_fds(getpid());
    struct fdpass m;
    say("0123456789", bytes_n, fds_n);
    assert_int_equal(hear(&m), why);
    assert_int_equal(m.fds_n, 0);
    for (int i = 0; i < ROOM; i++)
        assert_int_equal(got[i], -1);
    assert_int_equal(process_fds(getpid()), before);
    say("next", 4, 0); // the next packet is complete
    assert_int_equal(hear(&m), 1);
    assert_memory_equal(text, "next", 4);
}

static void
one_descriptor_too_many_is_refused_and_all_are_closed(void **state)
{
    (void)state;
    is_refused(4, ROOM + 1, -EPROTO);
}

static void
the_kernels_maximum_of_descriptors_is_refused_and_closed(void **state)
{
    (void)state;
    is_refused(4, FDPASS_MAX, -EPROTO);
}

static void
a_packet_that_is_too_long_is_refused_with_its_descriptors(void **state)
{
    (void)state;
    is_refused(BYTES + 1, 2, -EMSGSIZE);
}

static void
a_reader_without_room_refuses_one_descriptor(void **state)
{
    (void)state;
    const unsigned before = process_fds(getpid());
    struct fdpass m = {text, sizeof text, NULL, 0};
    say("a", 1, 1);
    assert_int_equal(fdpass_receive(ends[1], &m, MSG_DONTWAIT), -EPROTO);
    assert_int_equal(process_fds(getpid()), before);
}

static void
unexpected_control_data_is_refused_with_its_descriptors(void **state)
{
    (void)state;
    const int one = 1;
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one), 0);
    const unsigned before = process_fds(getpid());
    struct fdpass m;
    say("a", 1, 1);
    assert_int_equal(hear(&m), -EPROTO);
    assert_int_equal(process_fds(getpid()), before);
}

static void
without_free_descriptors_the_bytes_are_still_received(void **state)
{
    (void)state;
    struct rlimit was;
    struct fdpass m;
    const unsigned before = process_fds(getpid());
    say("abcd", 4, ROOM);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    // the lowest free number; there is room for one descriptor, and three come
    int next = dup(ends[0]);
    (void)close(next);
    struct rlimit low = {(rlim_t)next + 1, was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int r = hear(&m);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(r, -EMFILE);
    assert_int_equal(m.n, 4);
    assert_memory_equal(text, "abcd", 4);
    assert_int_equal(m.fds_n, 0);
    assert_int_equal(process_fds(getpid()), before);
}

static void
an_empty_packet_is_the_end_even_with_descriptors(void **state)
{
    (void)state;
    const unsigned before = process_fds(getpid());
    struct fdpass m;
    say("", 0, 2);
    assert_int_equal(hear(&m), 0);
    assert_int_equal(process_fds(getpid()), before);
    assert_int_equal(hear(&m), -EAGAIN);
    fdpass_close(ends, 1);
    assert_int_equal(hear(&m), 0);
}

static void
a_full_socket_and_a_closed_peer_are_errors(void **state)
{
    (void)state;
    const struct fdpass m = {text, sizeof text, NULL, 0};
    int r = 0;
    for (int i = 0; i < 100000 && r == 0; i++)
        r = fdpass_send(ends[0], &m, MSG_DONTWAIT);
    assert_int_equal(r, -EAGAIN);
    fdpass_close(ends + 1, 1);
    // the data that it did not read
    assert_int_equal(fdpass_send(ends[0], &m, MSG_DONTWAIT), -ECONNRESET);
    assert_int_equal(fdpass_send(ends[0], &m, MSG_DONTWAIT), -EPIPE);
}

static void
packets_that_fit_arrive_in_order_and_close_on_exec(void **state)
{
    (void)state;
    struct fdpass m;
    int pipes[2];
    assert_int_equal(pipe2(pipes, 0), 0);
    char hello[] = "hello";
    const struct fdpass out = {hello, 5, pipes, 2};
    assert_int_equal(fdpass_send(ends[0], &out, 0), 0);
    fdpass_close(pipes, 2);
    assert_int_equal(hear(&m), 1);
    assert_int_equal(m.n, 5);
    assert_int_equal(m.fds_n, 2);
    assert_int_equal(got[2], -1);
    assert_int_equal(fcntl(got[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(got[0], text, 1), 1);
    fdpass_close(got, ROOM);
}

#define FDPASS(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FDPASS(one_descriptor_too_many_is_refused_and_all_are_closed),
        FDPASS(the_kernels_maximum_of_descriptors_is_refused_and_closed),
        FDPASS(a_packet_that_is_too_long_is_refused_with_its_descriptors),
        FDPASS(a_reader_without_room_refuses_one_descriptor),
        FDPASS(unexpected_control_data_is_refused_with_its_descriptors),
        FDPASS(without_free_descriptors_the_bytes_are_still_received),
        FDPASS(an_empty_packet_is_the_end_even_with_descriptors),
        FDPASS(a_full_socket_and_a_closed_peer_are_errors),
        FDPASS(packets_that_fit_arrive_in_order_and_close_on_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
