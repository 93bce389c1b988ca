// SPDX-License-Identifier: Apache-2.0
// server/sandbox/sandbox.c: each waiter of a sandbox is called once, whatever the other waiters do.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/sandbox/job.h"
#include "server/sandbox/private.h"
#include "server/base/server.h"
#include "server/base/stopping.h"

static struct server srv;
static const struct sandbox_settings settings;
static unsigned notified;

// A sandbox that the spawner does not know, so it can be destroyed immediately.
static struct sandbox *
make(enum sandbox_state state)
{
    struct sandbox *s = calloc(1, sizeof *s);
    assert_non_null(s);
    if (srv.sandboxes == NULL)
        srv.sandboxes = sandboxes_new(&srv, &settings);
    assert_non_null(srv.sandboxes);
    s->all = srv.sandboxes;
    s->state = state;
    s->spec.template = &settings.template[0];
    list_init(&s->node);
    list_init(&s->pool_node);
    list_init(&s->jobs);
    list_init(&s->agents);
    list_init(&s->waiters);
    for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
        s->dirs.fd[i] = -1;
    id_make("", s->id_bytes, s->id.id);
    idtable_add(&s->all->table, &s->id);
    return s;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(sandboxes_count(srv.sandboxes), 0);
    notified = 0;
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
    notified++;
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

// Like a request of the pool whose limits were refused, when the spawner has ended.
static void
a_waiters_callback_may_destroy_the_sandbox(void **state)
{
    struct sandbox_waiter w[3];
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_NETWORK, &w[0], count_and_destroy, NULL);
    sandbox_notify(s, WAIT_NETWORK, NULL);
    assert_int_equal(notified, 1);
    s = make(SANDBOX_RUNNING);
    wait_for(s, WAIT_NETWORK, &w[0], count, NULL);
    wait_for(s, WAIT_NETWORK, &w[1], count_and_destroy, NULL);
    wait_for(s, WAIT_NETWORK, &w[2], count, NULL);
    sandbox_notify(s, WAIT_NETWORK, NULL);
    assert_int_equal(notified, 4);
}

static void
a_waiters_callback_may_remove_another_waiter(void **state)
{
    struct sandbox_waiter w[3];
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_NETWORK, &w[0], count_and_take_back, &w[1]);
    wait_for(s, WAIT_NETWORK, &w[1], count, NULL);
    wait_for(s, WAIT_NETWORK, &w[2], count, NULL);
    sandbox_notify(s, WAIT_NETWORK, NULL);
    assert_int_equal(notified, 2);
    destroy(s);
}

static void
new_limits_do_not_call_waiters_for_a_pause(void **state)
{
    struct sandbox_waiter pause;
    struct sandbox_waiter limits;
    struct sandbox *s = make(SANDBOX_PAUSING);
    (void)state;
    wait_for(s, WAIT_STATE, &pause, count, NULL);
    wait_for(s, WAIT_LIMITS, &limits, count, NULL);
    sandbox_notify(s, WAIT_LIMITS, NULL);
    assert_int_equal(notified, 1);
    assert_false(list_empty(&pause.node));
    destroy(s);
    assert_int_equal(notified, 2);
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
an_incomplete_deletion_is_reported_as_a_failure(void **state)
{
    struct sandbox_waiter w;
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    wait_for(s, WAIT_DELETE, &w, must_fail, NULL);
    s->destroy_failed = true;
    destroy(s);
    assert_int_equal(notified, 1);
}

static void
must_end_with(void *cookie, struct sandbox *s, const struct err *e)
{
    const enum err_code *code = cookie;
    count(NULL, s, e);
    assert_non_null(e);
    assert_int_equal(e->code, *code);
}

static void
expect_of_all(const struct err *why, enum err_code code)
{
    static const enum sandbox_wait kinds[] = {WAIT_STATE, WAIT_LIMITS, WAIT_NETWORK, WAIT_SWAP};
    struct sandbox_waiter w[sizeof kinds / sizeof kinds[0]];
    struct sandbox *s = make(SANDBOX_RUNNING);
    notified = 0;
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++)
        wait_for(s, kinds[i], &w[i], must_end_with, &code);
    sandbox_destroy(s, why, NULL);
    assert_int_equal(notified, sizeof w / sizeof w[0]);
}

// CANCELLED is for a caller who gave up its own call.
static void
what_others_wait_for_is_aborted_by_a_deletion(void **state)
{
    struct err e;
    (void)state;
    (void)err_set(&e, ERR_CANCELLED, "its sandbox was deleted");
    expect_of_all(&e, ERR_ABORTED);
    (void)stopping_say(&e, ERR_CANCELLED);
    expect_of_all(&e, ERR_UNAVAILABLE);
    (void)err_set(&e, ERR_INTERNAL, "the guest broke the protocol");
    expect_of_all(&e, ERR_INTERNAL);
}

static char heard[64];

static void
hear(const char *who, const char *fact)
{
    (void)strcat(strcat(strcat(heard, who), fact), " "); // NOLINT: as long as the expectation
}

static void
on_deleting(void *cookie, struct sandbox *s, const struct err *why)
{
    (void)s;
    assert_int_equal(why->code, ERR_CANCELLED);
    hear(cookie, "-deleting");
}

static void
on_gone(void *cookie, struct sandbox *s)
{
    assert_int_equal(s->state, SANDBOX_DELETING);
    hear(cookie, "-gone");
}

static void
observers_are_called_in_the_order_of_registration(void **state)
{
    static char a[] = "a";
    static char b[] = "b";
    static char c[] = "c";
    const struct observer all[] = {
        {.cookie = a, .deleting = on_deleting, .gone = on_gone},
        {.cookie = b, .gone = on_gone}, // an event without a function is skipped
        {.cookie = c, .deleting = on_deleting, .gone = on_gone},
    };
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(observers_add(sandboxes_observers(srv.sandboxes), &all[i]), i);
    destroy(s);
    assert_string_equal(heard, "a-deleting c-deleting a-gone b-gone c-gone ");
    sandboxes_observers(srv.sandboxes)->n = 0;
}

static void
destroy_too(void *cookie, struct sandbox *s, const struct err *why)
{
    (void)s;
    (void)why;
    destroy(cookie);
}

static void
limit_too(void *cookie, struct sandbox *s, const struct err *why)
{
    const struct limits limits = {0};
    struct sandbox_waiter w;
    struct err e;
    (void)s;
    (void)why;
    (void)sandbox_limit(cookie, &limits, &w, &e);
}

static void
start_too(void *cookie, struct sandbox *s, const struct err *why)
{
    static const struct job_spec spec;
    struct job *j = NULL;
    struct err e;
    (void)s;
    (void)why;
    (void)job_start(cookie, &spec, &j, &e);
}

static void
notify_again(void *cookie, struct sandbox *s, const struct err *why)
{
    struct sandbox *other = cookie;
    (void)why;
    OBSERVERS_NOTIFY(&other->all->observers, gone, s);
}

// Destroys a sandbox whose observer does this to another one, in a child. Returns the child's wait status.
static int
status_with_observer(void (*deleting)(void *cookie, struct sandbox *s, const struct err *why))
{
    struct sandbox *s = make(SANDBOX_RUNNING);
    struct sandbox *other = make(SANDBOX_RUNNING);
    const struct observer o = {.cookie = other, .deleting = deleting};
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(null, STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        other->limits_pending = true; // the change is refused at once
        (void)observers_add(sandboxes_observers(srv.sandboxes), &o);
        destroy(s);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    destroy(s);
    destroy(other);
    return status;
}

static void
an_observer_that_changes_a_sandbox_or_calls_observers_aborts_the_broker(void **state)
{
    void (*const forbidden[])(void *cookie, struct sandbox *s, const struct err *why) = {
        destroy_too, limit_too, start_too, notify_again};
    (void)state;
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
        int status = status_with_observer(forbidden[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

static void
look_only(void *cookie, struct sandbox *s, const struct err *why)
{
    const struct sandbox *other = cookie;
    assert(other != s && why != NULL);
}

static void
an_observer_that_only_reads_is_permitted(void **state)
{
    (void)state;
    int status = status_with_observer(look_only);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
a_change_of_limits_is_refused_during_another(void **state)
{
    const struct limits limits = {0};
    struct sandbox_waiter w;
    struct err e;
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    s->limits_pending = true;
    assert_true(sandbox_limit(s, &limits, &w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    destroy(s);
}

static void
a_broker_without_networks_refuses_a_policy(void **state)
{
    struct sandbox_waiter w;
    struct err e;
    struct sandbox *s = make(SANDBOX_RUNNING);
    struct network *n = network_new();
    (void)state;
    assert_true(sandbox_network(s, n, &w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    network_unref(n);
    destroy(s);
}

static void
a_held_sandbox_exists_until_it_is_released(void **state)
{
    struct sandbox *s = make(SANDBOX_RUNNING);
    (void)state;
    sandbox_hold(s);
    destroy(s);
    assert_int_equal(sandboxes_count(srv.sandboxes), 1);
    sandbox_let_go(s);
    assert_int_equal(sandboxes_count(srv.sandboxes), 0);
}

// ---- the quota of a caller

static bool ledger_fails;

static int
load_nothing(void *state, const char *owner, uint64_t held[LEDGER_ACCOUNTS], struct err *e)
{
    (void)state;
    (void)owner;
    memset(held, 0, LEDGER_ACCOUNTS * sizeof held[0]);
    return ledger_fails ? err_sys(e, EIO, "read the store") : 0;
}

static int
save_or_fail(void *state, const char *owner, enum ledger_account a, uint64_t held, struct err *e)
{
    (void)state;
    (void)owner;
    (void)a;
    (void)held;
    return ledger_fails ? err_sys(e, EIO, "write the store") : 0;
}

static void
a_reservation_is_refused_above_the_quota_and_when_the_ledger_fails_and_leaks_nothing(void **state)
{
    (void)state;
    static const struct ledger_store store = {"test", false, load_nothing, save_or_fail};
    static const struct quotas two = {.usual = {[QUOTA_SANDBOXES] = 2, [QUOTA_MEMORY_BYTES] = 100}};
    static const struct limits small = {.v = {[LIMIT_MEMORY_BYTES] = 50}};
    static const struct limits large = {.v = {[LIMIT_MEMORY_BYTES] = 51}};
    struct tenants tenants = {.keeper = {&store, NULL}, .quotas = &two};
    struct server other = {.tenants = &tenants};
    struct sandboxes *all = sandboxes_new(&other, &settings);
    struct tenant *t[3] = {NULL};
    struct err e;
    ledger_fails = true;
    assert_true(sandbox_reserve(all, "uid:1", &small, &t[0], &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_null(t[0]);
    assert_null(tenant_find(&tenants, "uid:1"));
    ledger_fails = false;
    assert_int_equal(sandbox_reserve(all, "uid:1", &small, &t[0], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &large, &t[1], &e), -EDQUOT);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "QUOTA_MEMORY");
    assert_string_equal(e.rule, "quotas.memory_per_caller");
    assert_string_equal(e.allowed, "memory_bytes: at most 100, used 50");
    assert_int_equal(sandboxes_count_of(all, "uid:1"), 1);
    assert_int_equal(sandbox_reserve(all, "uid:1", &small, &t[1], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &small, &t[2], &e), -EDQUOT);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "QUOTA_SANDBOXES");
    assert_int_equal(sandboxes_count_of(all, "uid:1"), 2);
    sandbox_release(t[0], &small);
    sandbox_release(t[1], &small);
    assert_null(tenant_find(&tenants, "uid:1"));
    sandboxes_free(all);
}

static void
what_is_being_removed_leaves_room_for_as_much_again(void **state)
{
    (void)state;
    static const struct quotas two = {.usual = {[QUOTA_SANDBOXES] = 2, [QUOTA_MEMORY_BYTES] = 100}};
    static const struct limits half = {.v = {[LIMIT_MEMORY_BYTES] = 50}};
    static const struct limits all_of_it = {.v = {[LIMIT_MEMORY_BYTES] = 100}};
    struct tenants tenants = {.quotas = &two};
    struct server other = {.tenants = &tenants};
    struct sandboxes *all = sandboxes_new(&other, &settings);
    struct tenant *t[5] = {NULL};
    struct err e;
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[0], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[1], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[2], &e), -EDQUOT);
    assert_true(sandbox_leave(t[0], &half));
    assert_true(sandbox_leave(t[1], &half));
    assert_int_equal(sandboxes_count_of(all, "uid:1"), 0);
    assert_true(sandbox_may_follow(t[0]));
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[2], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[3], &e), 0);
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[4], &e), -EDQUOT);
    assert_true(sandbox_leave(t[2], &half)); // three of them: more than the quota
    assert_false(sandbox_may_follow(t[0]));
    sandbox_left(t[0], &half);
    assert_true(sandbox_may_follow(t[1]));
    sandbox_left(t[1], &half);
    sandbox_left(t[2], &half);
    sandbox_release(t[3], &half);
    assert_int_equal(sandbox_reserve(all, "uid:1", &all_of_it, &t[0], &e), 0);
    assert_true(sandbox_leave(t[0], &all_of_it));
    assert_int_equal(sandbox_reserve(all, "uid:1", &half, &t[1], &e), 0);
    assert_true(sandbox_leave(t[1], &half)); // of the bytes
    assert_false(sandbox_may_follow(t[0]));
    sandbox_left(t[1], &half);
    sandbox_left(t[0], &all_of_it);
    assert_null(tenant_find(&tenants, "uid:1"));
    sandboxes_free(all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_waiters_callback_may_destroy_the_sandbox, teardown),
        cmocka_unit_test_teardown(a_waiters_callback_may_remove_another_waiter, teardown),
        cmocka_unit_test_teardown(new_limits_do_not_call_waiters_for_a_pause, teardown),
        cmocka_unit_test_teardown(an_incomplete_deletion_is_reported_as_a_failure, teardown),
        cmocka_unit_test_teardown(what_others_wait_for_is_aborted_by_a_deletion, teardown),
        cmocka_unit_test_teardown(observers_are_called_in_the_order_of_registration, teardown),
        cmocka_unit_test_teardown(
            an_observer_that_changes_a_sandbox_or_calls_observers_aborts_the_broker, teardown),
        cmocka_unit_test_teardown(an_observer_that_only_reads_is_permitted, teardown),
        cmocka_unit_test_teardown(a_change_of_limits_is_refused_during_another, teardown),
        cmocka_unit_test_teardown(a_broker_without_networks_refuses_a_policy, teardown),
        cmocka_unit_test_teardown(a_held_sandbox_exists_until_it_is_released, teardown),
        cmocka_unit_test(
            a_reservation_is_refused_above_the_quota_and_when_the_ledger_fails_and_leaks_nothing),
        cmocka_unit_test(what_is_being_removed_leaves_room_for_as_much_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
