// SPDX-License-Identifier: Apache-2.0
// Idempotency keys: refused keys, the responses to repeated calls, and which calls may be executed again.
#include <unistd.h>

#include "server/state/state.h"
#include "tests/harness/conn_memory.h"

static void
a_key_that_is_empty_too_long_or_came_with_another_request_is_refused(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    char key[130];
    memset(key, 'k', sizeof key - 1);
    key[129] = '\0';
    give_call(s, ID(1), "", "a");
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    give_call(s, ID(2), key, "a");
    assert_next(s, ID(2), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.executed, 0);
    key[128] = '\0';
    give_call(s, ID(3), key, "a");
    give_call(s, ID(4), key, "b");
    assert_next(s, ID(4), END, ERR_INVALID_ARGUMENT);
    reply(s);
    assert_next(s, ID(3), END, 0);
    give_call(s, ID(5), key, "b");
    assert_next(s, ID(5), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.executed, 1);
    leave(s);
}

static void
the_number_of_keys_of_a_caller_is_bounded_until_they_expire(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(2);
    char key[] = "0";
    for (uint32_t i = 0; i < 8; i++, key[0]++) {
        give_call(s, ID(i + 1), key, "a");
        reply(s);
        assert_next(s, ID(i + 1), END, 0);
    }
    give_call(s, ID(20), key, "a");
    assert_next(s, ID(20), END, ERR_RESOURCE_EXHAUSTED);
    give_call(other, ID(1), key, "a");
    reply(other);
    assert_next(other, ID(1), END, 0);
    let_pass(150);
    give_call(s, ID(21), key, "a");
    reply(s);
    assert_next(s, ID(21), END, 0);
    assert_int_equal(it.executed, 10);
    leave(s);
    leave(other);
}

static void
one_execution_answers_all_calls_with_its_key(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *second = open_one(1), *stranger = open_one(2);
    give_call(s, ID(1), "k", "a");
    give_call(second, ID(1), "k", "a");
    assert_int_equal(it.executed, 1);
    leave(s); // the executing call continues without its connection
    assert_int_equal(it.cancelled, 0);
    assert_true(second->out_n == second->read_at);
    reply(second);
    assert_next(second, ID(1), END, 0);
    give_call(second, ID(2), "k", "a");
    assert_next(second, ID(2), END, 0);
    assert_int_equal(it.executed, 1);
    give_call(stranger, ID(1), "k", "a"); // of another user: another key
    assert_int_equal(it.executed, 2);
    reply(stranger);
    leave(second);
    leave(stranger);
}

static void
only_calls_without_effect_may_be_repeated(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        bool again;
    } ends[] = {
        {ERR_UNAVAILABLE, true},         {ERR_RESOURCE_EXHAUSTED, true}, {ERR_NOT_FOUND, true},
        {ERR_FAILED_PRECONDITION, true}, {ERR_INVALID_ARGUMENT, true},   {ERR_INTERNAL, false},
    };
    struct transport_stream *s = open_one(1);
    uint32_t id = 1;
    char key[] = "a";
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++, key[0]++) {
        struct err e;
        unsigned before = it.executed;
        (void)err_set(&e, ends[i].code, "no");
        give_call(s, ID(id), key, "a");
        call_fail(it.last, &e);
        pump(s);
        assert_next(s, ID(id++), END, (int32_t)ends[i].code);
        give_call(s, ID(id), key, "a");
        assert_int_equal(it.executed - before, ends[i].again ? 2 : 1);
        if (ends[i].again)
            reply(s);
        assert_next(s, ID(id++), END, ends[i].again ? 0 : (int32_t)ends[i].code);
    }
    leave(s);
}

static void
calls_without_effect_use_no_keys(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    char key[8];
    struct err e;
    (void)err_set(&e, ERR_NOT_FOUND, "no");
    for (uint32_t i = 0; i < 100; i++) { // 8 keys are stored
        (void)snprintf(key, sizeof key, "%u", i);
        give_call(s, ID(i + 1), key, "a");
        call_fail(it.last, &e);
        pump(s);
        assert_next(s, ID(i + 1), END, ERR_NOT_FOUND);
    }
    give_call(s, ID(200), "one more", "a");
    reply(s);
    assert_next(s, ID(200), END, 0);
    leave(s);
}

static void
a_callers_mistake_is_not_kept_as_the_answer_for_others(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(1);
    give_call(s, ID(1), "k", "a");
    give_call(s, ID(1), "k", "b");
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.cancelled, 1);
    give_call(s, ID(2), "k", "a"); // it was not executed, so it is executed now
    assert_int_equal(it.executed, 2);
    give_call(other, ID(1), "k", "a");
    give_kind(s, ID(2), STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA);
    assert_next(s, ID(2), END, ERR_INVALID_ARGUMENT);
    assert_true(other->out_n == other->read_at && it.cancelled == 1);
    reply(other);
    assert_next(other, ID(1), END, 0);
    assert_int_equal(it.executed, 2);
    leave(s);
    leave(other);
}

static void
closing_ends_calls_that_continue_without_a_connection(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(1), *last = open_one(1);
    give_call(s, ID(1), "k", "a");
    give_call(other, ID(1), "k", "a");
    leave(s);
    give_call(last, ID(1), "l", "a");
    assert_true(it.executed == 2 && it.cancelled == 0);
    rpc_close(it.rpc);
    assert_int_equal(it.cancelled, 1);
    leave(other);
    leave(last);
    assert_int_equal(it.cancelled, 2);
    struct rpc_stats now;
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.open_calls, 0);
}

// ---- with a database

static char folder[64];
static struct state *db;

static void
open_database(void)
{
    struct err e;
    struct keys_earlier *earlier = NULL;
    it.rpc->limits.idempotency_ms = 60000;
    assert_int_equal(state_open(folder, &db, &e), 0);
    assert_int_equal(rpc_read_keys(db, &earlier, &e), 0);
    assert_int_equal(state_start(db, &it.loop, &e), 0);
    rpc_set_state(it.rpc, db, earlier);
}

static void
close_database(void)
{
    rpc_set_state(it.rpc, NULL, NULL);
    state_close(db);
}

static int
set_up_durable(void **state)
{
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-keys-XXXXXX");
    if (mkdtemp(folder) == NULL || set_up(state) != 0)
        return -1;
    open_database();
    return 0;
}

static int
tear_down_durable(void **state)
{
    static const char *const names[] = {"stockade.db", "stockade.db-wal"};
    char path[128];
    close_database();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder) == 0 ? tear_down(state) : -1;
}

// As after kill -9: the database is as it was at this moment, and nothing else is left.
static void
restart(void **state)
{
    const unsigned executed = it.executed;
    close_database();
    assert_int_equal(tear_down(state), 0);
    assert_int_equal(tenants_forget(&it.tenants), 0);
    it = (struct memory_layer){0};
    assert_int_equal(set_up(state), 0);
    it.executed = executed;
    open_database();
}

static void
until_executed(unsigned n)
{
    while (it.executed < n)
        (void)uv_run(&it.loop, UV_RUN_ONCE);
}

static void
until_sent(struct transport_stream *s)
{
    for (int i = 0; i < 1000 && s->out_n == s->read_at; i++) {
        let_pass(1);
        pump(s);
    }
}

static void
a_call_is_executed_when_its_key_is_stored_and_answered_when_its_end_is(void **state)
{
    struct transport_stream *s = open_one(1), *second = open_one(1);
    give_call(s, ID(1), "k", "a");
    assert_int_equal(it.executed, 0);
    until_executed(1);
    reply(s);
    assert_true(s->out_n == s->read_at);
    give_call(second, ID(1), "k", "a"); // meanwhile
    until_sent(s);
    assert_next(s, ID(1), END, 0);
    pump(second);
    assert_next(second, ID(1), END, 0);
    leave(s);
    leave(second);
    restart(state);
    s = open_one(1);
    give_call(s, ID(1), "k", "b");
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    give_call(s, ID(2), "k", "a");
    assert_next(s, ID(2), END, 0);
    assert_int_equal(it.executed, 1);
    give_call(s, ID(3), "another", "a");
    until_executed(2);
    reply(s);
    until_sent(s);
    assert_next(s, ID(3), END, 0);
    leave(s);
}

static void
a_call_that_was_under_way_is_never_executed_again(void **state)
{
    struct transport_stream *s = open_one(1);
    give_call(s, ID(1), "k", "a");
    until_executed(1);
    rpc_set_state(it.rpc, NULL, NULL); // what happens from now on does not reach the disk
    leave(s);
    restart(state);
    for (uint32_t i = 1; i <= 2; i++) {
        s = open_one(1);
        give_call(s, ID(i), "k", "a");
        assert_next(s, ID(i), END, ERR_ABORTED);
        leave(s);
        restart(state);
    }
    assert_int_equal(it.executed, 1);
}

static void
a_call_that_was_given_up_may_be_executed_again(void **state)
{
    struct transport_stream *s = open_one(1);
    struct err e;
    (void)err_set(&e, ERR_NOT_FOUND, "no");
    give_call(s, ID(1), "k", "a");
    give_kind(s, ID(1), STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL); // before it was executed
    assert_next(s, ID(1), END, ERR_CANCELLED);
    let_pass(20);
    assert_int_equal(it.executed, 0);
    give_call(s, ID(2), "k2", "a");
    until_executed(1);
    call_fail(it.last, &e);
    pump(s);
    assert_next(s, ID(2), END, ERR_NOT_FOUND);
    leave(s);
    restart(state);
    s = open_one(1);
    give_call(s, ID(1), "k", "a");
    give_call(s, ID(2), "k2", "a");
    until_executed(3);
    leave(s);
}

static void
an_end_that_is_being_stored_outlives_its_connection(void **state)
{
    struct transport_stream *s = open_one(1);
    (void)state;
    give_call(s, ID(1), "k", "a");
    until_executed(1);
    reply(s);
    give_kind(s, ID(1), STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL);
    leave(s);
    s = open_one(1);
    give_call(s, ID(2), "k", "a");
    until_sent(s);
    assert_next(s, ID(2), END, 0);
    assert_int_equal(it.executed, 1);
    leave(s);
}

static void
keys_expire_on_the_disk_too(void **state)
{
    struct transport_stream *s = open_one(1);
    it.rpc->limits.idempotency_ms = 1;
    give_call(s, ID(1), "k", "a");
    until_executed(1);
    reply(s);
    until_sent(s);
    assert_next(s, ID(1), END, 0);
    leave(s);
    let_pass(1200); // the database counts in seconds
    restart(state);
    s = open_one(1);
    give_call(s, ID(1), "k", "a");
    until_executed(2);
    leave(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_key_that_is_empty_too_long_or_came_with_another_request_is_refused),
        TEST(the_number_of_keys_of_a_caller_is_bounded_until_they_expire),
        TEST(one_execution_answers_all_calls_with_its_key),
        TEST(only_calls_without_effect_may_be_repeated),
        TEST(calls_without_effect_use_no_keys),
        TEST(a_callers_mistake_is_not_kept_as_the_answer_for_others),
        TEST(closing_ends_calls_that_continue_without_a_connection),
#define DURABLE(name) cmocka_unit_test_setup_teardown(name, set_up_durable, tear_down_durable)
        DURABLE(a_call_is_executed_when_its_key_is_stored_and_answered_when_its_end_is),
        DURABLE(a_call_that_was_under_way_is_never_executed_again),
        DURABLE(a_call_that_was_given_up_may_be_executed_again),
        DURABLE(an_end_that_is_being_stored_outlives_its_connection),
        DURABLE(keys_expire_on_the_disk_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
