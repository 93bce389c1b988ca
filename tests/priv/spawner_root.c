// SPDX-License-Identifier: Apache-2.0
// Where the spawner makes its cgroups: in a delegated subtree, as with systemd's Delegate=yes.
#include <sys/xattr.h>

#include "tests/harness/spawner.h"

static void
write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    (void)close(fd);
}

static bool
own_cgroup_is(const char *expected)
{
    char text[4096] = "";
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    (void)!read(fd, text, sizeof text - 1);
    (void)close(fd);
    const char *at = strstr(text, "0::");
    size_t n = strlen(expected);
    return at && strncmp(at + 3, expected, n) == 0 && at[3 + n] == '\n';
}

// In a process of its own, which the spawner moves. Exit code 0: everything is correct.
static int
broker_in(const char *unit, const char *procs)
{
    char expected[200];
    struct broker b;
    struct spawned x;
    write_text(procs, "0");
    broker_config(&b, "");
    b.config.cgroup[0] = '\0';
    broker_start(&b);
    (void)snprintf(expected, sizeof expected, "%s/sandboxes", unit);
    if (strcmp(b.features.cgroup, expected) != 0)
        return 2;
    spawned_create(&b, &x, 1);
    char path[500];
    (void)snprintf(path, sizeof path, "%s%s/%s", v2_mount(), expected, x.name);
    if (access(path, F_OK) < 0)
        return 3;
    (void)snprintf(expected, sizeof expected, "%s/supervisor", unit);
    if (!own_cgroup_is(expected))
        return 4;
    spawned_destroy(&b, &x);
    (void)close(b.fd);
    int status = 0;
    if (waitpid(b.pid, &status, 0) != b.pid || status != 0)
        return 5;
    (void)snprintf(path, sizeof path, "%s%s/sandboxes", v2_mount(), unit);
    if (access(path, F_OK) == 0)
        return 6;
    remove_state(&b);
    return 0;
}

static void
a_delegated_cgroup_is_divided_into_supervisor_and_sandboxes(void **state)
{
    (void)state;
    char unit[100];
    char path[300];
    char procs[320];
    if (geteuid() != 0) {
        (void)puts("skipped: needs root");
        skip();
    }
    (void)snprintf(unit, sizeof unit, "/stockade-unit-%d", (int)getpid());
    (void)snprintf(path, sizeof path, "%s%s", v2_mount(), unit);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(setxattr(path, "trusted.delegate", "1", 1, 0), 0);
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    pid_t pid = fork();
    if (pid == 0)
        _exit(broker_in(unit, procs));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    (void)snprintf(procs, sizeof procs, "%s/supervisor", path);
    (void)rmdir(procs);
    assert_int_equal(rmdir(path), 0);
    // v1 hierarchies have the same path; the unit's folder in them belongs to the test, too.
    static const char *const v1[] = {"memory", "cpu", "pids", "blkio"};
    for (size_t i = 0; i < sizeof v1 / sizeof v1[0]; i++) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s", v1[i], unit);
        (void)rmdir(path);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delegated_cgroup_is_divided_into_supervisor_and_sandboxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
