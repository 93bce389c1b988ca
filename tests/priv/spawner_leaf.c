// SPDX-License-Identifier: Apache-2.0
// Leaves below v1 controllers are reused by later sandboxes only if they are like new.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

#include <sys/mman.h>
#include <sys/vfs.h>

enum { TRIES = 60, CHARGED = 24 << 20 };

static struct broker b;
static uint32_t made;

static int
start(void **state)
{
    (void)need_root(state);
    struct statfs fs;
    if (statfs("/sys/fs/cgroup/memory", &fs) < 0)
        skip_program("no v1 memory controller on this host");
    broker_config(&b, "");
    broker_start(&b);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    broker_stop(&b);
    return 0;
}

static ino_t
leaf_of(const struct spawned *x)
{
    struct stat st;
    assert_int_equal(fstat(x->fds[SPAWN_FD_MEMORY], &st), 0);
    return st.st_ino;
}

static uint64_t
number_in(int dir_fd, const char *file)
{
    char text[32] = "";
    int fd = openat(dir_fd, file, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    return strtoull(text, NULL, 10);
}

// Runs a process in the sandbox's memory leaf that fills `bytes` of memory, or of a file if file_fd is not -1.
// Returns its status.
static int
charge(const struct spawned *x, size_t bytes, int file_fd)
{
    int tasks = openat(x->fds[SPAWN_FD_MEMORY], "tasks", O_WRONLY | O_CLOEXEC);
    assert_true(tasks >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       file_fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file_fd, 0);
        if (p == MAP_FAILED || write(tasks, "0", 1) != 1)
            _exit(1);
        for (size_t i = 0; i < bytes; i += 4096)
            p[i] = 1;
        _exit(0);
    }
    int status = 0;
    (void)close(tasks);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

// Makes and destroys sandboxes until one has this leaf, at most TRIES. A sandbox that has it is kept.
static bool
comes_again(ino_t leaf, const struct spawn_limits *limits, struct spawned *x)
{
    for (int i = 0; i < TRIES; i++) {
        struct spawn_request q = create_request(++made);
        q.limits = *limits;
        struct spawn_reply r = broker_ask(&b, &q, x->fds);
        assert_true(r.ok);
        spawned_from(x, &r, made);
        spawned_wait_ready(x);
        if (leaf_of(x) == leaf)
            return true;
        spawned_destroy(&b, x);
    }
    return false;
}

static void
a_leaf_with_charged_memory_is_not_reused(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&b, &x, ++made);
    ino_t leaf = leaf_of(&x);
    int file = memfd_create("stays", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, 4096), 0);
    assert_int_equal(charge(&x, 4096, file), 0); // a page that outlives its process
    spawned_destroy(&b, &x);
    assert_false(comes_again(leaf, &small_limits, &x));
    (void)close(file);
}

static void
a_leaf_with_an_oom_kill_is_not_reused(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&b, &x, ++made);
    ino_t leaf = leaf_of(&x);
    int status = charge(&x, small_limits.memory_bytes * 2, -1);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    spawned_destroy(&b, &x);
    assert_false(comes_again(leaf, &small_limits, &x));
}

static void
a_leaf_like_new_is_reused_with_a_reset_peak_and_new_limits(void **state)
{
    (void)state;
    struct spawned x;
    struct spawn_limits other = small_limits;
    bool again = false;
    // Sometimes the kernel keeps a page for long: then try another leaf.
    for (int i = 0; i < 5 && !again; i++) {
        spawned_create(&b, &x, ++made);
        ino_t leaf = leaf_of(&x);
        assert_int_equal(charge(&x, CHARGED, -1), 0);
        assert_true(number_in(x.fds[SPAWN_FD_MEMORY], "memory.max_usage_in_bytes") >= CHARGED);
        struct spawn_request idle = request_for(&x, SPAWN_LIMIT, 0);
        idle.limits = small_limits;
        idle.limits.cpu_weight = SPAWN_WEIGHT_IDLE;
        assert_true(broker_ask(&b, &idle, NULL).ok);
        spawned_destroy(&b, &x);
        other.memory_bytes = (i % 2 == 0 ? UINT64_C(32) : UINT64_C(128)) << 20;
        other.cpu_millis = 700;
        other.cpu_weight = 100;
        again = comes_again(leaf, &other, &x);
    }
    assert_true(again);
    assert_true(number_in(x.fds[SPAWN_FD_MEMORY], "memory.max_usage_in_bytes") < CHARGED);
    // TCP buffers are counted separately, and are part of the limit.
    uint64_t tcp = other.memory_bytes / 16;
    assert_int_equal(number_in(x.fds[SPAWN_FD_MEMORY], "memory.limit_in_bytes"),
                     other.memory_bytes - tcp);
    assert_int_equal(number_in(x.fds[SPAWN_FD_MEMORY], "memory.memsw.limit_in_bytes"),
                     other.memory_bytes - tcp);
    assert_int_equal(number_in(x.fds[SPAWN_FD_MEMORY], "memory.kmem.tcp.limit_in_bytes"), tcp);
    assert_int_equal(number_in(x.fds[SPAWN_FD_CPU], "cpu.cfs_quota_us"), 70000);
    assert_int_equal(number_in(x.fds[SPAWN_FD_CPU], "cpu.shares"), 1024);
    assert_int_equal(number_in(x.fds[SPAWN_FD_CPU], "cpu.idle"), 0);
    spawned_destroy(&b, &x);
}

static void
unused_leaves_are_removed(void **state)
{
    (void)state;
    struct spawned x;
    spawned_create(&b, &x, ++made);
    spawned_destroy(&b, &x);
    wait_until("the leaf is removed", folders_under(&b, "memory") == 0);
    assert_int_equal(folders_under(&b, "cpu"), 0);
    assert_int_equal(folders_under(&b, "blkio"), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_with_charged_memory_is_not_reused),
        cmocka_unit_test(a_leaf_with_an_oom_kill_is_not_reused),
        cmocka_unit_test(a_leaf_like_new_is_reused_with_a_reset_peak_and_new_limits),
        cmocka_unit_test(unused_leaves_are_removed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
