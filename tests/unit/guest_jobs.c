// SPDX-License-Identifier: Apache-2.0
// The bounds of a Start, and packets that are not requests. tests/priv/guest.c starts real jobs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/fdpass.h"
#include "server/guest/jobs.h"

static const char *args[] = {"true"};
static const char *env[] = {"A=1"};

static Stockade__Guest__Start
valid(void)
{
    Stockade__Guest__Start s = STOCKADE__GUEST__START__INIT;
    s.job = 1;
    s.args = args;
    s.n_args = 1;
    s.env = env;
    s.n_env = 1;
    s.workdir = (char *)(uintptr_t) "/";
    s.files_max = 64;
    s.tasks_max = 64;
    s.file_bytes_max = 4096;
    return s;
}

static void
refuse(const Stockade__Guest__Start *s, int fds, const char *subject)
{
    struct err e = {0};
    assert_true(guest_jobs_check(s, fds, &e) < 0);
    if (strstr(e.text, subject) == NULL)
        fail_msg("\"%s\" does not name %s", e.text, subject);
}

static void
a_start_outside_its_bounds_is_refused(void **state)
{
    (void)state;
    Stockade__Guest__Start s = valid();
    s.job = 0;
    refuse(&s, 3, "job");
    s = valid();
    s.n_args = 0;
    refuse(&s, 3, "args");
    s = valid();
    s.n_env = GUEST_STRINGS_MAX;
    refuse(&s, 3, "args");
    s = valid();
    s.workdir = (char *)(uintptr_t) "relative";
    refuse(&s, 3, "workdir");
    s.workdir = (char *)(uintptr_t) "";
    refuse(&s, 3, "workdir");
    s = valid();
    s.columns = 65536;
    refuse(&s, 3, "terminal");
    s = valid();
    s.files_max = 2;
    refuse(&s, 3, "limits");
    s = valid();
    s.file_bytes_max = 0;
    refuse(&s, 3, "limits");
}

static void
an_environment_without_names_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "A", "=1", "="};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        Stockade__Guest__Start s = valid();
        const char *one[] = {wrong[i]};
        s.env = one;
        refuse(&s, 3, "NAME=value");
    }
}

static void
descriptors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    Stockade__Guest__Start s = valid();
    for (int n = 0; n < 3; n++)
        refuse(&s, n, "descriptors");
    s.terminal = true;
    refuse(&s, 3, "descriptors");
}

static void
args_and_env_fit_up_to_their_last_byte(void **state)
{
    (void)state;
    static char large[GUEST_STRING_BYTES_MAX + 1];
    memset(large, 'x', sizeof large - 1);
    const char *strings[] = {large};
    Stockade__Guest__Start s = valid();
    s.args = strings;
    large[GUEST_STRING_BYTES_MAX - strlen(env[0]) - 1] = '\0';
    refuse(&s, 3, "longer than 122880 bytes");
    large[GUEST_STRING_BYTES_MAX - strlen(env[0]) - 2] = '\0';
    struct err e;
    assert_int_equal(guest_jobs_check(&s, 3, &e), 0);
    s = valid();
    assert_int_equal(guest_jobs_check(&s, 3, &e), 0);
}

static int
count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 200; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

// Sends bytes with so many descriptors. Returns the receiver's result.
static int
receive(const void *bytes, size_t n, unsigned fds_n)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    int fds[] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct fdpass m = {(void *)(uintptr_t)bytes, n, fds, fds_n};
    assert_int_equal(fdpass_send(pair[0], &m, 0), 0);
    struct guest_packet p;
    int before = count_fds();
    int rc = guest_packet_receive(pair[1], &p);
    if (rc == 1)
        guest_packet_done(&p, true);
    assert_int_equal(count_fds(), before);
    (void)close(pair[0]);
    (void)close(pair[1]);
    return rc;
}

static void
bytes_that_are_not_a_request_are_refused_without_leaks(void **state)
{
    (void)state;
    assert_int_equal(receive("\xff\xff\xff\xff", 4, 2), -EPROTO);
    assert_int_equal(receive("\x0a\x7f\x01", 3, 0), -EPROTO);
    // 192 KiB of empty strings: more elements than the heap has pointers for
    static uint8_t many[GUEST_PACKET_BYTES_MAX];
    many[0] = 0x0a; // start
    many[1] = 0xf0;
    many[2] = 0xff;
    many[3] = 0x0b; // 196,592 bytes
    for (size_t i = 4; i < sizeof many; i += 2)
        many[i] = 0x12; // args: ""
    assert_int_equal(receive(many, 4 + 196592, 0), -EPROTO);
}

static void
more_descriptors_than_three_are_refused_and_closed(void **state)
{
    (void)state;
    static const uint8_t kill_one[] = {0x1a, 0x02, 0x08, 0x01};
    assert_int_equal(receive(kill_one, sizeof kill_one, 0), 1);
    assert_int_equal(receive(kill_one, sizeof kill_one, 3), 1);
    assert_int_equal(receive(kill_one, sizeof kill_one, 5), -EPROTO);
}

static void
the_end_of_the_socket_is_the_end(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    (void)close(pair[0]);
    struct guest_packet p;
    assert_int_equal(guest_packet_receive(pair[1], &p), 0);
    (void)close(pair[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_outside_its_bounds_is_refused),
        cmocka_unit_test(an_environment_without_names_is_refused),
        cmocka_unit_test(descriptors_that_do_not_fit_are_refused),
        cmocka_unit_test(args_and_env_fit_up_to_their_last_byte),
        cmocka_unit_test(bytes_that_are_not_a_request_are_refused_without_leaks),
        cmocka_unit_test(more_descriptors_than_three_are_refused_and_closed),
        cmocka_unit_test(the_end_of_the_socket_is_the_end),
    };
    return cmocka_run_group_tests_name("guest_jobs", tests, NULL, NULL);
}
