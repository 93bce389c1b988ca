// SPDX-License-Identifier: Apache-2.0
// What the telemetry programs count, and in which account: real children in cgroups of the test. watch_rig.h does the
// work of the loader and the broker.

#include "tests/harness/watch_job.h"

// ---- what does not count

static void
a_process_outside_is_neither_counted_nor_reported(void **state)
{
    (void)state;
    const struct rig_cgroup *host = rig_cgroup(&rig, rig.cgroups[0].path, "host");
    const struct rig_cgroup *below = rig_cgroup(&rig, host->path, "below");
    const struct rig_cgroup *deeper = rig_cgroup(&rig, below->path, "deeper");
    const struct rig_cgroup *unknown = rig_cgroup(&rig, rig.cgroups[1].path, "no-entry");
    const struct rig_cgroup *places[] = {&rig.cgroups[0], &rig.cgroups[1], host,
                                         below,           deeper,          unknown};
    drain();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (int k = 0; k < 3; k++) // the second time it is cached
            assert_int_equal(rig_run(places[i], nothing, NULL), 0);
        assert_null(rig_account(&rig, places[i]));
    }
    drain();
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        for (unsigned kind = 0; kind < EVENT_KINDS; kind++)
            assert_int_equal(count_events(kind, places[i]), 0);
    }
}

static void
jobs_are_counted_separately(void **state)
{
    (void)state;
    struct job j = new_job("apart", 0);
    const struct rig_cgroup *second = rig_cgroup(&rig, j.sandbox->path, "job-2");
    assert_int_equal(rig_run(j.job, nothing, NULL), 0);
    assert_int_equal(rig_run(second, nothing, NULL), 0);
    assert_int_equal(rig_run(second, nothing, NULL), 0);
    assert_int_equal(rig_account(&rig, j.job)->syscalls[SYS_getppid], 1);
    assert_int_equal(rig_account(&rig, second)->syscalls[SYS_getppid], 2);
    assert_null(rig_account(&rig, j.sandbox));
}

// ---- system calls

enum { MANY = 1000 };

static int
many_calls(void *arg)
{
    (void)arg;
    for (int i = 0; i < MANY; i++)
        (void)syscall(SYS_getppid);
    (void)syscall(SYS_kill, 0x7ffffff0, 0);       // ESRCH
    (void)syscall(SYS_close, -1);                 // EBADF
    (void)syscall(SYS_chdir, "/etc/passwd");      // ENOTDIR
    (void)syscall(SYS_chdir, "/nothing/there");   // ENOENT
    (void)syscall(SYS_mkdirat, -1, "/proc/x", 0); // ENOENT
    (void)syscall(1000, 1);                       // ENOSYS
    (void)syscall(SYS_dup2, 0, 1 << 30);          // EBADF
    (void)syscall(SYS_setsid + 100000);           // ENOSYS
    (void)syscall(SYS_mkdirat, AT_FDCWD, "/", 0); // EEXIST
    return 0;
}

static void
every_call_is_counted_once_by_number_and_class_of_error(void **state)
{
    (void)state;
    struct job j = new_job("calls", 0);
    assert_int_equal(rig_run(j.job, many_calls, NULL), 0);
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_non_null(a);
    assert_int_equal(a->cgroup, j.job->id);
    assert_int_equal(a->slot, j.entry.slot);
    assert_int_equal(a->generation, 7);
    assert_int_equal(a->syscalls[SYS_getppid], MANY);
    assert_int_equal(a->syscalls[SYS_clone3],
                     1); // it returned from one, and does not return from exit_group
    assert_int_equal(a->syscalls[SYS_exit_group], 0);
    assert_int_equal(a->syscalls[WATCH_SYSCALLS - 1], 2);
    uint64_t sum = 0;
    for (int i = 0; i < WATCH_SYSCALLS; i++)
        sum += a->syscalls[i];
    assert_int_equal(sum, MANY + 1 + 9);
    assert_int_equal(a->errors[WATCH_OK], 0);
    assert_int_equal(a->errors[WATCH_NOSYS], 2);
    assert_int_equal(a->errors[WATCH_MISSING], 4);
    assert_int_equal(a->errors[WATCH_INVALID], 2);
    assert_int_equal(a->errors[WATCH_OTHER], 1);
    assert_int_equal(a->failures, 0);
}

static volatile int caught;

static void
on_signal(int n)
{
    caught = n;
}

static int
catch_one(void *arg)
{
    (void)arg;
    struct sigaction act = {.sa_handler = on_signal};
    (void)sigaction(SIGUSR1, &act, NULL);
    (void)syscall(SYS_kill, syscall(SYS_getpid), SIGUSR1);
    return caught == SIGUSR1 ? 0 : 1;
}

static void
the_return_from_a_signal_handler_is_counted_as_rt_sigreturn(void **state)
{
    (void)state;
    struct job j = new_job("sigreturn", 0);
    assert_int_equal(rig_run(j.job, catch_one, NULL), 0);
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_int_equal(a->syscalls[SYS_rt_sigreturn], 1);
    assert_int_equal(a->syscalls[WATCH_SYSCALLS - 1], 0);
    assert_int_equal(a->signals, 0); // to itself
}

static void
without_the_tracepoint_calls_are_not_counted_and_processes_are(void **state)
{
    (void)state;
    struct job j = new_job("detached", 0);
    rig_calls(&rig, false);
    assert_int_equal(rig_run(j.job, many_calls, NULL), 0);
    const struct watch_account *a = rig_account(&rig, j.job);
    assert_non_null(a);
    assert_int_equal(a->syscalls[SYS_getppid], 0);
    assert_int_equal(a->forks, 1);
    assert_int_equal(a->exits, 1);
    rig_calls(&rig, true);
    assert_int_equal(rig_run(j.job, many_calls, NULL), 0);
    assert_int_equal(a->syscalls[SYS_getppid], MANY);
}

// ---- nested cgroups

static int
fork_twice(void *arg)
{
    (void)arg;
    pid_t pid = (pid_t)syscall(SYS_fork);
    if (pid == 0) {
        if (syscall(SYS_fork) == 0) {
            for (int i = 0; i < MANY; i++)
                (void)syscall(SYS_getppid);
            (void)syscall(SYS_exit_group, 3);
        }
        (void)syscall(SYS_exit_group, 2); // its child is orphaned
    }
    (void)syscall(SYS_wait4, pid, NULL, 0, NULL);
    return 1;
}

// Waits until as many have ended in the account as were started.
static void
wait_empty(const struct watch_account *a)
{
    wait_until("all have ended", __atomic_load_n(&a->exits, __ATOMIC_RELAXED) == a->forks);
}

static void
nested_cgroups_and_daemons_belong_to_the_job(void **state)
{
    (void)state;
    struct job j = new_job("nested", WATCH_EVENTS);
    const struct rig_cgroup *one = rig_cgroup(&rig, j.job->path, "x");
    const struct rig_cgroup *two = rig_cgroup(&rig, one->path, "y");
    drain();
    (void)rig_run(j.job, fork_twice, NULL);
    const struct watch_account *a = rig_account(&rig, j.job);
    wait_empty(a);
    (void)rig_run(two, fork_twice, NULL);
    wait_empty(a);
    (void)rig_run(two, fork_twice, NULL);
    wait_empty(a);
    assert_null(rig_account(&rig, one));
    assert_null(rig_account(&rig, two));
    assert_int_equal(a->forks, 9);
    assert_int_equal(a->exits, 9);
    assert_int_equal(a->exits_by_signal, 0);
    assert_int_equal(a->syscalls[SYS_getppid], 3 * MANY);
    drain();
    assert_int_equal(count_events(EVENT_EXIT, j.job), 9);
    unsigned codes[4] = {0};
    for (size_t i = 0; i < 9; i++)
        codes[BODY(watch_exit, event(EVENT_EXIT, j.job, i))->code & 3]++;
    assert_int_equal(codes[1], 3);
    assert_int_equal(codes[2], 3);
    assert_int_equal(codes[3], 3);
}

static void
a_process_in_the_sandboxs_own_cgroup_has_the_sandboxs_account(void **state)
{
    (void)state;
    struct job j = new_job("own", 0);
    assert_int_equal(rig_run(j.sandbox, nothing, NULL), 0);
    assert_int_equal(rig_account(&rig, j.sandbox)->syscalls[SYS_getppid], 1);
    assert_null(rig_account(&rig, j.job));
}

// ---- accounts

static void
a_reused_account_starts_at_zero(void **state)
{
    (void)state;
    struct job j = new_job("again", 0);
    uint32_t number = 0, other;
    // Takes all free ones but one.
    size_t n = 0;
    static uint32_t free_ones[WATCH_ACCOUNTS];
    int queue = bpf_map__fd(rig.bpf->maps.accounts_free);
    while (bpf_map_lookup_and_delete_elem(queue, NULL, &other) == 0)
        free_ones[n++] = other;
    assert_true(n > 10);
    number = free_ones[--n];
    assert_int_equal(bpf_map_update_elem(queue, NULL, &number, BPF_ANY), 0);
    assert_int_equal(rig_run(j.job, many_calls, NULL), 0);
    assert_ptr_equal(rig_account(&rig, j.job), &rig.accounts[number]);
    // None is left: the calls are not counted, but the failure is.
    const struct rig_cgroup *second = rig_cgroup(&rig, j.sandbox->path, "job-2");
    assert_int_equal(rig_run(second, nothing, NULL), 0);
    assert_null(rig_account(&rig, second));
    assert_true(rig_lost(&rig, j.entry.slot, CLASS_UNCOUNTED) > 0);
    // Given back in the same way as by the broker.
    assert_int_equal(bpf_map_delete_elem(bpf_map__fd(rig.bpf->maps.cells), &j.job->id), 0);
    assert_int_equal(bpf_map_update_elem(queue, NULL, &number, BPF_ANY), 0);
    assert_int_equal(rig_run(second, nothing, NULL), 0);
    const struct watch_account *a = rig_account(&rig, second);
    assert_ptr_equal(a, &rig.accounts[number]);
    assert_int_equal(a->cgroup, second->id);
    assert_int_equal(a->syscalls[SYS_getppid], 1);
    assert_int_equal(a->syscalls[SYS_close], 0);
    assert_int_equal(a->errors[WATCH_INVALID], 0);
    assert_int_equal(a->forks, 1);
    while (n > 0)
        assert_int_equal(bpf_map_update_elem(queue, NULL, &free_ones[--n], BPF_ANY), 0);
}

struct spin {
    volatile bool stop;
};

static int
spin(void *arg)
{
    const struct spin *s = arg;
    while (!s->stop)
        (void)syscall(SYS_getppid);
    return 0;
}

static size_t
free_accounts(void)
{
    static uint32_t numbers[WATCH_ACCOUNTS];
    size_t n = 0;
    int queue = bpf_map__fd(rig.bpf->maps.accounts_free);
    while (bpf_map_lookup_and_delete_elem(queue, NULL, &numbers[n]) == 0)
        n++;
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bpf_map_update_elem(queue, NULL, &numbers[i], BPF_ANY), 0);
    return n;
}

// The entry appears while processes run on every CPU, so they make their first call at the same moment.
static void
processes_seen_at_the_same_moment_share_one_account(void **state)
{
    (void)state;
    enum { ROUNDS = 8, SPINNERS = 4 };
    struct spin *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED);
    size_t before = free_accounts();
    for (int round = 0; round < ROUNDS; round++) {
        char name[40];
        struct bpf_sandbox entry = {.slot = 60 + (uint32_t)round, .generation = 1};
        (void)snprintf(name, sizeof name, "at-once-%d", round);
        const struct rig_cgroup *box = rig_cgroup(&rig, rig.cgroups[1].path, name);
        const struct rig_cgroup *job = rig_cgroup(&rig, box->path, "job-1");
        pid_t pids[SPINNERS];
        s->stop = false;
        for (int i = 0; i < SPINNERS; i++)
            pids[i] = rig_spawn(job, spin, s);
        assert_null(rig_account(&rig, job));
        rig_put(rig.bpf->maps.sandboxes, &box->id, &entry);
        wait_until("the kernel gives the job an account", rig_account(&rig, job) != NULL);
        s->stop = true;
        for (int i = 0; i < SPINNERS; i++)
            assert_int_equal(rig_wait(pids[i]), 0);
        const struct watch_account *a = rig_account(&rig, job);
        assert_non_null(a);
        assert_int_equal(a->cgroup, job->id);
        assert_int_equal(a->exits, SPINNERS);
        assert_true(a->syscalls[SYS_getppid] + a->syscalls[SYS_clone3] >
                    0); // one may not have started
    }
    (void)munmap(s, sizeof *s);
    assert_int_equal(free_accounts(), before - ROUNDS);
}

static void
watch_flags_may_change_while_a_job_runs(void **state)
{
    (void)state;
    struct job j = new_job("changed", 0);
    drain();
    assert_int_equal(rig_run(j.job, nothing, NULL), 0);
    j.entry.watch = WATCH_EVENTS;
    rig_put(rig.bpf->maps.sandboxes, &j.sandbox->id, &j.entry);
    assert_int_equal(rig_run(j.job, nothing, NULL), 0);
    drain();
    assert_int_equal(count_events(EVENT_EXIT, j.job), 1);
    assert_int_equal(rig_account(&rig, j.job)->watch, WATCH_EVENTS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_outside_is_neither_counted_nor_reported),
        cmocka_unit_test(jobs_are_counted_separately),
        cmocka_unit_test(every_call_is_counted_once_by_number_and_class_of_error),
        cmocka_unit_test(the_return_from_a_signal_handler_is_counted_as_rt_sigreturn),
        cmocka_unit_test(without_the_tracepoint_calls_are_not_counted_and_processes_are),
        cmocka_unit_test(nested_cgroups_and_daemons_belong_to_the_job),
        cmocka_unit_test(a_process_in_the_sandboxs_own_cgroup_has_the_sandboxs_account),
        cmocka_unit_test(a_reused_account_starts_at_zero),
        cmocka_unit_test(processes_seen_at_the_same_moment_share_one_account),
        cmocka_unit_test(watch_flags_may_change_while_a_job_runs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
