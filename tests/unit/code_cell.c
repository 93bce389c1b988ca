// SPDX-License-Identifier: Apache-2.0
// The cells of a context whose interpreter sends frames faster than the broker reads them.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/code/context_private.h"

enum { TURN_MAX = 1000, TURNS = 3 };

// A context with a cell that runs. Its interpreter is `theirs`.
struct fixture {
    uv_loop_t loop;
    struct server srv;
    struct contexts all;
    struct context c;
    struct code_run run;
    int theirs;
    unsigned of_turn, turns, events;
};

static void
write_frames(const struct fixture *f, unsigned run)
{
    char text[100];
    int n = snprintf(text, sizeof text, "stdout %u 1\nxstderr %u 1\ny", run, run);
    assert_int_equal(write(f->theirs, text, (size_t)n), n);
}

// Whatever the broker reads, there is more.
static int
on_event(void *cookie, const struct code_event *ev)
{
    struct fixture *f = cookie;
    if (ev->kind == CODE_OUTPUT && ev->stream == OUTPUT_STDERR && f->turns < TURNS) {
        assert_true(++f->of_turn < TURN_MAX);
        write_frames(f, 1);
    }
    f->events++;
    return 0;
}

static void
on_frames(void *cookie)
{
    cell_pump(cookie);
}

static void
on_turn(uv_prepare_t *prepare)
{
    struct fixture *f = prepare->data;
    f->of_turn = 0;
    f->turns += f->events > 0;
}

static void
set_up(struct fixture *f)
{
    struct err e;
    memset(f, 0, sizeof *f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->srv.loop = &f->loop;
    f->all.srv = &f->srv;
    list_init(&f->all.list);
    list_init(&f->run.node);
    f->run.context = &f->c;
    f->run.begun = true;
    f->run.number = 1;
    f->run.sink = (struct code_sink){on_event, f};
    f->c.all = &f->all;
    f->c.state = CONTEXT_BUSY;
    f->c.current = &f->run;
    list_init(&f->c.waiting);
    assert_int_equal(kernel_link_open(&f->c.link, &f->loop, on_frames, &f->c, &f->theirs, &e), 0);
}

static void
tear_down(struct fixture *f)
{
    if (f->theirs >= 0)
        (void)close(f->theirs);
    kernel_link_close(&f->c.link);
    loop_timer_stop(&f->c.later);
    loop_timer_stop(&f->c.burst_timer);
    loop_timer_stop(&f->c.closed);
    free(f->c.burst);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void
an_interpreter_that_always_sends_leaves_turns_to_others(void **state)
{
    (void)state;
    struct fixture f;
    uv_prepare_t prepare;
    set_up(&f);
    (void)uv_prepare_init(&f.loop, &prepare);
    prepare.data = &f;
    (void)uv_prepare_start(&prepare, on_turn);
    write_frames(&f, 1);
    write_frames(&f, 1); // what ends the output of the first ones
    cell_pump(&f.c);
    while (f.turns < TURNS)
        (void)uv_run(&f.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&prepare, NULL);
    tear_down(&f);
}

// Another process may have been given its end of the link.
static void
the_link_of_an_interpreter_that_has_ended_takes_no_more(void **state)
{
    (void)state;
    struct fixture f;
    struct kernel_frame frame;
    struct err e;
    set_up(&f);
    write_frames(&f, 1);
    kernel_link_ended(&f.c.link);
    assert_int_equal(send(f.theirs, "done 1 0 1 ok\n", 14, MSG_NOSIGNAL), -1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kernel_link_next(&f.c.link, &frame, &e), 1);
    assert_int_equal(frame.kind, KERNEL_STDERR);
    assert_int_equal(kernel_link_next(&f.c.link, &frame, &e), -EPIPE);
    tear_down(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interpreter_that_always_sends_leaves_turns_to_others),
        cmocka_unit_test(the_link_of_an_interpreter_that_has_ended_takes_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
