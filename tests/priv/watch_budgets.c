// SPDX-License-Identifier: Apache-2.0
// Budgets of events, lost events, and profiles of the telemetry programs.
#include <sys/ptrace.h>
#include <sys/socket.h>

#include "tests/harness/watch_job.h"

// ---- budgets and losses

static int
flood(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n; i++)
        (void)syscall(SYS_ptrace, PTRACE_PEEKDATA, 0x7ffffff0, 0, 0);
    return 0;
}

static void
a_flood_in_one_sandbox_leaves_the_alerts_of_others_and_its_own_other_classes(void **state)
{
    (void)state;
    struct job noisy = new_job("noisy", 0), quiet = new_job("quiet", 0);
    int many = 20000, one = 1, memfd = copy_of_true(true);
    struct exec x = {"", {"true", NULL}, memfd};
    rig_budget(&rig, CLASS_SYSCALL, 1, 50);
    drain();
    uint64_t from = now_ns();
    assert_int_equal(rig_run(noisy.job, flood, &many), 0);
    assert_int_equal(rig_run(noisy.job, execute, &x), 0);
    assert_int_equal(rig_run(quiet.job, flood, &one), 0);
    uint64_t seconds = (now_ns() - from) / 1000000000u + 1;
    drain();
    (void)close(memfd);
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    size_t reported = count_events(EVENT_DANGEROUS, noisy.job);
    assert_true(reported >= 50 && reported <= 50 + seconds);
    assert_int_equal(rig_lost(&rig, noisy.entry.slot, CLASS_SYSCALL), (uint64_t)many - reported);
    assert_int_equal(count_events(EVENT_EXEC, noisy.job), 1);
    assert_int_equal(count_events(EVENT_DANGEROUS, quiet.job), 1);
    assert_int_equal(rig_lost(&rig, quiet.entry.slot, CLASS_SYSCALL), 0);
    assert_int_equal(rig_account(&rig, noisy.job)->syscalls[SYS_ptrace], many);
}

static void
several_cpus_do_not_increase_a_budget(void **state)
{
    (void)state;
    struct job j = new_job("shared", 0);
    int many = 20000;
    pid_t pids[6];
    rig_budget(&rig, CLASS_SYSCALL, 10, 100);
    drain();
    uint64_t from = now_ns();
    for (int i = 0; i < 6; i++)
        pids[i] = rig_spawn(j.job, flood, &many);
    for (int i = 0; i < 6; i++)
        assert_int_equal(rig_wait(pids[i]), 0);
    uint64_t more = (now_ns() - from) / 100000000u + 1;
    drain();
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    size_t reported = count_events(EVENT_DANGEROUS, j.job);
    assert_true(reported >= 100 && reported <= 100 + more);
    assert_int_equal(reported + rig_lost(&rig, j.entry.slot, CLASS_SYSCALL), 6 * many);
}

// keyctl(JOIN_SESSION_KEYRING, NULL), the first call of every job, and sockets that every job may have.
static int
harmless_flood(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n; i++) {
        (void)syscall(SYS_keyctl, 1, NULL);
        (void)syscall(SYS_close, syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0));
    }
    (void)syscall(SYS_ptrace, PTRACE_PEEKDATA, 0x7ffffff0, 0, 0);
    (void)syscall(SYS_ptrace, PTRACE_PEEKDATA, 0x7ffffff0, 0, 0);
    return 0;
}

static void
harmless_calls_spend_no_budget(void **state)
{
    (void)state;
    struct job j = new_job("harmless", 0);
    int many = 3000;
    rig_budget(&rig, CLASS_SYSCALL, 1, 1);
    drain();
    assert_int_equal(rig_run(j.job, harmless_flood, &many), 0);
    drain();
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    assert_int_equal(count_events(EVENT_DANGEROUS, j.job), 2); // the first one needs no budget
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_SYSCALL), 0);
    assert_int_equal(rig_account(&rig, j.job)->dangerous, 2);
}

static int
flood_then_others(void *arg)
{
    (void)flood(arg);
    (void)syscall(SYS_bpf, 9999, NULL, 0);
    (void)syscall(SYS_unshare, 0);
    return 0;
}

static void
the_first_call_of_each_number_in_a_job_needs_no_budget(void **state)
{
    (void)state;
    struct job j = new_job("first", 0);
    int many = 5000;
    rig_budget(&rig, CLASS_SYSCALL, 0, 0);
    for (int run = 0; run < 2; run++) { // another job of the same sandbox has its own first events
        const struct rig_cgroup *job =
            run == 0 ? j.job : rig_cgroup(&rig, j.sandbox->path, "job-2");
        drain();
        assert_int_equal(rig_run(job, flood_then_others, &many), 0);
        drain();
        static const uint32_t numbers[] = {SYS_ptrace, SYS_bpf, SYS_unshare};
        assert_int_equal(count_events(EVENT_DANGEROUS, job), 3);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(BODY(watch_syscall, event(EVENT_DANGEROUS, job, i))->number,
                             numbers[i]);
        assert_int_equal(rig_account(&rig, job)->dangerous, many + 2);
    }
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_SYSCALL), 2 * (many - 1));
}

static int
fork_often(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n; i++) {
        pid_t child = (pid_t)syscall(SYS_fork);
        if (child == 0)
            (void)syscall(SYS_exit_group, 0);
        (void)syscall(SYS_wait4, child, NULL, 0, NULL);
    }
    return 0;
}

static int
execute_true(void *arg)
{
    static const char *const argv[] = {"true", NULL};
    (void)arg;
    (void)syscall(SYS_execve, "/usr/bin/true", argv, argv + 1);
    return 99;
}

// Exits and execs of known programs have separate budgets; unknown programs have another one, and the first exec of
// each needs none.
static void
no_flood_hides_the_exec_of_a_new_program(void **state)
{
    (void)state;
    struct job j = new_job("new", WATCH_EVENTS | WATCH_PROFILE | WATCH_NEW);
    int many = 300;
    struct watch_exe_key key = key_of("/usr/bin/true", 3);
    struct watch_exe known = {0};
    rig_put(rig.bpf->maps.exes, &key, &known);
    rig_budget(&rig, CLASS_EXIT, 1, 20);
    rig_budget(&rig, CLASS_NEW, 0, 0);
    drain();
    assert_int_equal(rig_run(j.job, fork_often, &many), 0);
    assert_int_equal(rig_run(j.job, execute_true, NULL), 0);
    struct exec x = {"/usr/bin/id", {"id", NULL}, -1};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), out = dup(STDOUT_FILENO);
    (void)dup2(null, STDOUT_FILENO);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rig_run(j.job, execute, &x), 0);
    (void)dup2(out, STDOUT_FILENO);
    (void)close(null);
    (void)close(out);
    drain();
    rig_budget(&rig, CLASS_EXIT, 1000, 1000);
    rig_budget(&rig, CLASS_NEW, 1000, 1000);
    assert_int_equal(bpf_map_delete_elem(bpf_map__fd(rig.bpf->maps.exes), &key), 0);
    assert_int_equal(count_events(EVENT_EXEC, j.job), 2);
    const struct seen *e = event(EVENT_EXEC, j.job, 0); // alerts are drained first
    assert_int_equal(e->head.class, CLASS_NEW);
    assert_int_equal(BODY(watch_exec, e)->fresh, 1);
    e = event(EVENT_EXEC, j.job, 1);
    assert_int_equal(e->head.class, CLASS_PROCESS);
    assert_int_equal(BODY(watch_exec, e)->fresh, 0);
    assert_int_equal(rig_account(&rig, j.job)->new_execs, 3);
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_NEW), 2);
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_PROCESS), 0);
    assert_true(rig_lost(&rig, j.entry.slot, CLASS_EXIT) > 0);
}

static void
a_full_ring_loses_exactly_what_is_counted(void **state)
{
    (void)state;
    struct job j = new_job("full", 0);
    int many = 2 * EMIT_ALERTS_BYTES / (int)(sizeof(struct event) + sizeof(struct watch_syscall));
    rig_budget(&rig, CLASS_SYSCALL, 1000000000, 1000000000);
    drain();
    assert_int_equal(rig_run(j.job, flood, &many), 0);
    uint64_t lost = rig_lost(&rig, j.entry.slot, CLASS_SYSCALL);
    int taken = 0;
    seen_n = 0;
    taken = ring_buffer__consume(rings);
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    assert_true(lost > 0);
    assert_int_equal((uint64_t)taken + lost, many);
}

static void
without_a_rate_every_event_is_lost_and_counted(void **state)
{
    (void)state;
    struct job j = new_job("norate", WATCH_EVENTS);
    rig_budget(&rig, CLASS_EXIT, 0, 0);
    drain();
    assert_int_equal(rig_run(j.job, nothing, NULL), 0);
    drain();
    rig_budget(&rig, CLASS_EXIT, 1000, 1000);
    assert_int_equal(count_events(EVENT_EXIT, j.job), 0);
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_EXIT), 1);
}

static void
the_next_sandbox_of_a_slot_begins_with_a_full_budget(void **state)
{
    (void)state;
    struct job first = new_job("used-up", 0);
    struct bpf_sandbox entry = first.entry;
    int many = 100;
    rig_budget(&rig, CLASS_SYSCALL, 1, 5);
    drain();
    assert_int_equal(rig_run(first.job, flood, &many), 0);
    entry.generation++;
    const struct rig_cgroup *next = rig_cgroup(&rig, rig_box(&rig, "next", entry)->path, "job-1");
    assert_int_equal(rig_run(next, flood, &many), 0);
    drain();
    rig_budget(&rig, CLASS_SYSCALL, 1000, 1000);
    assert_true(count_events(EVENT_DANGEROUS, next) >= 5);
    assert_int_equal(event(EVENT_DANGEROUS, next, 0)->head.generation, entry.generation);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_flood_in_one_sandbox_leaves_the_alerts_of_others_and_its_own_other_classes),
        cmocka_unit_test(several_cpus_do_not_increase_a_budget),
        cmocka_unit_test(harmless_calls_spend_no_budget),
        cmocka_unit_test(the_first_call_of_each_number_in_a_job_needs_no_budget),
        cmocka_unit_test(no_flood_hides_the_exec_of_a_new_program),
        cmocka_unit_test(a_full_ring_loses_exactly_what_is_counted),
        cmocka_unit_test(without_a_rate_every_event_is_lost_and_counted),
        cmocka_unit_test(the_next_sandbox_of_a_slot_begins_with_a_full_budget),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
