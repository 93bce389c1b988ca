// SPDX-License-Identifier: Apache-2.0
// The broker's end (server/sandbox/spawn.h) with the real spawner: each callback is called once, errors are passed
// on, and the end of the spawner is reported to every waiter.
#include <sys/wait.h>

#include "server/sandbox/spawn.h"
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

static struct broker b; // its configuration only
static struct spawn *spawn;
static int bpf_fds[BPF_FDS];
static uv_loop_t loop;
static unsigned gone;

struct wait {
    unsigned called;
    struct spawn_reply reply;
    int fds[SPAWN_FDS_MAX];
};

static void
on_done(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    struct wait *w = cookie;
    w->called++;
    w->reply = *r;
    memcpy(w->fds, fds, sizeof w->fds);
}

static void
on_gone(void *cookie)
{
    (void)cookie;
    gone++;
}

static void
run_until(const struct wait *w)
{
    while (w->called == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(w->called, 1);
}

static void
close_fds(struct wait *w)
{
    for (int i = 0; i < SPAWN_FDS_MAX; i++) {
        if (w->fds[i] >= 0)
            (void)close(w->fds[i]);
    }
}

static int
start(void **state)
{
    (void)state;
    struct err e;
    const char *build = getenv("STOCKADE_BUILD");
    char binary[300];
    (void)need_root(state);
    (void)snprintf(binary, sizeof binary, "%.200s/server/stockade-spawner", build ? build : ".");
    broker_config(&b, "");
    gone = 0;
    if (spawn_start(binary, &b.config, &b.features, bpf_fds, &spawn, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(spawn_attach(spawn, &loop, on_gone, NULL, &e), 0);
    struct wait w = {.called = 0};
    broker_write_config(&b, "templates: [{name: default}]\n");
    assert_int_equal(spawn_read(spawn, on_done, &w, &e), 0);
    while (w.called == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    if (reader_root(w.fds[0], &e) != 0)
        fail_msg("%s", e.text);
    return 0;
}

static void
stop_with(bool clean)
{
    assert_int_equal(spawn_close(spawn, BROKER_WAIT_MS), clean);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    remove_state(&b);
}

static void
create(struct wait *w, uint32_t n)
{
    struct err e;
    const struct spawn_request q = create_request(n);
    memset(w, 0, sizeof *w);
    assert_int_equal(spawn_create(spawn, q.id, 0, &small_limits, on_done, w, &e), 0);
    assert_int_equal(w->called, 0);
}

static void
a_missing_program_and_a_refused_configuration_are_reported(void **state)
{
    (void)state;
    struct err e;
    struct spawn *none = NULL;
    static struct spawn_features f;
    broker_config(&b, "");
    assert_true(spawn_start("/no/such/spawner", &b.config, &f, bpf_fds, &none, &e) < 0);
    assert_non_null(strstr(e.text, "/no/such/spawner"));
    assert_true(spawn_start("/bin/true", &b.config, &f, bpf_fds, &none, &e) < 0);
    b.config.slots = 0;
    char binary[300];
    const char *build = getenv("STOCKADE_BUILD");
    (void)snprintf(binary, sizeof binary, "%.200s/server/stockade-spawner", build ? build : ".");
    assert_true(spawn_start(binary, &b.config, &f, bpf_fds, &none, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.subject, "slots");
    assert_null(none);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // nothing is left to reap
}

static void
every_request_is_answered_once(void **state)
{
    (void)state;
    struct err e;
    struct wait c;
    struct wait w;
    (void)start(state);
    create(&c, 1);
    run_until(&c);
    if (!c.reply.ok)
        fail_msg("%s", c.reply.err.text);
    assert_true(c.fds[SPAWN_FD_GUEST] >= 0 && c.fds[SPAWN_FD_CGROUP] >= 0);
    uint32_t slot = c.reply.slot;
    uint32_t generation = c.reply.generation;
    struct spawn_limits l = small_limits;
    l.pids = 7;
    memset(&w, 0, sizeof w);
    assert_int_equal(spawn_limit(spawn, slot, generation, &l, on_done, &w, &e), 0);
    run_until(&w);
    assert_true(w.reply.ok);
    for (int frozen = 1; frozen >= 0; frozen--) {
        memset(&w, 0, sizeof w);
        assert_int_equal(spawn_freeze(spawn, slot, generation, frozen, on_done, &w, &e), 0);
        run_until(&w);
        assert_true(w.reply.ok);
    }
    memset(&w, 0, sizeof w);
    assert_int_equal(spawn_kill_job(spawn, slot, generation, 3, on_done, &w, &e), 0);
    run_until(&w);
    assert_true(w.reply.ok);
    for (int again = 0; again < 2; again++) {
        memset(&w, 0, sizeof w);
        assert_int_equal(spawn_destroy(spawn, slot, generation, false, on_done, &w, &e), 0);
        run_until(&w);
        assert_int_equal(w.reply.ok, again == 0);
    }
    assert_int_equal(w.reply.err.code, ERR_NOT_FOUND);
    close_fds(&c);
    assert_int_equal(gone, 0);
    stop_with(true);
}

static void
all_requests_beyond_the_sockets_size_are_answered(void **state)
{
    (void)state;
    struct err e;
    struct wait c;
    static struct wait all[SPAWN_PENDING_MAX];
    (void)start(state);
    create(&c, 1);
    run_until(&c);
    memset(all, 0, sizeof all);
    for (size_t i = 0; i < SPAWN_PENDING_MAX; i++)
        assert_int_equal(
            spawn_kill_job(spawn, c.reply.slot, c.reply.generation, 9, on_done, &all[i], &e), 0);
    struct wait extra = {0};
    assert_true(spawn_kill_job(spawn, c.reply.slot, c.reply.generation, 9, on_done, &extra, &e) <
                0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < SPAWN_PENDING_MAX; i++) {
        run_until(&all[i]);
        assert_true(all[i].reply.ok);
    }
    assert_int_equal(extra.called, 0);
    close_fds(&c);
    stop_with(true);
}

static void
the_end_of_the_spawner_is_reported_to_all_waiters(void **state)
{
    (void)state;
    struct err e;
    struct wait w[20];
    (void)start(state);
    assert_int_equal(kill(spawn_pid(spawn), SIGSTOP), 0);
    for (uint32_t i = 0; i < 20; i++)
        create(&w[i], i);
    assert_int_equal(kill(spawn_pid(spawn), SIGKILL), 0);
    while (gone == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(w[i].called, 1);
        assert_false(w[i].reply.ok);
        assert_int_equal(w[i].reply.err.code, ERR_UNAVAILABLE);
    }
    const struct spawn_request q = create_request(1);
    assert_true(spawn_create(spawn, q.id, 0, &small_limits, on_done, &w[0], &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(gone, 1);
    stop_with(false);
    // The next start removes what it left.
    (void)start(state);
    stop_with(true);
    assert_true(containers_gone(&b));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_program_and_a_refused_configuration_are_reported),
        cmocka_unit_test(every_request_is_answered_once),
        cmocka_unit_test(all_requests_beyond_the_sockets_size_are_answered),
        cmocka_unit_test(the_end_of_the_spawner_is_reported_to_all_waiters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
