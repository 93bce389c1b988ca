// SPDX-License-Identifier: Apache-2.0
// Callbacks that end what their caller is walking: followers of a job, owners of agents, and waiters, in real sandboxes. AddressSanitizer
// sees what is used after it was freed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "server/sandbox/agent.h"
#include "server/sandbox/spawn.h"
#include "tests/harness/core.h"
#include "tests/harness/swaps.h"

static void
destroy_box(void)
{
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "a callback ends it");
    sandbox_destroy(box, &e, NULL);
    box = NULL;
}

// ---- followers

static unsigned woken;

static void
end_it_all(void *cookie)
{
    struct job_follower *f = cookie;
    const struct job_event ev = job_next(f);
    if (ev.kind == JOB_STARTED)
        job_taken(f, &ev);
    if (ev.kind == JOB_STARTED && job_next(f).kind == JOB_NOTHING)
        return;
    woken++;
    job_unfollow(f);
    if (box != NULL)
        destroy_box();
}

// As the one-shot cell of a caller does, when the caller's finished processes are not kept.
static void
a_follower_may_delete_the_sandbox_at_each_output(void **state)
{
    (void)state;
    struct err e;
    struct job *j = NULL;
    struct job_follower f[2] = {{.wake = end_it_all, .cookie = &f[0]},
                                {.wake = end_it_all, .cookie = &f[1]}};
    woken = 0;
    assert_int_equal(begin("echo x; exec sleep 1000", &j, &e), 0);
    job_follow(j, &f[0], 0, true);
    job_follow(j, &f[1], 0, true);
    until(box == NULL);
    until(sandboxes_count(srv.sandboxes) == 0);
    assert_int_equal(woken, 2);
    assert_int_equal(jobs_running(srv.jobs), 0);
}

// ---- agents

struct owner {
    struct agent *agent, *other;
    bool deletes;
    unsigned ended;
};

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    (void)cookie;
    (void)bytes;
    (void)n;
    (void)fd;
    return err_set(e, ERR_INTERNAL, "not expected");
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct owner *o = cookie;
    (void)why;
    o->ended++;
    if (o->other != NULL)
        agent_close(o->other);
    if (o->deletes)
        destroy_box();
}

static const struct agent_events events = {.packet = on_packet, .ended = on_ended};

// Its process is never forked, so it can be freed at any time.
static void
add_agent(struct owner *o)
{
    struct err e;
    int theirs = -1;
    *o = (struct owner){.agent = NULL};
    assert_int_equal(agent_fork(box, &events, o, &o->agent, &theirs, &e), 0);
    (void)close(theirs);
}

static void
the_owner_of_an_agent_may_close_the_next_one(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    struct owner o[3];
    for (unsigned i = 0; i < 3; i++)
        add_agent(&o[i]);
    o[0].other = o[1].agent;
    assert_int_equal(ask(&w, &e), 0);
    succeeds(&w);
    assert_int_equal(o[0].ended, 1);
    assert_int_equal(o[1].ended, 0); // closed: nobody waits for it
    assert_int_equal(o[2].ended, 1);
    assert_int_equal(box->agents_n, 0);
}

static void
the_owner_of_an_agent_may_delete_the_sandbox_that_gets_a_layer(void **state)
{
    (void)state;
    struct err e = {.code = ERR_OK};
    struct swapped w;
    struct owner o[2];
    add_agent(&o[0]);
    add_agent(&o[1]);
    o[0].deletes = true;
    assert_true(ask(&w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_false(w.called);
    until(sandboxes_count(srv.sandboxes) == 0);
    assert_int_equal(o[1].ended, 1);
}

// ---- without the spawner

// The last test: there is no spawner after it.
static void
a_sandbox_is_freed_in_a_later_turn_when_the_spawner_has_ended(void **state)
{
    (void)state;
    struct sandbox *s = box;
    spawn_abandon(srv.spawn);
    destroy_box();
    assert_int_equal(s->state, SANDBOX_DELETING);
    assert_int_equal(sandboxes_count(srv.sandboxes), 1);
    until(sandboxes_count(srv.sandboxes) == 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_follower_may_delete_the_sandbox_at_each_output, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(the_owner_of_an_agent_may_close_the_next_one, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(
            the_owner_of_an_agent_may_delete_the_sandbox_that_gets_a_layer, make_box, remove_box),
        cmocka_unit_test_setup_teardown(
            a_sandbox_is_freed_in_a_later_turn_when_the_spawner_has_ended, make_box, remove_box),
    };
    return cmocka_run_group_tests(tests, start_core, stop_core);
}
