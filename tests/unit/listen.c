// SPDX-License-Identifier: Apache-2.0
// Listening addresses: refused addresses, and the files of unix sockets.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/rpc/listen.h"

// Listens, and expects a failure.
static struct err
refused(const char *url, bool any)
{
    struct transport_address a = {.url = url, .mode = 0600, .group = -1, .any = any};
    struct listen_bound bound;
    struct err e = {0};
    bool ipc = false;
    int fd = -1;
    assert_true(listen_open(&a, &fd, &ipc, &bound, &e) < 0);
    assert_int_equal(fd, -1);
    return e;
}

static void
expect_refused(const char *url, bool any, int32_t code, const char *word)
{
    struct err e = refused(url, any);
    if (e.code != code || strstr(e.text, word) == NULL)
        fail_msg("%s: %d %s", url, e.code, e.text);
    const struct transport_address a = {.url = url, .any = any};
    struct err looked = {0};
    if (code == ERR_ALREADY_EXISTS) // this cannot be known from the address alone
        return;
    assert_true(listen_check(&a, &looked) < 0);
    assert_string_equal(looked.text, e.text);
}

static void
websockets_are_refused_below_nng_1_6_and_without_it_with_the_reason(void **state)
{
    (void)state;
    static const char *const old[] = {"1.5.2", "1.0.0", "1.5.99", "0.9.9", "x"};
    struct transport_address a = {.url = "ws://127.0.0.1:0/"};
    struct err e;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        assert_true(listen_check_ws(&a, old[i], &e) < 0);
        assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
        assert_non_null(strstr(e.text, "1.6 or later is needed"));
        assert_non_null(strstr(e.text, old[i]));
    }
    assert_true(listen_check_ws(&a, "", &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "built without nng"));
}

static void
websockets_are_taken_from_nng_1_6_on_and_on_loopback_alone(void **state)
{
    (void)state;
    static const char *const versions[] = {"1.6.0", "1.10.1", "1.11.0-dev", "2.0.0"};
    struct transport_address a = {.url = "ws://127.0.0.1:0/"};
    struct transport_address far = {.url = "ws://192.0.2.1:80/"};
    struct err e;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        assert_int_equal(listen_check_ws(&a, versions[i], &e), 0);
    assert_true(listen_check_ws(&far, "1.6.0", &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
}

static void
addresses_of_unknown_kinds_or_beyond_loopback_are_refused(void **state)
{
    (void)state;
    expect_refused("inproc://x", false, ERR_INVALID_ARGUMENT, "begins with");
    expect_refused("ipc://relative", false, ERR_INVALID_ARGUMENT, "absolute path");
    expect_refused("tcp://127.0.0.1", false, ERR_INVALID_ARGUMENT, "port");
    expect_refused("tcp://0.0.0.0:0", false, ERR_FAILED_PRECONDITION, "loopback");
    expect_refused("wss://127.0.0.1:0", false, ERR_FAILED_PRECONDITION, "proxy");
    expect_refused("wss://127.0.0.1:0", false, ERR_FAILED_PRECONDITION, "proxy");
    expect_refused("tcp://localhost:0", true, ERR_INVALID_ARGUMENT, "numeric");
    expect_refused("tcp://127.0.0.1:", true, ERR_INVALID_ARGUMENT, "numeric");
    expect_refused("tcp://127.0.0.1:99999", true, ERR_INVALID_ARGUMENT, "numeric");
    expect_refused("tcp://[::1:0", true, ERR_INVALID_ARGUMENT, "numeric");
    expect_refused("tcp://127.0.0.1:0x50", false, ERR_INVALID_ARGUMENT, "numeric");
}

static void
a_free_port_is_chosen_and_reported_and_cannot_be_used_twice(void **state)
{
    (void)state;
    static const char *const urls[] = {"tcp://127.0.0.1:0", "tcp://[::1]:0", "tcp://*:0"};
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct transport_address a = {.url = urls[i], .group = -1, .any = i == 2};
        struct listen_bound bound;
        struct err e;
        bool ipc = true;
        int fd = -1;
        int rc = listen_open(&a, &fd, &ipc, &bound, &e);
        if (rc < 0 && i == 1) // no IPv6 here
            continue;
        assert_int_equal(rc, 0);
        assert_false(ipc);
        assert_int_equal(strncmp(bound.url, urls[i], strlen(urls[i]) - 1), 0);
        assert_true(atoi(strrchr(bound.url, ':') + 1) > 0);
        if (i == 0)
            expect_refused(bound.url, false, ERR_ALREADY_EXISTS, "in use");
        (void)close(fd);
    }
}

static void
a_socket_file_has_its_mode_and_only_ones_own_is_removed(void **state)
{
    (void)state;
    char folder[] = "/tmp/stockade-XXXXXX";
    char url[64];
    struct stat st;
    struct listen_bound bound;
    struct err e;
    bool ipc = false;
    int fd = -1;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(url, sizeof url, "ipc://%s/s", folder);
    const char *path = url + strlen("ipc://");
    struct transport_address a = {.url = url, .mode = 0640, .group = -1};
    assert_int_equal(listen_open(&a, &fd, &ipc, &bound, &e), 0);
    assert_true(ipc);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0640);
    expect_refused(url, false, ERR_ALREADY_EXISTS, "another process listens there");
    char aside[80];
    (void)snprintf(aside, sizeof aside, "%s/aside", folder);
    assert_int_equal(rename(path, aside), 0);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fclose(f);
    listen_remove_file(&bound);
    assert_int_equal(stat(path, &st), 0); // another process's
    assert_int_equal(rename(aside, path), 0);
    listen_remove_file(&bound);
    assert_int_equal(stat(path, &st), -1);
    (void)close(fd);
    (void)rmdir(folder);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(websockets_are_refused_below_nng_1_6_and_without_it_with_the_reason),
        cmocka_unit_test(addresses_of_unknown_kinds_or_beyond_loopback_are_refused),
        cmocka_unit_test(websockets_are_taken_from_nng_1_6_on_and_on_loopback_alone),
        cmocka_unit_test(a_free_port_is_chosen_and_reported_and_cannot_be_used_twice),
        cmocka_unit_test(a_socket_file_has_its_mode_and_only_ones_own_is_removed),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
