// SPDX-License-Identifier: Apache-2.0
// server/sandbox.c: who waits for something of a sandbox is told, once, whatever the others who are told do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../server/config.h"
#include "../../server/sandbox_private.h"
#include "../../server/server.h"

static struct server srv;
static unsigned told;

// One that the spawner does not know of, so that destroying it is done at once.
static struct sandbox *
make(enum sandbox_state state)
{
    struct sandbox *s = calloc(1, sizeof *s);
    assert_non_null(s);
    if (srv.sandboxes == NULL)
        srv.sandboxes = sandboxes_new(&srv);
    assert_non_null(srv.sandboxes);
    s->all = srv.sandboxes;
    s->state = state;
    list_init(&s->node);
    list_init(&s->pool_node);
    list_init(&s->jobs);
    list_init(&s->waiters);
    for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
        s->dirs.fd[i] = -1;
    id_make(s->id_bytes, s->id.id);
    idtable_add(&s->all->table, &s->id);
    return s;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(sandboxes_count(srv.sandboxes), 0);
    told = 0;
    return 0;
}

static void
destroy(struct sandbox *s)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "the test is over");
    sandbox_destroy(s, &e, NULL);
}

static void
wait_for(struct sandbox *s, enum sandbox_wait what, struct sandbox_waiter *w,
         void (*done)(void *cookie, struct sandbox *s, const struct err *e), void *cookie)
{
    *w = (struct sandbox_waiter){.what = what, .done = done, .cookie = cookie};
    list_append(&s->waiters, &w->node);
}

static void
count(void *cookie, struct sandbox *s, const struct err *e)
{
    (void)cookie;
    (void)s;
    (void)e;
    told++;
}

static void
count_and_destroy(void *cookie, struct sandbox *s, const struct err *e)
{
    count(cookie, s, e);
    destroy(s);
}

static void
count_and_take_back(void *cookie, struct sandbox *s, const struct err *e)
{
    count(cookie, s, e);
    sandbox_unwait(cookie);
}

// As a request of the pool does whose limits were refused, when the spawner is gone.
static void
one_who_is_told_may_destroy_the_sandbox(void **state)
{
    struct sandbox_waiter w[3];
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_NETWORK, &w[0], count_and_destroy, NULL);
    sandbox_tell(s, WAIT_NETWORK, NULL);
    assert_int_equal(told, 1);
    s = make(SANDBOX_RUNNING);
    wait_for(s, WAIT_NETWORK, &w[0], count, NULL);
    wait_for(s, WAIT_NETWORK, &w[1], count_and_destroy, NULL);
    wait_for(s, WAIT_NETWORK, &w[2], count, NULL);
    sandbox_tell(s, WAIT_NETWORK, NULL);
    assert_int_equal(told, 4);
}

static void
one_who_is_told_may_take_another_back(void **state)
{
    struct sandbox_waiter w[3];
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_NETWORK, &w[0], count_and_take_back, &w[1]);
    wait_for(s, WAIT_NETWORK, &w[1], count, NULL);
    wait_for(s, WAIT_NETWORK, &w[2], count, NULL);
    sandbox_tell(s, WAIT_NETWORK, NULL);
    assert_int_equal(told, 2);
    destroy(s);
}

static void
new_limits_tell_nobody_who_waits_for_a_pause(void **state)
{
    struct sandbox_waiter pause;
    struct sandbox_waiter limits;
    struct sandbox *s = make(SANDBOX_PAUSING);
    (void)state;
    wait_for(s, WAIT_STATE, &pause, count, NULL);
    wait_for(s, WAIT_LIMITS, &limits, count, NULL);
    sandbox_tell(s, WAIT_LIMITS, NULL);
    assert_int_equal(told, 1);
    assert_false(list_empty(&pause.node));
    destroy(s);
    assert_int_equal(told, 2);
}

static void
must_fail(void *cookie, struct sandbox *s, const struct err *e)
{
    count(cookie, s, e);
    assert_null(s);
    assert_non_null(e);
    assert_int_equal(e->code, ERR_INTERNAL);
}

static void
a_deletion_that_left_something_is_not_told_as_done(void **state)
{
    struct sandbox_waiter w;
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_DELETE, &w, must_fail, NULL);
    s->destroy_failed = true;
    destroy(s);
    assert_int_equal(told, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_who_is_told_may_destroy_the_sandbox, teardown),
        cmocka_unit_test_teardown(one_who_is_told_may_take_another_back, teardown),
        cmocka_unit_test_teardown(new_limits_tell_nobody_who_waits_for_a_pause, teardown),
        cmocka_unit_test_teardown(a_deletion_that_left_something_is_not_told_as_done, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
