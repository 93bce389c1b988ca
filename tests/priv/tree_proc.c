// SPDX-License-Identifier: Apache-2.0
// What a sandbox sees of /proc, and its number of terminals. Needs root.
//
// As in tree.c the test program acts as the spawner.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/inside.h"
#include "server/spawner/tree_internal.h"

static void
proc_is_read_only_and_what_shows_the_host_is_empty(void **state)
{
    (void)state;
    static const char script[] =
        "cd /proc; for f in cgroups cmdline config.gz crypto devices diskstats interrupts kallsyms "
        "kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats locks modules "
        "partitions sched_debug slabinfo softirqs sysrq-trigger timer_list vmallocinfo vmstat; "
        "do [ -e $f ] || continue; [ \"$(cat $f | wc -c)\" = 0 ] || echo full $f; done; "
        "for d in acpi asound bus driver fs irq pressure scsi sys/fs sys/kernel/pty tty; do "
        "[ -e $d ] || continue; [ -z \"$(ls -A $d)\" ] || echo full $d; done; "
        "echo x > sys/kernel/core_pattern; echo x > sys/kernel/hostname; echo x > sysrq-trigger; "
        "echo 500 > self/oom_score_adj; echo x > self/comm; cat sys/kernel/ostype";
    static const int users[] = {ROOT, AGENT};
    for (int i = 0; i < 2; i++) {
        const char *out = inside_run(script, users[i]);
        assert_null(strstr(out, "full "));
        expect_in(out, "cannot create sys/kernel/core_pattern: ");
        expect_in(out, "cannot create sys/kernel/hostname: Read-only file system");
        expect_in(out, "cannot create sysrq-trigger: ");
        expect_in(out, "cannot create self/oom_score_adj: Read-only file system");
        expect_in(out, "cannot create self/comm: Read-only file system");
        expect_in(out, "Linux\n");
    }
}

static void
the_objects_of_ipc_are_bounded_and_nobody_inside_changes_that(void **state)
{
    (void)state;
    static const int users[] = {ROOT, AGENT};
    for (int i = 0; i < 2; i++) {
        const char *out = inside_run("cd /proc/sys/kernel; for f in msgmni sem shmmni; do "
                                     "echo 9 > $f; chmod 666 $f; cat $f; done",
                                     users[i]);
        expect_in(out, "cannot create msgmni: Read-only file system");
        expect_in(out, "cannot create sem: Read-only file system");
        expect_in(out, "cannot create shmmni: Read-only file system");
        expect_in(out, "\n512\n");
        expect_in(out, "\n1000\t32000\t500\t512\n");
        assert_null(strstr(out, "\n9\n"));
    }
}

// 512 MiB and one and a half processors: see inside_sandbox().
static void
the_size_that_programs_see_is_the_sandboxs(void **state)
{
    (void)state;
    const bool two = in.tree->cpus > 1;
    static const int users[] = {ROOT, AGENT};
    for (int i = 0; i < 2; i++) {
        const char *out = inside_run(
            "head -3 /proc/meminfo; grep -c ^processor /proc/cpuinfo; grep -c ^cpu /proc/stat; "
            "cat /proc/loadavg; cd /sys/fs/cgroup; cat memory.max cpu.max "
            "cpuset.cpus.effective; cat /sys/devices/system/cpu/online; "
            "python3 -c 'import os; print(\"cpus\", os.cpu_count())'; "
            "for f in * /proc/meminfo /proc/stat; do echo x > $f; rm -f $f; done; echo x > new; "
            "echo end",
            users[i]);
        expect_in(out, "MemTotal:         524288 kB\nMemFree:          524288 kB\n"
                       "MemAvailable:     524288 kB\n");
        expect_in(out, two ? "\n2\n3\n0.00 0.00 0.00 1/1 1\n536870912\n150000 100000\n"
                             "0-1\n0-1\ncpus 2\n"
                           : "\n1\n2\n0.00 0.00 0.00 1/1 1\n536870912\n150000 100000\n"
                             "0\n0\ncpus 1\n");
        expect_in(out, "cannot create /proc/meminfo: Read-only file system");
        if (users[i] == AGENT) {
            expect_in(out, "cannot create memory.max: Read-only file system");
            expect_in(out, "cannot create new: Read-only file system");
        }
    }
}

// With any number of sandboxes, the host and other containers keep a part.
static void
terminals_of_all_sandboxes_together_leave_some_to_others(void **state)
{
    (void)state;
    long max = 0;
    long reserve = 0;
    FILE *a = fopen("/proc/sys/kernel/pty/max", "re");
    FILE *b = fopen("/proc/sys/kernel/pty/reserve", "re");
    assert_true(a != NULL && b != NULL);
    assert_int_equal(fscanf(a, "%ld", &max) + fscanf(b, "%ld", &reserve),
                     2); // NOLINT(cert-err34-c)
    (void)fclose(a);
    (void)fclose(b);
    const long all = (long)in.tree->ptys * (long)in.config.slots;
    assert_in_range(in.tree->ptys, 1, 64);
    assert_true(in.tree->ptys == 1 || all <= max - reserve - 768);
    char expected[32];
    (void)snprintf(expected, sizeof expected, "had %u ", in.tree->ptys);
    expect_in(
        inside_run("python3 -c '\n"
                   "import os\n"
                   "n = 0\n"
                   "try:\n"
                   "  while n < 1000: os.open(\"/dev/ptmx\", os.O_RDWR | os.O_NOCTTY); n += 1\n"
                   "except OSError as e: print(\"had\", n, e)'",
                   AGENT),
        expected);
}

static int
run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proc_is_read_only_and_what_shows_the_host_is_empty),
        cmocka_unit_test(the_objects_of_ipc_are_bounded_and_nobody_inside_changes_that),
        cmocka_unit_test(the_size_that_programs_see_is_the_sandboxs),
        cmocka_unit_test(terminals_of_all_sandboxes_together_leave_some_to_others),
    };
    return cmocka_run_group_tests_name("tree_proc", tests, NULL, NULL);
}

int
main(void)
{
    return inside_main("tree-proc", NULL, run_all);
}
