// SPDX-License-Identifier: Apache-2.0
// Profiles of executables in the telemetry programs: learning, comparing, and files without a profile.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "tests/harness/watch_job.h"

// ---- profiles

enum { PROFILE = 9, PATTERN = 2000 };

struct pattern {
    bool strange;
};

static int
repeat(void *arg)
{
    static const long usual[] = {SYS_getppid, SYS_getuid, SYS_getgid, SYS_getpid};
    const struct pattern *p = arg;
    for (int i = 0; i < PATTERN; i++)
        (void)syscall(usual[i % 4]);
    for (int i = 0; p->strange && i < 40; i++)
        (void)syscall(i % 2 ? SYS_getegid : SYS_geteuid);
    for (int i = 0; i < PATTERN; i++)
        (void)syscall(usual[i % 4]);
    return 0;
}

// This program as the kernel and its events see it. On some file systems stat(2) shows other values.
static const struct watch_exe_key *
own_key(void)
{
    static struct watch_exe_key key;
    if (key.inode)
        return &key;
    struct job j = new_job("key", WATCH_EVENTS);
    struct exec x = {"/proc/self/exe", {"x", "--nothing", NULL}, -1};
    drain();
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 1);
    key = BODY(watch_exec, event(EVENT_EXEC, j.job, 0))->exe;
    return &key;
}

static struct job
profiled_job(const char *name, uint32_t mode, uint32_t threshold)
{
    struct job j = new_job(name, WATCH_PROFILE);
    struct watch_exe exe = {.profile = PROFILE};
    rig_put(rig.bpf->maps.exes, own_key(), &exe);
    struct watch_profile_state *s = &rig.profile_states[PROFILE];
    *s = (struct watch_profile_state){.mode = mode, .threshold = threshold};
    return j;
}

static void
a_learnt_program_raises_nothing_and_an_unlearnt_one_is_reported(void **state)
{
    (void)state;
    struct pattern usual = {false}, strange = {true};
    const struct watch_profile_state *s = &rig.profile_states[PROFILE];
    memset(&rig.profiles[PROFILE], 0, sizeof rig.profiles[PROFILE]);
    struct job j = profiled_job("learn", WATCH_PROFILE_LEARN, 5);
    drain();
    assert_int_equal(rig_run(j.job, repeat, &usual), 0);
    drain();
    assert_int_equal(count_events(EVENT_PROFILE, j.job), 0);
    assert_true(s->trigrams >= 2 * PATTERN - 2);
    uint64_t learnt = s->unseen;
    assert_true(learnt >= 4 && learnt < 30);
    assert_in_range(s->most, 4, learnt);
    rig.profile_states[PROFILE].most = 0;
    assert_int_equal(rig_run(j.job, repeat, &usual), 0);
    assert_int_equal(s->unseen, learnt); // nothing new
    assert_int_equal(s->most, 0);

    j = profiled_job("judge", WATCH_PROFILE_JUDGE, 5);
    assert_int_equal(rig_run(j.job, repeat, &usual), 0);
    drain();
    assert_int_equal(count_events(EVENT_PROFILE, j.job), 0);
    assert_int_equal(s->unseen, 0);
    assert_int_equal(rig_run(j.job, repeat, &strange), 0);
    drain();
    assert_int_equal(s->alerts, count_events(EVENT_PROFILE, j.job));
    // 42 unseen trigrams are in one window, or in two.
    assert_true(s->alerts == 1 || s->alerts == 2);
    const struct seen *e = event(EVENT_PROFILE, j.job, 0);
    const struct watch_score *b = BODY(watch_score, e);
    assert_int_equal(e->head.class, CLASS_PROFILE);
    assert_int_equal(b->profile, PROFILE);
    assert_int_equal(b->unseen, 6); // reported above the threshold, not at the end of the window
    assert_true(b->window >= 6 && b->window < WATCH_WINDOW);
    assert_true(b->last[2] == SYS_geteuid || b->last[2] == SYS_getegid ||
                b->last[1] == SYS_geteuid || b->last[1] == SYS_getegid);
    assert_int_equal(rig_account(&rig, j.job)->failures, 0);
}

// A session leader is refused another session, and another process group.
static int
is_refused(void *arg)
{
    const struct pattern *p = arg;
    for (int i = 0; i < 10; i++)
        (void)syscall(SYS_setsid);
    for (int i = 0; p->strange && i < 50; i++)
        (void)syscall(SYS_setpgid, 0, 0);
    return 0;
}

static void
only_a_first_refusal_of_a_call_is_reported_once(void **state)
{
    (void)state;
    struct pattern usual = {false}, strange = {true};
    memset(&rig.profiles[PROFILE], 0, sizeof rig.profiles[PROFILE]);
    struct job j = profiled_job("refused-learn", WATCH_PROFILE_LEARN, WATCH_WINDOW);
    drain();
    assert_int_equal(rig_run(j.job, is_refused, &usual), 0);
    uint32_t bit = watch_trigram(WATCH_REFUSED, WATCH_REFUSED, SYS_setsid);
    assert_true(rig.profiles[PROFILE].bits[bit / 64] >> (bit % 64) & 1);

    j = profiled_job("refused-judge", WATCH_PROFILE_JUDGE, WATCH_WINDOW);
    assert_int_equal(rig_run(j.job, is_refused, &usual), 0);
    drain();
    assert_int_equal(count_events(EVENT_PROFILE, j.job), 0);
    assert_int_equal(rig_run(j.job, is_refused, &strange), 0);
    drain();
    assert_int_equal(count_events(EVENT_PROFILE, j.job), 1);
    const struct watch_score *b = BODY(watch_score, event(EVENT_PROFILE, j.job, 0));
    assert_int_equal(b->profile, PROFILE);
    assert_int_equal(b->last[0], WATCH_REFUSED);
    assert_int_equal(b->last[1], WATCH_REFUSED);
    assert_int_equal(b->last[2], SYS_setpgid);
    assert_int_equal(rig.profile_states[PROFILE].alerts, 1);
}

static void
at_the_threshold_nothing_is_reported_and_an_unknown_executable_is_not_scored(void **state)
{
    (void)state;
    struct pattern strange = {true};
    const struct watch_profile_state *s = &rig.profile_states[PROFILE];
    memset(&rig.profiles[PROFILE], 0, sizeof rig.profiles[PROFILE]);
    struct job j = profiled_job("all-strange", WATCH_PROFILE_JUDGE, WATCH_WINDOW);
    drain();
    assert_int_equal(rig_run(j.job, repeat, &strange), 0);
    assert_true(s->unseen >= PATTERN);
    assert_int_equal(s->alerts, 0);

    assert_int_equal(bpf_map_delete_elem(bpf_map__fd(rig.bpf->maps.exes), own_key()), 0);
    rig.profile_states[PROFILE].threshold = 1;
    uint64_t judged = s->trigrams;
    assert_int_equal(rig_run(j.job, repeat, &strange), 0);
    struct exec x = {"/usr/bin/true", {"true", NULL}, -1};
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    drain();
    assert_int_equal(s->trigrams, judged);
    assert_int_equal(count_events(EVENT_PROFILE, j.job), 0);
    assert_int_equal(count_events(EVENT_EXEC, j.job), 1); // it is a separate finding
    assert_int_equal(BODY(watch_exec, event(EVENT_EXEC, j.job, 0))->known, 0);
    assert_int_equal(count_events(EVENT_EXIT, j.job), 0);
}

static void
thousands_of_profile_alarms_hide_no_file_without_a_name(void **state)
{
    (void)state;
    struct pattern strange = {true};
    memset(&rig.profiles[PROFILE], 0, sizeof rig.profiles[PROFILE]);
    struct job j = profiled_job("noise", WATCH_PROFILE_JUDGE, 0);
    int memfd = copy_of_true(true);
    struct exec x = {"", {"true", NULL}, memfd};
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        rig_budget(&rig, class, 1, 5);
    drain();
    for (int i = 0; i < 10; i++) // 20 windows each
        assert_int_equal(rig_run(j.job, repeat, &strange), 0);
    assert_true(rig_lost(&rig, j.entry.slot, CLASS_PROFILE) > 100);
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    drain();
    (void)close(memfd);
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        rig_budget(&rig, class, 1000, 1000);
    assert_int_equal(count_events(EVENT_EXEC, j.job), 1);
    assert_int_equal(BODY(watch_exec, event(EVENT_EXEC, j.job, 0))->memfd, 1);
    assert_int_equal(rig_lost(&rig, j.entry.slot, CLASS_ALARM), 0);
}

static void
calls_before_exec_are_not_scored_after_it(void **state)
{
    (void)state;
    const struct watch_profile_state *s = &rig.profile_states[PROFILE];
    memset(&rig.profiles[PROFILE], 0, sizeof rig.profiles[PROFILE]);
    struct job j = profiled_job("exec-profile", WATCH_PROFILE_LEARN, 5);
    struct exec x = {"/usr/bin/true", {"true", NULL}, -1};
    assert_int_equal(rig_run(j.job, execute, &x), 0);
    // The child's only call as this program was the clone that made it, so there are no three in a row.
    assert_int_equal(s->trigrams, 0);
    assert_int_equal(s->windows, 0);
}

// A thread that runs as long as the test: another one whose id differs by 64 Ki would use its entry.
static void
without_its_flag_a_sandbox_does_not_change_profiles(void **state)
{
    (void)state;
    struct pattern strange = {true};
    const struct watch_profile_state *s = &rig.profile_states[PROFILE];
    struct job j = profiled_job("no-profile", WATCH_PROFILE_JUDGE, 0);
    j.entry.watch = WATCH_EVENTS;
    rig_put(rig.bpf->maps.sandboxes, &j.sandbox->id, &j.entry);
    assert_int_equal(rig_run(j.job, repeat, &strange), 0);
    assert_int_equal(s->trigrams, 0);
    assert_int_equal(s->alerts, 0);
}

// ---- owners of executables

enum { BOX_IDS = 500000, JOB_UID = 1000, DEEP = 12 };

struct nested {
    unsigned levels;
    struct exec exec;
    int go; // a byte arrives when the outermost has its map
};

static int
write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? write(fd, text, strlen(text)) : -1;
    (void)close(fd);
    return n > 0 ? 0 : -1;
}

// The sandbox's user namespace, and more nested ones, in which a job could be root of its own files.
static int
execute_nested(void *arg)
{
    const struct nested *x = arg;
    char byte = 'u';
    if (unshare(CLONE_NEWUSER) != 0 || write(x->go, &byte, 1) != 1 || read(x->go, &byte, 1) != 1 ||
        setresgid(0, 0, 0) != 0 || setresuid(JOB_UID, JOB_UID, JOB_UID) != 0)
        return 90;
    for (unsigned i = 0; i < x->levels; i++) {
        if (unshare(CLONE_NEWUSER) != 0 ||
            prctl(PR_SET_DUMPABLE, 1) != 0 || // otherwise /proc/self/uid_map does not belong to it
            write_file("/proc/self/setgroups", "deny") != 0 ||
            write_file("/proc/self/gid_map", "0 0 1") != 0 ||
            write_file("/proc/self/uid_map", i == 0 ? "0 1000 1" : "0 0 1") != 0)
            return 91;
    }
    return execute((void *)(uintptr_t)&x->exec);
}

static uint32_t
owner_reported(const char *name, const char *path, unsigned levels)
{
    int ends[2];
    char map[40], text[40], byte = 0;
    struct job j = new_job(name, WATCH_EVENTS);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    struct nested x = {levels, {path, {"x", NULL}, -1}, ends[1]};
    drain();
    pid_t pid = rig_spawn(j.job, execute_nested, &x);
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)snprintf(text, sizeof text, "0 %d 65536", BOX_IDS);
    (void)snprintf(map, sizeof map, "/proc/%d/gid_map", (int)pid);
    assert_int_equal(write_file(map, text), 0);
    (void)snprintf(map, sizeof map, "/proc/%d/uid_map", (int)pid);
    assert_int_equal(write_file(map, text), 0);
    assert_int_equal(write(ends[0], &byte, 1), 1);
    assert_int_equal(rig_wait(pid), 0);
    (void)close(ends[0]);
    drain();
    assert_int_equal(count_events(EVENT_EXEC, j.job), 1);
    return BODY(watch_exec, event(EVENT_EXEC, j.job, 0))->exe.owner;
}

// Files of a sandbox are never profiled, so a job must not be able to make its file look like root's.
static void
an_executable_has_the_owner_that_the_sandbox_sees_however_deep_a_job_nests(void **state)
{
    (void)state;
    char folder[] = "/tmp/stockade-owner-XXXXXX";
    char path[60], copy[300];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/true", folder);
    (void)snprintf(copy, sizeof copy, "cp /usr/bin/true %s && chmod 755 %s %s", path, folder, path);
    assert_int_equal(system(copy), 0); // NOLINT(cert-env33-c): of the test
    // an owner without an id in the sandbox
    assert_int_equal(owner_reported("roots", path, 0), ~0U);
    assert_int_equal(chown(path, BOX_IDS, BOX_IDS), 0);
    assert_int_equal(owner_reported("boxs-root", path, 0), 0);
    assert_int_equal(chown(path, BOX_IDS + JOB_UID, BOX_IDS), 0);
    assert_int_equal(owner_reported("jobs", path, 0), JOB_UID);
    assert_int_equal(owner_reported("jobs-nested", path, 1), JOB_UID);
    assert_int_equal(owner_reported("jobs-nested-deep", path, DEEP), JOB_UID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_learnt_program_raises_nothing_and_an_unlearnt_one_is_reported),
        cmocka_unit_test(only_a_first_refusal_of_a_call_is_reported_once),
        cmocka_unit_test(
            at_the_threshold_nothing_is_reported_and_an_unknown_executable_is_not_scored),
        cmocka_unit_test(thousands_of_profile_alarms_hide_no_file_without_a_name),
        cmocka_unit_test(calls_before_exec_are_not_scored_after_it),
        cmocka_unit_test(without_its_flag_a_sandbox_does_not_change_profiles),
        cmocka_unit_test(
            an_executable_has_the_owner_that_the_sandbox_sees_however_deep_a_job_nests),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
