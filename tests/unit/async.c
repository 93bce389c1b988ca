// SPDX-License-Identifier: Apache-2.0
// client/async.c: what a callback may not do, cancel, flow control, and calls that wait beside calls that are polled.
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "tests/harness/polled.h"

// ---- Refusals

static void
a_pump_without_a_handle_is_refused_and_one_without_calls_returns_at_once(void **state)
{
    struct program p;
    struct peer peer;
    struct stockade_error e;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    (void)state;
    assert_true(stockade_pump(NULL, -1, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    assert_true(stockade_fd(NULL, &e) < 0);
    assert_true(stockade_cancel(NULL, 1, &e) < 0);
    assert_true(stockade_hold(NULL, 1, true, NULL) < 0);
    program_start(&p, &peer, script_silent, 1);
    assert_int_equal(stockade_pump(p.s, -1, &e), 0);
    assert_true(stockade_begin(p.s, &r, &a, NULL, &e) < 0); // no on_end
    assert_string_equal(e.subject, "on_end");
    a.on_end = program_on_end;
    assert_true(stockade_begin(p.s, &r, &a, NULL, &e) < 0); // no method
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    assert_true(stockade_begin(p.s, &r, NULL, NULL, &e) < 0);
    assert_true(stockade_cancel(p.s, 77, &e) < 0);
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
    assert_string_equal(e.reason, "CALL_ENDED");
    program_stop(&p, &peer);
}

static void
nobody_there_is_why_a_call_cannot_begin(void **state)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade_error e;
    struct program p = {0};
    (void)state;
    o.address = "ipc:///nonexistent/stockade.sock";
    assert_int_equal(stockade_open(&p.s, &o, &e), 0);
    assert_true(program_begin(&p, true, 0, 0, (struct stockade_bytes){0}, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_int_equal(p.ended, 0);
    stockade_close(p.s);
    assert_int_equal(p.ended, 0);
}

static int
pump_again(struct program *p)
{
    struct stockade_error e;
    assert_true(stockade_pump(p->s, 0, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_string_equal(e.reason, "PUMP_BUSY");
    return 1;
}

static void
a_callback_may_not_pump(void **state)
{
    struct program p;
    struct peer peer;
    (void)state;
    program_start(&p, &peer, script_one_message, 1);
    p.on_first = pump_again;
    program_begin_stream(&p, 0);
    while (p.messages == 0)
        assert_int_equal(stockade_pump(p.s, -1, NULL), 1);
    program_stop(&p, &peer);
    assert_int_equal(p.ended, 1);
}

static int
close_it(struct program *p)
{
    stockade_close(p->s);
    return 0;
}

static void
run_until_aborted(void)
{
    struct program p;
    struct peer peer;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)dup2(null, STDERR_FILENO);
    (void)signal(SIGABRT, SIG_DFL);
    program_start(&p, &peer, script_one_message, 1);
    p.on_first = close_it;
    program_begin_stream(&p, 0);
    program_loop_until_ended(&p, 1);
    _exit(0);
}

static void
a_callback_that_closes_the_handle_aborts_the_program(void **state)
{
    int status = 0;
    (void)state;
    pid_t child = fork();
    if (child == 0)
        run_until_aborted();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void
begin_another(void *cookie, const struct stockade_end *end)
{
    struct program *p = cookie;
    struct stockade_error e;
    program_on_end(cookie, end);
    assert_true(program_begin(p, true, 0, 0, (struct stockade_bytes){0}, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_string_equal(e.reason, "HANDLE_CLOSED");
    assert_true(stockade_pump(p->s, 0, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
}

static void
a_handle_that_is_being_closed_ends_its_calls_and_takes_no_others(void **state)
{
    struct program p;
    struct peer peer;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    (void)state;
    program_start(&p, &peer, script_one_message, 1);
    r.method = METHOD;
    a.on_end = begin_another;
    a.cookie = &p;
    for (int i = 0; i < 3; i++)
        assert_int_equal(stockade_begin(p.s, &r, &a, NULL, NULL), 0);
    program_stop(&p, &peer);
    assert_int_equal(p.ended, 3);
    assert_int_equal(p.error.code, STOCKADE_CANCELLED);
    assert_string_equal(p.error.reason, "HANDLE_CLOSED");
}

// ---- Cancel and hold

// Three messages at once, then END when CANCEL comes.
static void
script_three(struct peer *p, int fd)
{
    Stockade__V1__Status status = STOCKADE__V1__STATUS__INIT;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id;
    for (int i = 0; i < 3; i++)
        peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    while (p->kind != STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL)
        if (!peer_frame(p, fd))
            return;
    status.code = STOCKADE_CANCELLED;
    status.message = "as you wish";
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    f.status = &status;
    peer_send(fd, id, &f);
    script_silent(p, fd);
}

static int
cancel_it(struct program *p)
{
    assert_int_equal(stockade_cancel(p->s, p->call, NULL), 0);
    return 0;
}

static void
a_call_that_its_callback_cancels_gets_no_further_message(void **state)
{
    struct program p;
    struct peer peer;
    (void)state;
    program_start(&p, &peer, script_three, 1);
    p.on_first = cancel_it;
    program_begin_stream(&p, 0);
    program_loop_until_ended(&p, 1);
    assert_int_equal(p.messages, 1);
    assert_int_equal(p.error.code, STOCKADE_CANCELLED);
    assert_string_equal(p.error.text, "as you wish");
    assert_true(stockade_cancel(p.s, p.call, NULL) < 0); // its id is gone
    assert_int_equal(stockade_pump(p.s, 0, NULL), 0);
    assert_int_equal(stockade_pump(p.s, 0, NULL), 0);
    program_stop(&p, &peer);
    assert_int_equal(p.ended, 1);
}

// As many messages as it has credit for, up to 1,000; counts them.
static sem_t stalled;
static atomic_int sent;

static void
script_credit(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id, credit = p->credit;
    for (sent = 0; sent < 1000; sent++) {
        while (credit == 0) {
            (void)sem_post(&stalled);
            if (!peer_frame(p, fd))
                return;
            credit += p->credit;
        }
        credit--;
        peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA, "data", 4);
    }
    peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "", 0);
    script_silent(p, fd);
}

static int
hold_it(struct program *p)
{
    assert_int_equal(stockade_hold(p->s, p->call, true, NULL), 0);
    return 0;
}

static void
a_stream_that_is_held_buffers_no_more_than_its_credit_and_loses_nothing(void **state)
{
    struct program p;
    struct peer peer;
    (void)state;
    assert_int_equal(sem_init(&stalled, 0, 0), 0);
    program_start(&p, &peer, script_credit, 1);
    p.on_first = hold_it;
    program_begin_stream(&p, 4);
    while (p.messages == 0)
        assert_int_equal(stockade_pump(p.s, -1, NULL), 1);
    assert_int_equal(sem_wait(&stalled), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(stockade_pump(p.s, 5, NULL), 1);
    assert_int_equal(p.messages, 1);
    assert_int_equal(sent, 4); // the peer waits: no credit was given back
    assert_int_equal(stockade_hold(p.s, p.call, false, NULL), 0);
    program_loop_until_ended(&p, 1);
    assert_true(p.ok);
    assert_int_equal(p.messages, 1000);
    program_stop(&p, &peer);
    (void)sem_destroy(&stalled);
}

static void *
lift_hold(void *cookie)
{
    struct program *p = cookie;
    (void)sem_wait(&stalled);
    (void)stockade_hold(p->s, p->call, false, NULL);
    return NULL;
}

static void
another_thread_wakes_one_that_waits_in_the_pump(void **state)
{
    struct program p;
    struct peer peer;
    pthread_t thread;
    (void)state;
    assert_int_equal(sem_init(&stalled, 0, 0), 0);
    program_start(&p, &peer, script_credit, 1);
    p.on_first = hold_it;
    program_begin_stream(&p, 1000); // so many that the peer stalls never, and END comes
    while (p.messages == 0)
        assert_int_equal(stockade_pump(p.s, -1, NULL), 1);
    while (sent < 1000)
        assert_int_equal(stockade_pump(p.s, 5, NULL), 1);
    assert_int_equal(stockade_pump(p.s, 20, NULL), 1);
    assert_int_equal(pthread_create(&thread, NULL, lift_hold, &p), 0);
    (void)sem_post(&stalled);
    while (p.ended == 0)
        assert_true(stockade_pump(p.s, -1, NULL) >= 0);
    assert_int_equal(p.messages, 1000);
    (void)pthread_join(thread, NULL);
    program_stop(&p, &peer);
    (void)sem_destroy(&stalled);
}

// ---- Calls that wait and calls that are polled, on one handle

enum { THREADS = 4, CALLS = 100 };

static void
script_echo(struct peer *p, int fd)
{
    peer_hello(fd);
    while (peer_frame(p, fd))
        if (p->kind == STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL)
            peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, &p->id, 4);
}

static void *
ask_often(void *cookie)
{
    for (int i = 0; i < CALLS; i++) {
        const struct stockade_bytes *out = NULL;
        if (ask(cookie, 20000, &out, NULL) < 0 || out->n != 4)
            return cookie;
        stockade_free(out);
    }
    return NULL;
}

static void
calls_that_wait_and_calls_that_are_polled_share_a_handle(void **state)
{
    struct program p;
    struct peer peer;
    pthread_t threads[THREADS];
    (void)state;
    program_start(&p, &peer, script_echo, 1);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, p.s), 0);
    for (int i = 0; i < CALLS; i++) {
        struct stockade_bytes body = {"hi", 2};
        for (int k = 0; k < 4; k++)
            assert_int_equal(program_begin(&p, false, 20000, 0, body, NULL), 0);
        program_loop_until_ended(&p, 4 * i + 2); // two or more are in progress all the time
        assert_true(p.ok);
        assert_int_equal(p.response_n, 4);
    }
    program_loop_until_ended(&p, 4 * CALLS);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(stockade_pump(p.s, -1, NULL), 0);
    program_stop(&p, &peer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pump_without_a_handle_is_refused_and_one_without_calls_returns_at_once),
        cmocka_unit_test(nobody_there_is_why_a_call_cannot_begin),
        cmocka_unit_test(a_callback_may_not_pump),
        cmocka_unit_test(a_callback_that_closes_the_handle_aborts_the_program),
        cmocka_unit_test(a_handle_that_is_being_closed_ends_its_calls_and_takes_no_others),
        cmocka_unit_test(a_call_that_its_callback_cancels_gets_no_further_message),
        cmocka_unit_test(a_stream_that_is_held_buffers_no_more_than_its_credit_and_loses_nothing),
        cmocka_unit_test(another_thread_wakes_one_that_waits_in_the_pump),
        cmocka_unit_test(calls_that_wait_and_calls_that_are_polled_share_a_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
