// SPDX-License-Identifier: Apache-2.0
// The life of a sandbox as seen in the kernel: its initial state, its limits, freezing, killing, and that nothing is
// left. The real spawner and the real guest.
#include <linux/sched.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

enum { CROWD_N = 1000, BURST_N = 200 };

static struct broker broker;

static int
start(void **state)
{
    (void)need_root(state);
    broker_config(&broker, "");
    broker_start(&broker);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    broker_stop(&broker);
    return 0;
}

static bool
is_hybrid(void)
{
    return broker.features.hybrid != 0;
}

// A small file's text, without the last newline.
static void
read_text(int dir_fd, const char *path, char *text, size_t n)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("open %s: %s", path, strerror(errno));
    ssize_t got = read(fd, text, n - 1);
    assert_true(got >= 0);
    text[got] = '\0';
    if (got > 0 && text[got - 1] == '\n')
        text[got - 1] = '\0';
    (void)close(fd);
}

static void
assert_text(int dir_fd, const char *path, const char *expected)
{
    char text[256];
    read_text(dir_fd, path, text, sizeof text);
    if (strcmp(text, expected) != 0)
        fail_msg("%s is \"%s\" instead of \"%s\"", path, text, expected);
}

static pid_t
guest_pid(const struct spawned *x)
{
    char text[64];
    int dir = x->fds[SPAWN_FD_CGROUP];
    read_text(dir, guest_procs(dir), text, sizeof text);
    return (pid_t)strtol(text, NULL, 10);
}

static unsigned
count_entries(const char *path)
{
    unsigned n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

// What could be left over: the spawner's descriptors, mounts and children, and folders of the container.
struct census {
    unsigned fds;
    unsigned mounts;
    unsigned children;
    unsigned cgroups;
};

static struct census
take_census(void)
{
    struct census c = {0};
    char path[400];
    char line[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", broker.pid);
    c.fds = count_entries(path);
    (void)snprintf(path, sizeof path, "/proc/%d/mountinfo", broker.pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        c.mounts++;
    (void)fclose(f);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", broker.pid, broker.pid);
    read_text(AT_FDCWD, path, line, sizeof line);
    for (const char *p = line; *p; p++)
        c.children += *p == ' ';
    struct stat st;
    assert_int_equal(stat(container_path(&broker), &st), 0);
    c.cgroups = (unsigned)st.st_nlink;
    return c;
}

static void
assert_same(const struct census *before, const struct census *after)
{
    assert_int_equal(before->mounts, after->mounts);
    assert_int_equal(before->children, after->children);
    assert_int_equal(before->cgroups, after->cgroups);
    assert_int_equal(before->fds, after->fds);
}

// Waits until the pool of network namespaces is full again and unused leaves were removed, so that descriptors can be
// compared.
static struct census
settled_census(void)
{
    struct census c = take_census();
    for (int same = 0; same < 10;) {
        time_passes("nothing changes any more", 10);
        struct census now = take_census();
        same = now.fds == c.fds && folders_under(&broker, "memory") == 0 ? same + 1 : 0;
        c = now;
    }
    return c;
}

static void
an_emptied_container_has_nothing_of_earlier_sandboxes(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&broker, &x, 1); // makes the slot's user namespace, which stays
    spawned_destroy(&broker, &x);
    struct census before = settled_census();
    for (uint32_t i = 0; i < 30; i++) {
        spawned_create(&broker, &x, i);
        pid_t pid = guest_pid(&x);
        assert_true(pid > 0);
        spawned_destroy(&broker, &x);
        assert_int_equal(kill(pid, 0), -1);
    }
    struct census after = settled_census();
    assert_same(&before, &after);
}

// A line of /proc/PID/status.
static void
assert_status(pid_t pid, const char *key, const char *expected)
{
    char path[64];
    char line[256];
    (void)snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    bool found = false;
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) != 0 || line[n] != ':')
            continue;
        found = true;
        line[strcspn(line, "\n")] = '\0';
        const char *value = line + n + 1 + strspn(line + n + 1, " \t");
        if (strcmp(value, expected) != 0)
            fail_msg("%s is \"%s\" instead of \"%s\"", key, value, expected);
    }
    (void)fclose(f);
    assert_true(found);
}

static void
a_guest_has_its_own_ids_four_capabilities_a_filter_and_nothing_else(void **state)
{
    (void)state;
    struct spawned x;
    char text[256];
    spawned_create(&broker, &x, 1);
    pid_t pid = guest_pid(&x);
    unsigned uid = x.uid + SANDBOX_UID_GUEST;
    assert_true(x.uid > SPAWN_ID_BASE_DEFAULT);
    (void)snprintf(text, sizeof text, "%u\t%u\t%u\t%u", uid, uid, uid, uid);
    assert_status(pid, "Uid", text);
    assert_status(pid, "Gid", text);
    assert_status(pid, "Groups", "");
    // KILL, SETGID and SETUID; the guest drops SETPCAP and the bounding set after using them.
    assert_status(pid, "CapPrm", "00000000000000e0");
    assert_status(pid, "CapEff", "00000000000000e0");
    assert_status(pid, "CapInh", "0000000000000000");
    assert_status(pid, "CapAmb", "0000000000000000");
    assert_status(pid, "CapBnd", "0000000000000000");
    assert_status(pid, "NoNewPrivs", "1");
    assert_status(pid, "Seccomp", "2");
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d", pid);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_text(dir, "oom_score_adj", "950"); // jobs are killed before
    assert_text(dir, "environ", "");
    read_text(dir, "cmdline", text, sizeof text);
    assert_string_equal(text, "stockade-guest");
    (void)snprintf(path, sizeof path, "/proc/%d/fd", pid);
    for (int fd = GUEST_FD_OOM + 1; fd < 2048; fd++) {
        (void)snprintf(path, sizeof path, "fd/%d", fd);
        if (fd >= 16 && faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            fail_msg("descriptor %d is open in the guest", fd);
    }
    (void)close(dir);
    spawned_destroy(&broker, &x);
}

static void
every_namespace_differs_from_the_hosts_and_a_network_is_used_once(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cgroup", "ipc",  "mnt",  "net",
                                        "pid",    "time", "user", "uts"};
    struct spawned x;
    struct spawned y;
    char path[64];
    spawned_create(&broker, &x, 1);
    spawned_create(&broker, &y, 2);
    const pid_t pids[] = {guest_pid(&x), guest_pid(&y), getpid()};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ino_t inodes[3];
        for (size_t p = 0; p < 3; p++) {
            struct stat st;
            (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", pids[p], kinds[i]);
            assert_int_equal(stat(path, &st), 0);
            inodes[p] = st.st_ino;
        }
        if (inodes[0] == inodes[2])
            fail_msg("the %s namespace is the host's", kinds[i]);
        if (inodes[0] == inodes[1] && strcmp(kinds[i], "time") != 0)
            fail_msg("two sandboxes share a %s namespace", kinds[i]);
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", guest_pid(&y));
    struct stat first;
    struct stat next;
    assert_int_equal(stat(path, &first), 0);
    int keep = open(path, O_RDONLY | O_CLOEXEC); // so that its number is not used again
    spawned_destroy(&broker, &y);
    spawned_create(&broker, &y, 3);
    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", guest_pid(&y));
    assert_int_equal(stat(path, &next), 0);
    assert_int_not_equal(first.st_ino, next.st_ino);
    (void)close(keep);
    spawned_destroy(&broker, &x);
    spawned_destroy(&broker, &y);
}

static void
assert_limits(const struct spawned *x, const struct spawn_limits *l)
{
    char text[64];
    int memory = x->fds[is_hybrid() ? SPAWN_FD_MEMORY : SPAWN_FD_CGROUP];
    int cpu = x->fds[is_hybrid() ? SPAWN_FD_CPU : SPAWN_FD_CGROUP];
    int pids = x->fds[is_hybrid() ? SPAWN_FD_PIDS : SPAWN_FD_CGROUP];
    uint64_t tcp = l->memory_bytes / 16 < 32 << 20 ? l->memory_bytes / 16 : 32 << 20;
    (void)snprintf(text, sizeof text, "%llu",
                   (unsigned long long)(l->memory_bytes - (is_hybrid() ? tcp : 0)));
    assert_text(memory, is_hybrid() ? "memory.limit_in_bytes" : "memory.max", text);
    if (is_hybrid())
        assert_text(memory, "memory.memsw.limit_in_bytes", text);
    else
        assert_text(memory, "memory.swap.max", "0");
    (void)snprintf(text, sizeof text, is_hybrid() ? "%u" : "%u 100000", l->cpu_millis * 100);
    assert_text(cpu, is_hybrid() ? "cpu.cfs_quota_us" : "cpu.max", text);
    (void)snprintf(text, sizeof text, "%u",
                   is_hybrid() ? l->cpu_weight * 1024 / 100 : l->cpu_weight);
    assert_text(cpu, is_hybrid() ? "cpu.shares" : "cpu.weight", text);
    (void)snprintf(text, sizeof text, "%u", l->pids + 1);
    assert_text(pids, "pids.max", text);
    (void)snprintf(text, sizeof text, "/proc/%d/root/sys/fs/cgroup", guest_pid(x));
    int view = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(view >= 0); // as seen in the sandbox
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)l->memory_bytes);
    assert_text(view, "memory.max", text);
    (void)snprintf(text, sizeof text, "%u 100000", l->cpu_millis * 100);
    assert_text(view, "cpu.max", text);
    (void)close(view);
    char where[64], meminfo[8192];
    (void)snprintf(where, sizeof where, "/proc/%d/root/proc/meminfo", guest_pid(x));
    read_text(AT_FDCWD, where, meminfo, sizeof meminfo);
    (void)snprintf(text, sizeof text, "MemTotal:%15llu kB\n",
                   (unsigned long long)l->memory_bytes / 1024);
    assert_memory_equal(meminfo, text, strlen(text));
}

static void
limits_are_in_the_kernel_and_can_be_raised_and_lowered(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&broker, &x, 1);
    assert_limits(&x, &small_limits);
    struct spawn_request q = request_for(&x, SPAWN_LIMIT, 0);
    q.limits = small_limits;
    q.limits.memory_bytes = 512 << 20;
    q.limits.disk_bytes = 64 << 20;
    q.limits.cpu_millis = 2000;
    q.limits.cpu_weight = 50;
    q.limits.pids = 100;
    for (int i = 0; i < 2; i++) {
        struct spawn_reply r = broker_ask(&broker, &q, NULL);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        assert_limits(&x, &q.limits);
        q.limits.memory_bytes = 48 << 20;
        q.limits.pids = 10;
        q.limits.cpu_millis = 100;
    }
    // Idle for the scheduler, and back to a weight, which the kernel resets in between.
    const int cpu = x.fds[is_hybrid() ? SPAWN_FD_CPU : SPAWN_FD_CGROUP];
    q.limits.memory_bytes = 48 << 20;
    q.limits.pids = 10;
    q.limits.cpu_millis = 100;
    for (int i = 0; i < 2; i++) {
        q.limits.cpu_weight = SPAWN_WEIGHT_IDLE;
        assert_true(broker_ask(&broker, &q, NULL).ok);
        assert_text(cpu, "cpu.idle", "1");
        q.limits.cpu_weight = 50;
        assert_true(broker_ask(&broker, &q, NULL).ok);
        assert_text(cpu, "cpu.idle", "0");
        assert_limits(&x, &q.limits);
    }
    // Less than is in use: refused, and the guest continues.
    struct spawn_request less = q;
    less.limits = q.limits;
    less.limits.memory_bytes = 4096;
    less.limits.disk_bytes = 32 << 20; // in force at that time
    struct spawn_reply r = broker_ask(&broker, &less, NULL);
    assert_false(r.ok);
    assert_int_equal(kill(guest_pid(&x), 0), 0);
    // Earlier values are written again, although they are the last ones that were set successfully.
    q.limits.memory_bytes = 48 << 20;
    q.limits.pids = 10;
    q.limits.cpu_millis = 100;
    r = broker_ask(&broker, &q, NULL);
    assert_true(r.ok);
    assert_limits(&x, &q.limits);
    struct statfs disk;
    assert_int_equal(fstatfs(x.fds[SPAWN_FD_DISK], &disk), 0);
    assert_in_range((uint64_t)disk.f_blocks * (uint64_t)disk.f_bsize, q.limits.disk_bytes,
                    // and the files that show the sandbox its limits
                    q.limits.disk_bytes + (1 << 20));
    spawned_destroy(&broker, &x);
}

static void
a_guest_may_make_job_cgroups_but_not_limits_and_not_too_deep(void **state)
{
    (void)state;
    struct spawned x;
    struct stat st;
    spawned_create(&broker, &x, 1);
    int dir = x.fds[SPAWN_FD_CGROUP];
    uid_t guest = x.uid + SANDBOX_UID_GUEST;
    const char *const given[] = {".", "cgroup.procs", guest_procs(dir)};
    const char *const kept[] = {"cgroup.subtree_control", "cgroup.max.descendants", "cgroup.freeze",
                                is_hybrid() ? "cgroup.kill" : "guest"};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        assert_int_equal(fstatat(dir, given[i], &st, 0), 0);
        assert_int_equal(st.st_uid, guest);
    }
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        assert_int_equal(fstatat(dir, kept[i], &st, 0), 0);
        assert_int_equal(st.st_uid, 0);
    }
    assert_int_equal(mkdirat(dir, "job-2", 0755), 0);
    assert_int_equal(mkdirat(dir, "job-2/deeper", 0755), -1);
    if (!is_hybrid()) {
        assert_int_equal(faccessat(dir, "job-2/memory.peak", F_OK, 0), 0);
        assert_int_equal(faccessat(dir, "job-2/pids.max", F_OK, 0), 0);
        assert_int_equal(faccessat(dir, "job-2/cpu.stat", F_OK, 0), 0);
    }
    spawned_destroy(&broker, &x); // and job-2 with it
}

static void
no_path_of_a_sandbox_leads_to_its_cgroups(void **state)
{
    (void)state;
    struct spawned x;
    char path[64];
    char line[4096];
    unsigned mounts = 0;
    spawned_create(&broker, &x, 1);
    (void)snprintf(path, sizeof path, "/proc/%d/mountinfo", guest_pid(&x));
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        mounts++;
        if (strstr(line, " - cgroup"))
            fail_msg("%s", line);
    }
    (void)fclose(f);
    assert_true(mounts > 5);
    spawned_destroy(&broker, &x);
}

// Starts a process of the test in job-N.
static pid_t
start_in_job(const struct spawned *x, const char *job)
{
    if (mkdirat(x->fds[SPAWN_FD_CGROUP], job, 0755) < 0)
        assert_int_equal(errno, EEXIST);
    int fd = openat(x->fds[SPAWN_FD_CGROUP], job, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned)fd};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        for (;;)
            (void)pause();
    }
    (void)close(fd);
    assert_true(pid > 0);
    return pid;
}

static void
killing_a_job_works_also_when_frozen(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&broker, &x, 1);
    for (uint32_t frozen = 0; frozen < 2; frozen++) {
        // New cgroups each time, because newer kernels kill processes that are cloned into a cgroup that was killed
        // before.
        pid_t one = start_in_job(&x, frozen ? "job-3" : "job-1");
        pid_t two = start_in_job(&x, frozen ? "job-4" : "job-2");
        struct spawn_request freeze = request_for(&x, SPAWN_FREEZE, frozen);
        assert_true(broker_ask(&broker, &freeze, NULL).ok);
        struct spawn_request q = request_for(&x, SPAWN_KILL_JOB, frozen ? 3 : 1);
        assert_true(broker_ask(&broker, &q, NULL).ok);
        int status = 0;
        assert_int_equal(waitpid(one, &status, 0), one);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        if (waitpid(two, &status, WNOHANG) != 0)
            fail_msg("job 2 ended, too: status %x", (unsigned)status);
        q.arg = 77; // no such job
        assert_true(broker_ask(&broker, &q, NULL).ok);
        q.arg = frozen ? 4 : 2;
        assert_true(broker_ask(&broker, &q, NULL).ok);
        assert_int_equal(waitpid(two, &status, 0), two);
        assert_int_equal(kill(guest_pid(&x), 0), 0);
    }
    spawned_destroy(&broker, &x);
}

static void
replies_to_freeze_and_thaw_come_when_they_are_complete(void **state)
{
    (void)state;
    struct spawned x;
    char text[128];
    spawned_create(&broker, &x, 1);
    for (uint32_t frozen = 1; frozen < 2; frozen--) {
        struct spawn_request q = request_for(&x, SPAWN_FREEZE, frozen);
        assert_true(broker_ask(&broker, &q, NULL).ok);
        read_text(x.fds[SPAWN_FD_CGROUP], "cgroup.events", text, sizeof text);
        assert_non_null(strstr(text, frozen ? "frozen 1" : "frozen 0"));
        assert_true(broker_ask(&broker, &q, NULL).ok); // again, without effect
    }
    struct spawn_request q = request_for(&x, SPAWN_FREEZE, 1);
    assert_true(broker_ask(&broker, &q, NULL).ok);
    spawned_destroy(&broker, &x); // frozen
}

static void
a_sandbox_whose_guest_has_ended_can_be_destroyed(void **state)
{
    (void)state;
    struct spawned x;
    char packet[8];
    spawned_create(&broker, &x, 1);
    assert_int_equal(kill(guest_pid(&x), SIGKILL), 0);
    assert_true(readable(x.fds[SPAWN_FD_GUEST], BROKER_WAIT_MS));
    assert_true(recv(x.fds[SPAWN_FD_GUEST], packet, sizeof packet, 0) <= 0);
    spawned_destroy(&broker, &x);
}

static void
read_ok(void)
{
    struct spawn_reply r;
    int fds[SPAWN_FDS_MAX];
    assert_true(broker_read(&broker, &r, fds));
    if (!r.ok)
        fail_msg("%s", r.err.text);
}

// Unread replies of so many fit into the socket. The spawner reads no more requests while its replies do not fit, and this test,
// unlike the broker, waits in send(2).
enum { REMOVED_AT_A_TIME = 50 };

// Requests n sandboxes, BURST_N or more, waits for all, then removes all; at most BURST_N at a time.
static void
crowd(struct spawned *all, uint32_t n)
{
    int fds[SPAWN_FDS_MAX];
    struct spawn_reply r;
    uint32_t first = broker.seq + 1;
    uint32_t asked = 0;
    for (uint32_t answered = 0; answered < n; answered++) {
        for (; asked < n && asked < answered + BURST_N; asked++) {
            struct spawn_request q = create_request(asked + 1);
            (void)broker_send(&broker, &q);
        }
        assert_true(broker_read(&broker, &r, fds));
        if (!r.ok)
            fail_msg("%s", r.err.text);
        struct spawned *x = &all[r.seq - first];
        spawned_from(x, &r, r.seq - first + 1);
        memcpy(x->fds, fds, sizeof fds);
        for (int i = SPAWN_FD_CGROUP; i < SPAWN_FDS_MAX; i++) {
            if (x->fds[i] >= 0)
                (void)close(x->fds[i]);
            x->fds[i] = -1;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        spawned_wait_ready(&all[i]);
    for (uint32_t i = 0; i < n; i++) {
        struct spawn_request q = request_for(&all[i], SPAWN_DESTROY, 0);
        (void)broker_send(&broker, &q);
        spawned_close_fds(&all[i]);
        if (i + 1 >= REMOVED_AT_A_TIME) // replies are read in between
            read_ok();
    }
    for (uint32_t i = 1; i < REMOVED_AT_A_TIME; i++)
        read_ok();
}

static void
two_hundred_creates_at_once_and_a_thousand_alive_leave_nothing(void **state)
{
    (void)state;
    static struct spawned all[CROWD_N];
    crowd(all, CROWD_N); // makes the user namespaces, which stay
    struct census before = settled_census();
    crowd(all, BURST_N);
    struct census after = settled_census();
    assert_same(&before, &after);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_guest_has_its_own_ids_four_capabilities_a_filter_and_nothing_else, start, stop),
        cmocka_unit_test_setup_teardown(
            every_namespace_differs_from_the_hosts_and_a_network_is_used_once, start, stop),
        cmocka_unit_test_setup_teardown(
            a_guest_may_make_job_cgroups_but_not_limits_and_not_too_deep, start, stop),
        cmocka_unit_test_setup_teardown(limits_are_in_the_kernel_and_can_be_raised_and_lowered,
                                        start, stop),
        cmocka_unit_test_setup_teardown(no_path_of_a_sandbox_leads_to_its_cgroups, start, stop),
        cmocka_unit_test_setup_teardown(killing_a_job_works_also_when_frozen, start, stop),
        cmocka_unit_test_setup_teardown(replies_to_freeze_and_thaw_come_when_they_are_complete,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_sandbox_whose_guest_has_ended_can_be_destroyed, start,
                                        stop),
        cmocka_unit_test_setup_teardown(an_emptied_container_has_nothing_of_earlier_sandboxes,
                                        start, stop),
        cmocka_unit_test_setup_teardown(
            two_hundred_creates_at_once_and_a_thousand_alive_leave_nothing, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
