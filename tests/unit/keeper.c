// SPDX-License-Identifier: Apache-2.0
// server/sandbox/keeper: what a keeper has reported comes before the news of its death, at whatever moment it died.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/fdpass.h"
#include "server/sandbox/keeper.h"

static int ends[2]; // the broker's and the keeper's
static const struct keep_order order = {.op = KEEP_COPY};

static int
set_up(void **unused)
{
    (void)unused;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int
tear_down(void **unused)
{
    (void)unused;
    fdpass_close(ends, 2);
    return 0;
}

static void
keeper_dies(void)
{
    (void)close(ends[1]);
    ends[1] = -1;
}

static void
keeper_reports(const char *text)
{
    struct keep_answer a = {.ok = 0};
    (void)err_set(&a.err, ERR_FAILED_PRECONDITION, "%s", text);
    assert_int_equal(send(ends[1], &a, sizeof a, 0), sizeof a);
}

static void
is_killed(const struct err *e, const char *word, const char *reason)
{
    assert_int_equal(e->code, ERR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e->text, word));
    assert_non_null(strstr(e->text, "was killed"));
    assert_string_equal(e->reason, reason);
}

static void
one_that_dies_before_its_order_was_killed(void **state)
{
    struct err e;
    (void)state;
    keeper_dies();
    assert_true(keeper_order(ends[0], KEEPER_COPIES, &order, -1, &e) < 0);
    is_killed(&e, "copied", "COPY_MEMORY");
    assert_true(keeper_order(ends[0], KEEPER_DECRYPTS, &order, -1, &e) < 0);
    is_killed(&e, "decrypted", "COPY_MEMORY");
    assert_true(keeper_order(ends[0], KEEPER_STORES, &order, -1, &e) < 0);
    is_killed(&e, "kept files", KEEPER_KILLED);
}

// The sources of a copy are sent before.
static void
one_that_dies_with_something_unread_was_killed(void **state)
{
    struct err e;
    (void)state;
    assert_int_equal(send(ends[0], "source", 6, 0), 6);
    keeper_dies();
    assert_true(keeper_order(ends[0], KEEPER_COPIES, &order, -1, &e) < 0);
    is_killed(&e, "copied", "COPY_MEMORY");
}

static void
one_that_dies_after_its_order_was_killed(void **state)
{
    struct err e;
    struct keep_answer a;
    (void)state;
    assert_int_equal(keeper_order(ends[0], KEEPER_STORES, &order, -1, &e), 0);
    assert_false(keeper_answer(ends[0], KEEPER_STORES, &a));
    keeper_dies();
    assert_true(keeper_answer(ends[0], KEEPER_STORES, &a));
    assert_int_equal(a.ok, 0);
    is_killed(&a.err, "kept files", KEEPER_KILLED);
}

static void
what_it_has_reported_is_the_error(void **state)
{
    struct err e;
    struct keep_answer a;
    (void)state;
    keeper_reports("no program");
    assert_int_equal(send(ends[0], "source", 6, 0), 6);
    keeper_dies();
    assert_true(keeper_order(ends[0], KEEPER_COPIES, &order, -1, &e) < 0);
    assert_string_equal(e.text, "no program");
    fdpass_close(ends, 2);
    assert_int_equal(set_up(NULL), 0);
    assert_int_equal(keeper_order(ends[0], KEEPER_COPIES, &order, -1, &e), 0);
    keeper_reports("no program");
    keeper_dies();
    assert_true(keeper_answer(ends[0], KEEPER_COPIES, &a));
    assert_string_equal(a.err.text, "no program");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_dies_before_its_order_was_killed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_dies_with_something_unread_was_killed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(one_that_dies_after_its_order_was_killed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_it_has_reported_is_the_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
