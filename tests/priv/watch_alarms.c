// SPDX-License-Identifier: Apache-2.0
// Attempts to avoid the tripwires, as seen by the telemetry programs: another ABI, set-id bits, files without a name
// that another program runs.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "tests/harness/watch_job.h"

// The filter kills a caller of getppid.
static int
killed_by_filter(void *arg)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    (void)arg;
    (void)syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
    (void)syscall(SYS_getppid);
    return 0;
}

static void
a_call_for_which_the_filter_kills_is_an_alarm(void **state)
{
    (void)state;
    struct job j = new_job("killed", 0);
    drain();
    int status = rig_run(j.job, killed_by_filter, NULL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    drain();
    assert_int_equal(count_events(EVENT_DANGEROUS, j.job), 1);
    const struct watch_syscall *b = BODY(watch_syscall, event(EVENT_DANGEROUS, j.job, 0));
    assert_int_equal(b->number, SYS_getppid);
    assert_true(b->arch != 0);
    assert_int_equal(rig_account(&rig, j.job)->dangerous, 1);
}

static int
set_ids(void *arg)
{
    (void)syscall(SYS_fchmodat, AT_FDCWD, "/nothing/there", 0755);
    (void)syscall(SYS_fchmodat, AT_FDCWD, "/nothing/there", 04755);
    (void)syscall(SYS_fchmod, -1, 02755); // as on folders
    (void)syscall(SYS_fchmod, -1, 06755);
    (void)arg;
    return 0;
}

static void
a_set_user_id_bit_is_an_alarm(void **state)
{
    (void)state;
    struct job j = new_job("setid", 0);
    drain();
    assert_int_equal(rig_run(j.job, set_ids, NULL), 0);
    drain();
    assert_int_equal(count_events(EVENT_DANGEROUS, j.job), 2);
    assert_int_equal(BODY(watch_syscall, event(EVENT_DANGEROUS, j.job, 0))->number, SYS_fchmodat);
    assert_int_equal(BODY(watch_syscall, event(EVENT_DANGEROUS, j.job, 1))->number, SYS_fchmod);
}

static int
execute_beside_a_memfd(void *arg)
{
    (void)arg;
    struct exec x = {"/usr/bin/true", {"true", "/proc/self/fd/9", NULL}, -1};
    (void)dup2((int)syscall(SYS_memfd_create, "x", 0), 9);
    return execute(&x);
}

static void
descriptors_of_files_without_a_name_are_shown(void **state)
{
    (void)state;
    struct job j = new_job("beside", WATCH_EVENTS);
    drain();
    assert_int_equal(rig_run(j.job, execute_beside_a_memfd, NULL), 0);
    drain();
    const struct seen *e = event(EVENT_EXEC, j.job, 0);
    assert_non_null(e);
    assert_true((BODY(watch_exec, e)->nameless & 1U << 9) != 0);
    assert_int_equal(BODY(watch_exec, e)->memfd, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_for_which_the_filter_kills_is_an_alarm),
        cmocka_unit_test(a_set_user_id_bit_is_an_alarm),
        cmocka_unit_test(descriptors_of_files_without_a_name_are_shown),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
