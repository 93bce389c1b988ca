// SPDX-License-Identifier: Apache-2.0
// server/state: changes that callbacks want while the database is being closed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/state/state.h"

static char folder[64];

static int
set_up(void **unused)
{
    (void)unused;
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-state-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int
tear_down(void **unused)
{
    char path[96];
    (void)unused;
    (void)snprintf(path, sizeof path, "%s/stockade.db", folder);
    (void)unlink(path);
    return rmdir(folder);
}

// A chain of changes, each begun when the one before is on the disk, as those of one approval are.
struct chain {
    struct state *s;
    unsigned done, refused;
};

static void
on_link(void *cookie, uint64_t rows, const struct err *e)
{
    static const uint8_t block[16];
    const struct state_value value[] = {STATE_OF_BYTES(block, sizeof block), STATE_OF_TEXT("t"),
                                        STATE_OF_NUMBER(1)};
    struct chain *c = cookie;
    struct err why;
    (void)rows;
    assert_null(e);
    c->done++;
    if (state_write(c->s, STATE_BLOCK_REVOKE, value, on_link, c, &why) < 0) {
        assert_int_equal(why.code, ERR_UNAVAILABLE);
        c->refused++;
    }
}

static void
a_change_that_a_callback_of_the_end_wants_is_refused(void **unused)
{
    struct chain c = {.done = 0};
    struct err e;
    uv_loop_t loop;
    (void)unused;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(state_open(folder, &c.s, &e), 0);
    assert_int_equal(state_start(c.s, &loop, &e), 0);
    on_link(&c, 0, NULL);
    state_close(c.s);
    assert_int_equal(c.done, 2);
    assert_int_equal(c.refused, 1);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_change_that_a_callback_of_the_end_wants_is_refused,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
