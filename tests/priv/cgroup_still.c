// SPDX-License-Identifier: Apache-2.0
// cgroup_still(): a cgroup whose processes are not frozen yet, or not all any more, can be thawed.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"
#include "tests/harness/wait.h"

#include <sys/wait.h>

#include "server/spawner/cgroup.h"

enum { SLEEPERS = 16, TURNS = 20 };

static char path[128];
static int sandbox = -1; // its folder
static pid_t pids[SLEEPERS];

static void
put(int dir, const char *file, const char *text)
{
    int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static int
start(void **state)
{
    (void)need_root(state);
    (void)snprintf(path, sizeof path, "%s/stockade-test-still-%d", v2_mount(), (int)getpid());
    if (mkdir(path, 0755) < 0)
        skip_program("no cgroup can be made");
    sandbox = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(sandbox >= 0);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    (void)close(sandbox);
    return rmdir(path);
}

// Processes that sleep, in the sandbox's cgroup or one below it.
static int
fill(const char *name)
{
    int dir = sandbox;
    if (name[0] != '\0') {
        assert_int_equal(mkdirat(sandbox, name, 0755), 0);
        dir = openat(sandbox, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    assert_true(dir >= 0);
    for (int i = 0; i < SLEEPERS; i++) {
        char number[16];
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            for (;;)
                (void)pause();
        (void)snprintf(number, sizeof number, "%d", (int)pids[i]);
        put(dir, "cgroup.procs", number);
    }
    return dir;
}

static void
empty(const char *name, int dir)
{
    for (int i = 0; i < SLEEPERS; i++) {
        (void)kill(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
    if (dir == sandbox)
        return;
    (void)close(dir);
    assert_int_equal(unlinkat(sandbox, name, AT_REMOVEDIR), 0);
}

static void
wait_for_still(const struct cgroups *cg, bool frozen)
{
    struct err e;
    int r = 0;
    wait_until("the cgroup is still, or thawed", (r = cgroup_still(cg, sandbox, frozen, &e)) != 0);
    if (r < 0)
        fail_msg("%s", e.text);
}

static void
expect(int dir, char wanted)
{
    char now = '?';
    int fd = openat(dir, "cgroup.freeze", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, &now, 1) == 1);
    (void)close(fd);
    assert_int_equal(now, wanted);
}

static void
check(bool guest_apart)
{
    const struct cgroups cg = {.guest_apart = guest_apart};
    const char *const name = guest_apart ? "guest" : "";
    const int dir = fill(name);
    for (int i = 0; i < TURNS; i++) {
        put(dir, "cgroup.freeze", "1"); // its processes need a moment
        wait_for_still(&cg, false);
        expect(dir, '0');
        wait_for_still(&cg, true);
        expect(dir, '1');
        assert_int_equal(cgroup_event(dir, "frozen"), 1);
        wait_for_still(&cg, false);
        expect(dir, '0');
    }
    empty(name, dir);
}

static void
a_sandbox_that_is_freezing_is_thawed(void **state)
{
    (void)state;
    check(false);
}

static void
so_are_the_cgroups_below_it_where_its_guest_is_apart(void **state)
{
    (void)state;
    check(true);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_that_is_freezing_is_thawed),
        cmocka_unit_test(so_are_the_cgroups_below_it_where_its_guest_is_apart),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
