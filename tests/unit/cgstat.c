// SPDX-License-Identifier: Apache-2.0
// The kernel's files about a cgroup, parsed without trust in their form.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/sandbox/cgstat.h"

static void
invalid_numbers_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "\n", "max\n", "-1\n", " 1\n", "1 2", "1\n2", "0x10", "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t v = 42;
        assert_false(cgstat_parse_number(bad[i], strlen(bad[i]), &v));
        assert_int_equal(v, 42);
    }
}

static void
a_missing_key_is_unknown(void **state)
{
    (void)state;
    static const char text[] = "oom_kill_disable 0\nxoom_kill 3\noom_killer 4\noom_kill x\n";
    uint64_t v = 42;
    assert_false(cgstat_parse_key(text, sizeof text - 1, "oom_kill", &v));
    assert_false(cgstat_parse_key(text, sizeof text - 1, "oom", &v));
    assert_false(cgstat_parse_key("oom", 3, "oom", &v));
    assert_false(cgstat_parse_key("oom ", 4, "oom", &v));
    assert_int_equal(v, 42);
}

static void
a_sum_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const char text[] = "8:0 rbytes=18446744073709551615\n8:16 rbytes=1\n";
    static const char broken[] = "8:0 rbytes=12x wbytes=1\n";
    uint64_t v = 42;
    assert_false(cgstat_parse_sum(text, sizeof text - 1, "rbytes", &v));
    assert_false(cgstat_parse_sum(broken, sizeof broken - 1, "rbytes", &v));
    assert_int_equal(v, 42);
}

static void
numbers_keys_and_sums_are_read(void **state)
{
    (void)state;
    static const char stat[] = "usage_usec 12\nuser_usec 7\nsystem_usec 5";
    static const char io[] = "8:0 rbytes=100 wbytes=20 rios=3 wios=1 dbytes=0 dios=0\n"
                             "253:0 rbytes=11 wbytes=0 rios=1 wios=0 dbytes=9 dios=9\n";
    static const char blkio[] = "8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\nTotal 4608\n";
    uint64_t v = 0;
    assert_true(cgstat_parse_number("18446744073709551615\n", 21, &v));
    assert_true(v == UINT64_MAX);
    assert_true(cgstat_parse_key(stat, sizeof stat - 1, "system_usec", &v));
    assert_int_equal(v, 5);
    assert_true(cgstat_parse_sum(io, sizeof io - 1, "rbytes", &v));
    assert_int_equal(v, 111);
    assert_true(cgstat_parse_sum(blkio, sizeof blkio - 1, "Write", &v));
    assert_int_equal(v, 512);
    assert_true(cgstat_parse_sum("", 0, "Read", &v)); // no device was used
    assert_int_equal(v, 0);
}

static void
put(const char *dir, const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void
clear(const char *dir)
{
    static const char *const names[] = {"job-1/cpu.stat", "job-1/memory.events", "job-1/pids.peak",
                                        "cpu.stat",       "pids.events",         "cgroup.events"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/job-1", dir);
    (void)rmdir(path);
    (void)rmdir(dir);
}

// Makes the folder of a sandbox, whose name is a template of mkdtemp(3), and that of its first job.
static struct cgroup_dirs
a_cgroup(char *dir, char job[64])
{
    struct cgroup_dirs dirs = {.fd = {-1, -1, -1, -1, -1, -1, -1, -1}};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(job, 64, "%s/job-1", dir);
    assert_int_equal(mkdir(job, 0755), 0);
    dirs.fd[SPAWN_FD_CGROUP] = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dirs.fd[SPAWN_FD_CGROUP] >= 0);
    return dirs;
}

static void
missing_files_of_a_cgroup_are_unknown_and_others_are_read(void **state)
{
    (void)state;
    char dir[] = "/tmp/stockade-cgstat-XXXXXX", job[64];
    struct cgroup_dirs dirs = a_cgroup(dir, job);
    put(job, "cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n");
    put(job, "memory.events", "low 0\noom 2\noom_kill 1\n");
    put(job, "pids.peak", "7\n");
    put(dir, "cpu.stat", "usage_usec 40\nthrottled_usec 9\n");
    put(dir, "pids.events", "max 3\n");
    put(dir, "cgroup.events", "populated 1\nfrozen 0\n");
    struct cgstat s;
    cgstat_read(&dirs, 1, &s);
    assert_int_equal(s.v[STAT_CPU_USER_NS], 20000);
    assert_int_equal(s.v[STAT_OOM_KILLS], 1);
    assert_int_equal(s.v[STAT_PIDS_PEAK], 7);
    assert_false(cgstat_known(&s, STAT_MEMORY_PEAK_BYTES));
    assert_false(cgstat_known(&s, STAT_IO_READ_BYTES));
    assert_int_equal(cgstat_cpu_ns(&dirs, 1), 30000);
    assert_int_equal(cgstat_cpu_ns(&dirs, 2), 0);
    cgstat_read(&dirs, 0, &s);
    assert_int_equal(s.v[STAT_THROTTLED_NS], 9000);
    assert_int_equal(s.v[STAT_PIDS_DENIED], 3);
    cgstat_read_early(&dirs, &s); // counters that only jobs can change are not read
    assert_int_equal(s.v[STAT_THROTTLED_NS], 9000);
    assert_false(cgstat_known(&s, STAT_PIDS_DENIED));
    assert_int_equal(s.v[STAT_PIDS_DENIED], 0);
    (void)close(dirs.fd[SPAWN_FD_CGROUP]);
    clear(dir);
}

static void
kept_files_are_read_again_without_being_opened(void **state)
{
    (void)state;
    char dir[] = "/tmp/stockade-cgstat-XXXXXX";
    assert_non_null(mkdtemp(dir));
    put(dir, "cpu.stat", "usage_usec 40\nthrottled_usec 9\n");
    put(dir, "pids.events", "max 3\n");
    struct cgroup_dirs dirs = {.fd = {-1, -1, -1, -1, -1, -1, -1, -1}};
    struct cgstat s;
    dirs.fd[SPAWN_FD_CGROUP] = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cgstat_keep(&dirs);
    cgstat_keep(&dirs);
    for (int i = 0; i < 2; i++) {
        cgstat_read(&dirs, 0, &s);
        assert_int_equal(s.v[STAT_THROTTLED_NS], 9000);
        assert_int_equal(s.v[STAT_PIDS_DENIED], 3);
        assert_false(cgstat_known(&s, STAT_OOM_KILLS)); // its file does not exist
    }
    put(dir, "cpu.stat", "usage_usec 50\nthrottled_usec 12\n");
    clear(dir);
    cgstat_read(&dirs, 0, &s);
    assert_int_equal(s.v[STAT_THROTTLED_NS], 12000);
    cgstat_drop(&dirs);
    cgstat_drop(&dirs);
    cgstat_read(&dirs, 0, &s);
    assert_false(cgstat_known(&s, STAT_THROTTLED_NS));
    (void)close(dirs.fd[SPAWN_FD_CGROUP]);
}

static void
kept_files_of_a_job_are_its_own_and_not_opened_again(void **state)
{
    (void)state;
    char dir[] = "/tmp/stockade-cgstat-XXXXXX", job[64];
    struct cgroup_dirs dirs = a_cgroup(dir, job);
    put(dir, "cpu.stat", "usage_usec 40\nuser_usec 25\nsystem_usec 15\n");
    put(job, "cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n");
    struct cgstat_files *files = NULL;
    struct cgstat s;
    cgstat_keep(&dirs);
    cgstat_read(&dirs, 0, &s);
    cgstat_keep_job(&files);
    cgstat_keep_job(&files);
    cgstat_read_job(&dirs, 1, files, &s);
    assert_int_equal(s.v[STAT_CPU_USER_NS], 20000);
    assert_false(cgstat_known(&s, STAT_OOM_KILLS)); // its file does not exist
    put(job, "cpu.stat", "usage_usec 50\nuser_usec 35\nsystem_usec 15\n");
    clear(dir);
    cgstat_read_job(&dirs, 1, files, &s);
    assert_int_equal(s.v[STAT_CPU_USER_NS], 35000);
    cgstat_read(&dirs, 0, &s);
    assert_int_equal(s.v[STAT_CPU_NS], 40000);
    cgstat_drop_job(&files);
    cgstat_drop_job(&files);
    assert_null(files);
    cgstat_read_job(&dirs, 1, files, &s);
    assert_false(cgstat_known(&s, STAT_CPU_NS));
    cgstat_drop(&dirs);
    (void)close(dirs.fd[SPAWN_FD_CGROUP]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_numbers_are_refused),
        cmocka_unit_test(a_missing_key_is_unknown),
        cmocka_unit_test(a_sum_that_does_not_fit_is_refused),
        cmocka_unit_test(numbers_keys_and_sums_are_read),
        cmocka_unit_test(missing_files_of_a_cgroup_are_unknown_and_others_are_read),
        cmocka_unit_test(kept_files_are_read_again_without_being_opened),
        cmocka_unit_test(kept_files_of_a_job_are_its_own_and_not_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
