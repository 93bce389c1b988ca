// SPDX-License-Identifier: Apache-2.0
// The resource use of a sandbox: invalid figures are unknown, files stay open within the bound, and both hierarchies
// are read.
//
// The files are real files in a folder of the test, with texts of kernels.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/sandbox/cgstat.h"
#include "server/sandbox/usage.h"

enum { V2_FILES = 7 }; // the files of one sandbox on a v2 host

struct fixture {
    char folder[64];
    int dir;
    struct cgroup_dirs dirs; // v2: one directory has everything
    struct usage_files *files;
};

static int
setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    (void)snprintf(f->folder, sizeof f->folder, "/tmp/stockade-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->dir = open(f->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f->dir >= 0);
    for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
        f->dirs.fd[i] = -1;
    f->dirs.fd[SPAWN_FD_CGROUP] = f->dir;
    usage_allow(USAGE_OPEN_MAX);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    static const char *const names[] = {
        "cpu.stat",     "memory.current",  "memory.usage_in_bytes",
        "pids.current", "io.stat",         "blkio.throttle.io_service_bytes",
        "cpu.pressure", "memory.pressure", "io.pressure"};
    struct fixture *f = *state;
    usage_close(&f->files);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlinkat(f->dir, names[i], 0);
    (void)close(f->dir);
    assert_int_equal(rmdir(f->folder), 0);
    free(f);
    return 0;
}

static void
put(const struct fixture *f, const char *name, const char *text)
{
    int fd = openat(f->dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void
put_v2(const struct fixture *f)
{
    put(f, "cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nthrottled_usec 7\n");
    put(f, "memory.current", "4096\n");
    put(f, "pids.current", "3\n");
    put(f, "io.stat",
        "8:0 rbytes=1000 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n"
        "259:1 rbytes=500 wbytes=5 rios=1 wios=1 dbytes=0 dios=0\n");
    put(f, "cpu.pressure",
        "some avg10=12.34 avg60=1.00 avg300=0.50 total=777\n"
        "full avg10=0.05 avg60=0.00 avg300=0.00 total=66\n");
    put(f, "memory.pressure",
        "some avg10=100.00 avg60=1.00 avg300=0.50 total=1\n"
        "full avg10=99.99 avg60=0.00 avg300=0.00 total=2\n");
    put(f, "io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
}

static struct usage
look(struct fixture *f, uint64_t now_ms)
{
    struct usage u;
    usage_read(&f->dirs, &f->files, now_ms, &u);
    return u;
}

static void
expect(const struct usage *u, enum usage_figure i, uint64_t v)
{
    if ((u->known >> i & 1) == 0 || u->v[i] != v)
        fail_msg("%s: known %u, %llu and not %llu", usage_name(i), u->known >> i & 1,
                 (unsigned long long)u->v[i], (unsigned long long)v);
}

// ---- invalid figures

static void
missing_files_are_unknown(void **state)
{
    struct fixture *f = *state;
    struct usage u = look(f, 1);
    assert_int_equal(u.known, 0);
    for (size_t i = 0; i < USAGE_RESOURCES; i++)
        assert_false(u.pressure[i].known);
    assert_int_equal(usage_open(), 0);
    f->dirs.fd[SPAWN_FD_CGROUP] = -1; // a sandbox that is not made yet
    usage_close(&f->files);
    assert_int_equal(look(f, 2).known, 0);
}

static void
numbers_above_64_bits_are_unknown(void **state)
{
    static const char *const wrong[] = {"",          "x",     "-1\n",
                                        "4096 kB\n", "max\n", "18446744073709551616\n"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put(f, "memory.current", wrong[i]);
        assert_int_equal(look(f, 1).known, 0);
    }
    put(f, "memory.current", "18446744073709551615\n");
    struct usage u = look(f, 1);
    expect(&u, USAGE_MEMORY_BYTES, UINT64_MAX);
    put(f, "cpu.stat", "usage_usec 18446744073709551615\nthrottled_usec 5\n");
    usage_close(&f->files);
    u = look(f, 1); // too large as nanoseconds
    assert_int_equal(u.known >> USAGE_CPU_NS & 1, 0);
    expect(&u, USAGE_THROTTLED_NS, 5000);
}

static void
a_link_is_not_followed(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(symlinkat("/proc/sys/kernel/pid_max", f->dir, "pids.current"), 0);
    assert_int_equal(look(f, 1).known, 0);
}

static void
a_sum_of_truncated_text_is_unknown(void **state)
{
    enum { LINES = 600, LINE = 64 };
    static char text[LINES * LINE];
    struct fixture *f = *state;
    size_t n = 0;
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "8:%d rbytes=10 wbytes=1 rios=1\n", i);
    put(f, "io.stat", text);
    struct usage u = look(f, 1);
    expect(&u, USAGE_IO_READ_BYTES, 1000); // as many disks as a large host has
    for (int i = 100; i < LINES; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "8:%d rbytes=10 wbytes=1 rios=1 wios=1\n",
                              i);
    put(f, "io.stat", text);
    assert_int_equal(look(f, 1).known, 0);
}

static void
invalid_pressure_lines_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "some",
                                        "some avg10=x avg60=0.00 avg300=0.00 total=1",
                                        "some avg10=101.00 avg60=0.00 avg300=0.00 total=1",
                                        "some avg10=1.00 avg60=0.00 avg300=0.00",
                                        "some avg10=1.00 avg60=0.00 avg300=0.00 total=",
                                        "avg10=1.00 avg60=0.00 avg300=0.00 total=1"};
    struct fixture *f = *state;
    uint32_t percent = 9;
    uint64_t total = 9;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(usage_parse_pressure(wrong[i], &percent, &total));
        put(f, "cpu.pressure", wrong[i]);
        assert_false(look(f, 1).pressure[USAGE_CPU].known);
    }
    assert_true(percent == 9 && total == 9);
}

// ---- files that stay open

static void
without_descriptors_to_spare_files_are_read_and_closed(void **state)
{
    struct fixture *f = *state;
    struct usage_files *second = NULL;
    put_v2(f);
    usage_allow(3);
    struct usage u = look(f, 1);
    expect(&u, USAGE_MEMORY_BYTES, 4096);
    assert_null(f->files);
    assert_int_equal(usage_open(), 0);
    usage_allow(V2_FILES + 5); // one sandbox
    u = look(f, 2);
    assert_non_null(f->files);
    assert_int_equal(usage_open(), V2_FILES);
    usage_read(&f->dirs, &second, 2, &u);
    expect(&u, USAGE_PIDS, 3);
    assert_null(second);
    assert_int_equal(usage_open(), V2_FILES);
}

static void
files_stay_open_while_they_are_read_and_no_longer(void **state)
{
    struct fixture *f = *state;
    put_v2(f);
    (void)look(f, 1000);
    put(f, "pids.current", "17\n");
    struct usage u = look(f, 2000);
    expect(&u, USAGE_PIDS, 17); // the current value, not the earlier one
    assert_int_equal(usage_open(), V2_FILES);
    usage_close_idle(&f->files, 2000 + USAGE_IDLE_MS - 1);
    assert_int_equal(usage_open(), V2_FILES);
    usage_close_idle(&f->files, 2000 + USAGE_IDLE_MS);
    assert_int_equal(usage_open(), 0);
    assert_null(f->files);
    usage_close_idle(&f->files, 1 << 30);
    usage_close(&f->files);
    u = look(f, 9);
    expect(&u, USAGE_PIDS, 17);
}

// ---- figures

static void
the_files_of_v2_give_every_figure(void **state)
{
    struct fixture *f = *state;
    put_v2(f);
    for (int i = 0; i < 2; i++) { // first opened, then kept open
        struct usage u = look(f, 1);
        assert_int_equal(u.known, (1u << USAGE_FIGURES) - 1);
        expect(&u, USAGE_CPU_NS, 1500000);
        expect(&u, USAGE_THROTTLED_NS, 7000);
        expect(&u, USAGE_MEMORY_BYTES, 4096);
        expect(&u, USAGE_PIDS, 3);
        expect(&u, USAGE_IO_READ_BYTES, 1500);
        expect(&u, USAGE_IO_WRITE_BYTES, 25);
        const struct usage_pressure *cpu = &u.pressure[USAGE_CPU];
        assert_true(cpu->known && cpu->some_centipercent == 1234 && cpu->some_us == 777);
        assert_true(cpu->full_centipercent == 5 && cpu->full_us == 66);
        assert_int_equal(u.pressure[USAGE_MEMORY].some_centipercent, 10000);
        assert_true(u.pressure[USAGE_IO].known && u.pressure[USAGE_IO].full_us == 0);
    }
}

static void
the_files_of_hybrid_hosts_give_every_figure(void **state)
{
    struct fixture *f = *state;
    f->dirs.fd[SPAWN_FD_MEMORY] = f->dirs.fd[SPAWN_FD_PIDS] = f->dirs.fd[SPAWN_FD_BLKIO] = f->dir;
    f->dirs.fd[SPAWN_FD_CPU] = f->dir;
    put(f, "cpu.stat", "usage_usec 2\nnr_throttled 1\nthrottled_time 900\n");
    put(f, "memory.usage_in_bytes", "8192\n");
    put(f, "pids.current", "1\n");
    put(f, "blkio.throttle.io_service_bytes",
        "8:0 Read 100\n8:0 Write 7\n8:16 Read 1\nTotal 108\n");
    struct usage u = look(f, 1);
    expect(&u, USAGE_CPU_NS, 2000);
    expect(&u, USAGE_THROTTLED_NS, 900);
    expect(&u, USAGE_MEMORY_BYTES, 8192);
    expect(&u, USAGE_PIDS, 1);
    expect(&u, USAGE_IO_READ_BYTES, 101);
    expect(&u, USAGE_IO_WRITE_BYTES, 7);
    assert_false(u.pressure[USAGE_CPU].known);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(missing_files_are_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_above_64_bits_are_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_is_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sum_of_truncated_text_is_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_pressure_lines_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(without_descriptors_to_spare_files_are_read_and_closed,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(files_stay_open_while_they_are_read_and_no_longer, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_files_of_v2_give_every_figure, setup, teardown),
        cmocka_unit_test_setup_teardown(the_files_of_hybrid_hosts_give_every_figure, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
