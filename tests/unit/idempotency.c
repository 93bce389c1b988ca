// SPDX-License-Identifier: Apache-2.0
// Idempotency keys: refused keys, the responses to repeated calls, and which calls may be executed again.
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
