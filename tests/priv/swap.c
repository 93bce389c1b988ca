// SPDX-License-Identifier: Apache-2.0
// sandbox_seal(), _restore() and _inherit() through the broker's core, the real spawner and the real guest: what a sandbox has written is sealed,
// and everything else about it stays as it was.
#include <sys/sysmacros.h>

#include "server/sandbox/spawn.h"
#include "server/spawner/tree_layers.h"
#include "tests/harness/swaps.h"

static bool
is_there(int dir, const char *path)
{
    return faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int
disk(void)
{
    return box->dirs.fd[SPAWN_FD_DISK];
}

// ---- what is refused

static void
a_sandbox_that_nobody_has_taken_cannot_be_sealed(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    assert_true(ask(&w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_false(w.called);
}

static void
a_sandbox_with_a_job_is_refused_by_broker_and_spawner_and_goes_on(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    struct job *j = NULL;
    struct wait raw = {.called = 0};
    struct reader r = {.follower = {.wake = on_wake, .cookie = &r}};
    text[0] = '\0';
    assert_int_equal(begin("echo begun; sleep 100; echo done > A", &j, &e), 0);
    job_follow(j, &r.follower, 0, true);
    until(strcmp(text, "begun\n") == 0);
    assert_true(ask(&w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(e.reason, "JOBS_RUN");
    assert_int_equal(spawn_seal(srv.spawn, box->slot, box->generation, on_done, &raw, &e), 0);
    until(raw.called > 0); // as if the broker were wrong
    assert_int_equal(raw.reply.ok, 0);
    assert_int_equal(raw.reply.err.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(raw.reply.err.reason, "JOBS_RUN");
    assert_int_equal(raw.fds[0], -1);
    job_signal(j, SIGKILL, true, &e);
    until(r.ended && box->jobs_n == 0);
    (void)swap();
    assert_sh("echo yes", "yes\n");
}

// Killed with its job, they go on their own time: the swap waits for them.
static void
what_a_job_left_is_waited_for(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_sh("for i in 1 2 3 4 5 6 7 8; do setsid sleep 100 & done; echo a > A", "");
        (void)swap();
    }
    assert_sh("cat A", "a\n");
}

static void
a_second_swap_and_a_job_are_refused_until_the_first_is_answered(void **state)
{
    (void)state;
    struct err e;
    struct swapped first, second;
    struct job *j = NULL;
    assert_int_equal(ask(&first, &e), 0);
    assert_true(ask(&second, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(e.text, "getting another layer of files"));
    assert_true(begin("true", &j, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    until(first.called);
    assert_true(first.ok && !second.called);
    assert_sh("echo yes", "yes\n");
}

static void
on_paused(void *cookie, struct sandbox *s, const struct err *e)
{
    (void)s;
    assert_null(e);
    *(bool *)cookie = true;
}

static void
a_paused_sandbox_is_refused_by_broker_and_spawner(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    bool paused = false, resumed = false;
    struct wait raw = {.called = 0};
    struct sandbox_waiter p = {.done = on_paused, .cookie = &paused};
    struct sandbox_waiter q = {.done = on_paused, .cookie = &resumed};
    assert_int_equal(sandbox_pause(box, &p, &e), 0);
    until(paused);
    assert_true(ask(&w, &e) < 0);
    assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(spawn_seal(srv.spawn, box->slot, box->generation, on_done, &raw, &e), 0);
    until(raw.called > 0);
    assert_int_equal(raw.reply.err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(sandbox_resume(box, &q, &e), 0);
    until(resumed);
    (void)swap();
}

static void
a_sandbox_that_is_deleted_meanwhile_answers_and_leaves_no_layer(void **state)
{
    (void)state;
    struct err e, why;
    struct swapped w;
    assert_int_equal(ask(&w, &e), 0);
    (void)err_set(&why, ERR_CANCELLED, "deleted");
    sandbox_destroy(box, &why, NULL);
    box = NULL;
    assert_true(w.called && !w.ok);
    assert_int_equal(w.e.code, ERR_ABORTED);
    until(sandboxes_count(srv.sandboxes) == 0);
}

// It takes nothing of what jobs can use up.
static void
a_full_disk_can_be_sealed_and_restored(void **state)
{
    (void)state;
    assert_int_equal(sh("echo a > A; i=0; while : > f$i; do i=$((i + 1)); done 2>/dev/null"), 2);
    uint32_t layer = swap();
    assert_sh("cat A; rm f1; : > n; ls n f1 2>/dev/null; true", "a\nn\n");
    assert_int_equal(sh("i=0; while : > g$i; do i=$((i + 1)); done 2>/dev/null"), 2);
    restore(layer);
    assert_sh("ls f1 n g0 2>/dev/null; true", "f1\n");
}

// Fails behind the middle: a folder to mount on is missing in the new root, when the first mounts have moved there.
static void
a_failure_on_the_way_is_undone(void **state)
{
    (void)state;
    static const char look[] =
        "cut -d' ' -f4- /proc/self/mountinfo | sed 's/nr_inodes=[0-9]*//'; ls /proc/self /usr /dev /dev/shm;"
        " cat /sys/fs/cgroup/memory.max; cat A";
    static char before[TEXT_MAX];
    assert_sh("echo a > A; echo s > /dev/shm/S", "");
    assert_int_equal(sh(look), 0);
    memcpy(before, text, sizeof before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mknodat(disk(), "u0/sys", S_IFCHR, makedev(0, 0)), 0); // a whiteout
        swap_fails(ERR_INTERNAL, "sys/fs/cgroup");
        assert_int_equal(unlinkat(disk(), "u0/sys", 0), 0);
        assert_false(is_there(disk(), "Ab") || is_there(disk(), "Ac"));
        assert_int_equal(sh(look), 0);
        assert_string_equal(text, before);
    }
    assert_sh("echo b > B; cat A B", "a\nb\n");
    int was = dup(disk());
    (void)swap();
    assert_true(is_there(was, "Ab/s/home/agent/B") && is_there(was, "Ab/s/dev/shm/S"));
    (void)close(was);
    assert_sh("cat A B /dev/shm/S", "a\nb\ns\n");
}

// ---- what it does

static void
what_was_written_is_sealed_and_what_follows_lies_above(void **state)
{
    (void)state;
    assert_sh("echo a > A; mkdir d; echo x > d/x; echo t > /tmp/T", "");
    int layer = dup(disk());
    assert_int_equal(swap(), 1);
    assert_sh("cat A d/x /tmp/T; echo b > B; cat B", "a\nx\nt\nb\n");
    assert_true(is_there(layer, "Ab/s/home/agent/A") && is_there(layer, "Ab/s/tmp/T"));
    assert_false(is_there(layer, "Ab/s/home/agent/B"));
    assert_true(is_there(disk(), "u/home/agent/B"));
    assert_false(is_there(disk(), "u/home/agent/A"));
    assert_sh("echo more >> A; rm -r d; cat A; ls", "a\nmore\nA\nB\n");
    char was[8] = "";
    int fd = openat(layer, "Ab/s/home/agent/A", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, was, sizeof was), 2); // "a\n"
    assert_true(is_there(layer, "Ab/s/home/agent/d/x"));
    (void)close(fd);
    (void)close(layer);
}

static void
nothing_new_is_the_same_layer(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    assert_sh("echo a > A", "");
    uint32_t first = swap();
    assert_sh("cat A", "a\n");
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(&w, &e), 0);
        succeeds(&w);
        assert_true(w.swap.layer == first && !w.swap.fresh);
    }
    assert_sh("touch A", "");
    assert_true(swap() != first);
}

static void
restoring_drops_what_was_written_since(void **state)
{
    (void)state;
    assert_sh("echo a > A; echo t > /tmp/T; echo s > /dev/shm/S; echo v > /var/tmp/V", "");
    uint32_t one = swap();
    assert_sh("echo b > A; rm /tmp/T; echo S > /dev/shm/S; mkdir d", "");
    uint32_t two = swap();
    assert_sh("echo c > A; rm -r d", "");
    restore(two);
    assert_sh("cat A /dev/shm/S; ls; ls /tmp", "b\nS\nA\nd\n");
    restore(one);
    assert_sh("cat A /tmp/T /dev/shm/S /var/tmp/V; ls", "a\nt\ns\nv\nA\n");
    assert_sh("echo x > X", "");
    restore(one);
    assert_sh("ls", "A\n");
    restore(two);
    assert_sh("cat A; ls", "b\nA\nd\n");
}

static void
a_layer_that_is_not_there_or_needed_is_refused(void **state)
{
    (void)state;
    struct err e;
    struct swapped w;
    struct wait raw = {.called = 0};
    assert_sh("echo a > A", "");
    uint32_t one = swap();
    assert_sh("echo b > A", "");
    uint32_t two = swap();
    prepare(&w);
    assert_int_equal(sandbox_restore(box, 7, &w.swap, &e), 0);
    fails(&w, ERR_NOT_FOUND, "no layer 7");
    for (uint32_t layer = one; layer <= two; layer += two - one) {
        raw.called = 0;
        assert_int_equal(
            spawn_drop(srv.spawn, box->slot, box->generation, layer, on_done, &raw, &e), 0);
        until(raw.called > 0);
        assert_int_equal(raw.reply.err.code, ERR_FAILED_PRECONDITION);
    }
    restore(one);
    for (int i = 0; i < 2; i++) {
        raw.called = 0;
        assert_int_equal(spawn_drop(srv.spawn, box->slot, box->generation, two, on_done, &raw, &e),
                         0);
        until(raw.called > 0);
        assert_int_equal(raw.reply.ok, i == 0);
    }
    assert_int_equal(raw.reply.err.code, ERR_NOT_FOUND);
    assert_sh("cat A", "a\n");
}

static void
deep_chains_are_seen_whole_and_end_at_the_maximum(void **state)
{
    (void)state;
    const unsigned most = TREE_DEPTH;
    const unsigned middle = most / 2;
    uint64_t ns[TREE_DEPTH];
    char script[64], expected[64];
    for (unsigned i = 0; i < most; i++) {
        (void)snprintf(script, sizeof script, "echo %u > f%u; echo %u > same", i, i, i);
        assert_sh(script, "");
        uint64_t from = uv_hrtime();
        (void)swap();
        ns[i] = uv_hrtime() - from;
        for (unsigned k = i; k > 0 && ns[k] < ns[k - 1]; k--) {
            uint64_t t = ns[k];
            ns[k] = ns[k - 1];
            ns[k - 1] = t;
        }
    }
    (void)printf("a swap takes %.3f ms (median of %u; least %.3f, most %.3f)\n",
                 (double)ns[middle] / 1e6, most, (double)ns[0] / 1e6, (double)ns[most - 1] / 1e6);
    assert_sh("touch f0", "");
    swap_fails(ERR_RESOURCE_EXHAUSTED, "on each other already");
    (void)snprintf(expected, sizeof expected, "0\n15\n%u\n%u\n%u\n", most - 1, most - 1, most + 1);
    (void)snprintf(script, sizeof script, "cat f0 f15 f%u same; ls | wc -l", most - 1);
    assert_sh(script, expected);
    restore(most);
    assert_sh(script, expected);
    if (!can_fork()) {
        (void)puts("no fork of it: this kernel cannot share files in memory between sandboxes");
        return;
    }
    struct sandbox *parent = box;
    struct sandbox *child = fork_of(parent, most);
    assert_sh(script, expected);
    forget_box(parent);
    assert_sh(script, expected);
    box = child;
}

// ---- what must not change

static void
the_view_of_a_job_is_the_same(void **state)
{
    (void)state;
    // Numbers of mounts and devices change; flags, types, and what is where do not.
    static const char look[] =
        "grep -v /dev/shm /proc/self/mountinfo | cut -d' ' -f4- | sed 's/,xino=[a-z]*//; s/lowerdir.*//; s/nr_inodes=[0-9]*//' | sort;"
        "ls -ln / /proc/sys /dev /dev/pts /dev/shm /sys /sys/fs/cgroup |"
        " awk '!/^total/ {print $1, $3, $4, $NF}';"
        "cat /proc/meminfo /sys/fs/cgroup/*; grep -E 'Cap|NoNew|Seccomp|[UG]id|Groups' /proc/self/status;"
        "cat /proc/kcore /proc/keys /proc/timer_list /proc/sysrq-trigger 2>&1;"
        "echo x > /proc/self/comm; echo x > /usr/x; echo x > /opt/x; echo x > /dev/x; echo x > /sys/x; : > /etc/x;"
        "mount -t tmpfs none /tmp; unshare -m true; mknod n c 1 3; chroot / true; umount /proc;"
        "ls -la /.. | wc -l; ls /proc/1/root /proc/1/cwd 2>&1; df -P / /dev/shm | wc -l; stat -c '%u %g %a' / /tmp /home/agent;"
        "ls -l /proc/self/fd | wc -l; cat /proc/mounts | wc -l; readlink /proc/self/root /proc/self/cwd";
    static char before[TEXT_MAX];
    (void)sh(look);
    memcpy(before, text, sizeof before);
    assert_true(strlen(before) > 2000);
    for (int i = 0; i < 3; i++) {
        assert_sh("touch A", "");
        (void)swap();
        (void)sh(look);
        assert_string_equal(text, before);
    }
}

static unsigned
lines_of(const char *path)
{
    FILE *f = fopen(path, "re");
    unsigned n = 0;
    assert_non_null(f);
    for (int c = 0; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    (void)fclose(f);
    return n;
}

static unsigned
entries_of(const char *path)
{
    DIR *d = opendir(path);
    unsigned n = 0;
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static pid_t
guest_pid(void)
{
    int fd = openat(box->dirs.fd[SPAWN_FD_CGROUP], guest_procs(box->dirs.fd[SPAWN_FD_CGROUP]),
                    O_RDONLY | O_CLOEXEC);
    char number[16] = "";
    assert_true(fd >= 0 && read(fd, number, sizeof number - 1) > 0);
    (void)close(fd);
    return atoi(number);
}

static void
the_guest_gets_no_descriptor_and_no_mount_and_the_spawner_keeps_none(void **state)
{
    (void)state;
    char fds[64], mounts[64], root[64], cwd[64], spawner[64];
    struct stat a, c;
    pid_t guest = guest_pid();
    (void)snprintf(fds, sizeof fds, "/proc/%d/fd", guest);
    (void)snprintf(mounts, sizeof mounts, "/proc/%d/mountinfo", guest);
    (void)snprintf(root, sizeof root, "/proc/%d/root", guest);
    (void)snprintf(cwd, sizeof cwd, "/proc/%d/cwd", guest);
    (void)snprintf(spawner, sizeof spawner, "/proc/%d/fd", spawn_pid(srv.spawn));
    assert_sh("true", ""); // the guest has opened by then what it needs for a job
    unsigned fds_n = entries_of(fds), mounts_n = lines_of(mounts), spawner_n = entries_of(spawner);
    assert_int_equal(stat(root, &a), 0);
    for (int i = 0; i < 5; i++) {
        assert_sh("touch A", "");
        (void)swap();
        if (i == 0) // it has the disk and the upper layer from then on, and soon no helper any more
            until(entries_of(spawner) <= spawner_n + 2);
    }
    until(entries_of(fds) <= fds_n);
    assert_int_equal(lines_of(mounts), mounts_n);
    assert_int_equal(stat(root, &c), 0);
    assert_true(a.st_dev != c.st_dev); // another file system
    assert_int_equal(stat(cwd, &a), 0);
    assert_true(a.st_dev == c.st_dev && a.st_ino == c.st_ino);
    until(entries_of(spawner) <= spawner_n + 1); // the helpers are reaped
    assert_int_equal(guest_pid(), guest);
}

static void
limits_hold_over_all_layers_and_can_be_changed(void **state)
{
    (void)state;
    assert_sh("head -c 5000000 /dev/zero > A", "");
    (void)swap();
    assert_int_equal(sh("head -c 5000000 /dev/zero > B"), 1); // 8 MiB in all
    assert_sh("rm B; head -c 2000000 /dev/zero > B; wc -c < B", "2000000\n");
    struct limits more = box->spec.limits;
    struct err e;
    bool changed = false;
    struct sandbox_waiter w = {.done = on_paused, .cookie = &changed};
    more.v[LIMIT_DISK_BYTES] = 16 << 20;
    more.v[LIMIT_MEMORY_BYTES] = 32 << 20;
    assert_int_equal(sandbox_limit(box, &more, &w, &e), 0);
    until(changed);
    assert_sh("head -c 5000000 /dev/zero > C; wc -c < C; cat /sys/fs/cgroup/memory.max",
              "5000000\n33554432\n");
    assert_int_equal(sh("exec tail /dev/zero"), 1000); // out of memory
    assert_sh("wc -c < A", "5000000\n");
}

int
main(void)
{
#define READY(name) cmocka_unit_test_setup_teardown(name, make_ready, remove_box)
#define TAKEN(name) cmocka_unit_test_setup_teardown(name, make_box, remove_box)
    const struct CMUnitTest tests[] = {
        READY(a_sandbox_that_nobody_has_taken_cannot_be_sealed),
        TAKEN(a_sandbox_with_a_job_is_refused_by_broker_and_spawner_and_goes_on),
        TAKEN(what_a_job_left_is_waited_for),
        TAKEN(a_second_swap_and_a_job_are_refused_until_the_first_is_answered),
        TAKEN(a_paused_sandbox_is_refused_by_broker_and_spawner),
        TAKEN(a_sandbox_that_is_deleted_meanwhile_answers_and_leaves_no_layer),
        TAKEN(a_full_disk_can_be_sealed_and_restored),
        TAKEN(a_failure_on_the_way_is_undone),
        TAKEN(what_was_written_is_sealed_and_what_follows_lies_above),
        TAKEN(nothing_new_is_the_same_layer),
        TAKEN(restoring_drops_what_was_written_since),
        TAKEN(a_layer_that_is_not_there_or_needed_is_refused),
        TAKEN(deep_chains_are_seen_whole_and_end_at_the_maximum),
        TAKEN(the_view_of_a_job_is_the_same),
        TAKEN(the_guest_gets_no_descriptor_and_no_mount_and_the_spawner_keeps_none),
        TAKEN(limits_hold_over_all_layers_and_can_be_changed),
    };
    return cmocka_run_group_tests(tests, start_core, stop_core);
}
