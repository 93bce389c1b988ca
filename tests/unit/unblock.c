// SPDX-License-Identifier: Apache-2.0
// A descriptor that another process makes blocking, and descriptors that take long to close.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>
#include <cmocka.h>

#include "proto/fdpass.h"
#include "server/base/unblock.h"

static uint64_t
ms_since(uint64_t begun)
{
    return (uv_hrtime() - begun) / 1000000;
}

static void
a_read_without_data_does_not_wait_longer(void **state)
{
    (void)state;
    int p[2];
    char c;
    assert_int_equal(pipe(p), 0);
    for (int i = 0; i < 3; i++) {
        uint64_t begun = uv_hrtime();
        errno = 0;
        assert_int_equal(unblock_read(p[0], &c, 1), -1);
        assert_int_equal(errno, ETIME);
        assert_true(ms_since(begun) >= UNBLOCK_MS - 1);
    }
    assert_int_equal(close(p[0]), 0);
    assert_int_equal(close(p[1]), 0);
}

static void
a_write_without_room_does_not_wait_longer(void **state)
{
    (void)state;
    int p[2];
    static char full[1 << 20];
    assert_int_equal(pipe2(p, O_NONBLOCK), 0);
    while (write(p[1], full, sizeof full) > 0)
        ;
    errno = 0;
    assert_int_equal(unblock_write(p[1], full, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(fcntl(p[1], F_SETFL, 0), 0);
    assert_int_equal(unblock_write(p[1], full, 1), -1);
    assert_int_equal(errno, ETIME);
    assert_int_equal(close(p[0]), 0);
    assert_int_equal(close(p[1]), 0);
}

static void
what_is_there_is_read_at_once_and_errors_stay_what_they_are(void **state)
{
    (void)state;
    int p[2];
    char c = 0;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(unblock_write(p[1], "x", 1), 1);
    assert_int_equal(unblock_read(p[0], &c, 1), 1);
    assert_int_equal(c, 'x');
    assert_int_equal(close(p[1]), 0);
    assert_int_equal(unblock_read(p[0], &c, 1), 0);
    assert_int_equal(close(p[0]), 0);
    assert_int_equal(unblock_read(p[0], &c, 1), -1);
    assert_int_equal(errno, EBADF);
}

// A TCP connection for whose end the last process that closes it waits for 600 s. *others: what it needs.
static int
lingering(int others[2])
{
    static char data[65536];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const struct linger long_time = {1, 600};
    others[0] = socket(AF_INET, SOCK_STREAM, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(others[0], (const struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(others[0], 1), 0);
    assert_int_equal(getsockname(others[0], (struct sockaddr *)&at, &n), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, n), 0);
    others[1] = accept(others[0], NULL, NULL);
    while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time), 0);
    return fd;
}

static void
send_descriptor(int socket, int fd)
{
    const struct fdpass m = {.bytes = (char[]){"x"}, .n = 1, .fds = &fd, .fds_n = 1};
    assert_int_equal(fdpass_send(socket, &m, 0), 0);
    assert_int_equal(close(fd), 0);
}

// As on kernels that cannot refuse descriptors: unblock_refuse() was not called yet.
static void
descriptors_of_a_peer_do_not_make_us_wait(void **state)
{
    (void)state;
    int pair[2], others[2][2];
    char c;
    uint64_t begun = uv_hrtime();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    send_descriptor(pair[1], lingering(others[0]));
    assert_int_equal(unblock_recv(pair[0], &c, 1), -1);
    assert_int_equal(errno, EPROTO);
    send_descriptor(pair[1], lingering(others[1]));
    unblock_close(pair[0]); // with what nobody has read
    assert_true(ms_since(begun) < 5000);
    assert_int_equal(close(pair[1]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(close(others[i][0]), 0);
        assert_int_equal(close(others[i][1]), 0);
    }
}

static void
a_socket_that_refuses_descriptors_gets_none(void **state)
{
    (void)state;
    int pair[2];
    char c = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    unblock_refuse(pair[0]);
    const struct fdpass m = {.bytes = (char[]){"x"}, .n = 1, .fds = &pair[1], .fds_n = 1};
    if (fdpass_send(pair[1], &m, 0) == 0) // before Linux 6.16
        assert_int_equal(unblock_recv(pair[0], &c, 1), -1);
    assert_int_equal(send(pair[1], "y", 1, 0), 1);
    assert_int_equal(unblock_recv(pair[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_int_equal(close(pair[0]), 0);
    assert_int_equal(close(pair[1]), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_without_data_does_not_wait_longer),
        cmocka_unit_test(a_write_without_room_does_not_wait_longer),
        cmocka_unit_test(what_is_there_is_read_at_once_and_errors_stay_what_they_are),
        cmocka_unit_test(descriptors_of_a_peer_do_not_make_us_wait),
        cmocka_unit_test(a_socket_that_refuses_descriptors_gets_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
