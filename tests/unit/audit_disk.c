// SPDX-License-Identifier: Apache-2.0
// server/audit/sync.c, and clocks that are set: what the kernel returns is the test's choice.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/audit.h"
#include "proto/audit_scan.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "server/audit/audit.h"
#include "tests/harness/trail.h"
#include "tests/harness/wait.h"

// ---- a disk that fails

static unsigned syncs, syncs_that_fail;
static int last_failed = -1;
static bool tried_again;

// A file in the way of the new one. `kept`: the copy of an attempt that failed was there until the next copy was complete.
static char in_the_way[128], next_path[128];
static unsigned copies;
static bool kept;

static void
look_at_copy(int fd)
{
    struct stat old, new;
    if (in_the_way[0] == '\0')
        return;
    if (++copies != 2)
        return;
    kept = stat(next_path, &old) == 0 && fstat(fd, &new) == 0 && old.st_ino != new.st_ino;
    (void)unlink(in_the_way);
}

// Like Linux: a failure is reported once.
static int
failing_sync(int fd)
{
    struct stat st;
    tried_again = tried_again || fd == last_failed;
    if (syncs_that_fail == 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
        look_at_copy(fd);
        return fdatasync(fd);
    }
    syncs++;
    syncs_that_fail--;
    last_failed = fd;
    errno = EIO;
    return -1;
}

static int64_t
usual_now(clockid_t clock)
{
    return now_ns(clock);
}

static const struct audit_system failing_disk = {.sync = failing_sync, .now_ns = usual_now};

static struct audit_settings
failing_settings(void)
{
    struct audit_settings s = trail_settings();
    s.sync = AUDIT_SYNC_ALWAYS;
    s.system = &failing_disk;
    syncs = syncs_that_fail = 0;
    tried_again = false;
    last_failed = -1;
    return s;
}

static void
a_sync_that_failed_is_not_tried_again_on_the_same_file(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    const struct audit_settings s = failing_settings();
    struct audit *a = trail_open(&s);
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, 0);
    for (unsigned i = 0; i < 5; i++) {
        syncs_that_fail = 1;
        trail_call(a, "/stockade.v1.SandboxService/Create");
        assert_int_equal(trail_wait(a).code, 0);
        assert_int_equal(syncs_that_fail, 0);
        trail_call(a, "/stockade.v1.SandboxService/Delete");
        assert_int_equal(trail_wait(a).code, 0);
    }
    audit_close(a, 0);
    const struct audit_verified v = trail_verify(&seen);
    if (trail_problems(&seen) > 0)
        fail_msg("%s", seen.text);
    assert_false(tried_again);
    assert_true(v.whole);
    assert_int_equal(v.calls, 11);
    assert_int_equal(v.files, 6);
}

static void
a_disk_that_goes_on_failing_is_no_stored_record(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct err e;
    const struct audit_settings s = failing_settings();
    struct audit *a = trail_open(&s);
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, 0);
    syncs_that_fail = 4; // the file, and another one twice
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, ERR_RESOURCE_EXHAUSTED);
    assert_true(audit_admit(a, &e) < 0);
    assert_string_equal(e.reason, "AUDIT_FULL");
    wait_within("the disk works again", WAIT_MS, audit_admit(a, &e) == 0)(void)
        uv_run(&trail_loop, UV_RUN_NOWAIT);
    assert_int_equal(syncs, 4);
    audit_close(a, 0);
    const struct audit_verified v = trail_verify(&seen);
    assert_int_equal(trail_problems(&seen), 0);
    assert_int_equal(v.calls, 2);
}

// What a kill leaves between the steps of a move: the last records are in both files, or in the unfinished one alone.
static void
a_kill_during_a_move_loses_and_doubles_nothing(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    char path[128];
    size_t n, at;
    (void)snprintf(path, sizeof path, "%s/audit-next.tmp", trail_folder);
    for (unsigned cut = 0; cut < 2; cut++) {
        trail_make(cut == 0 ? 50 : 1);
        const struct audit_verified before = trail_verify(&seen);
        const char *file = trail_path(1);
        uint8_t *auto_free bytes = trail_read(file, &n);
        (void)trail_frame(bytes, n, 30, &at);
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, bytes + at, n - at), n - at);
        assert_int_equal(close(fd), 0);
        if (cut == 1)
            assert_int_equal(truncate(file, (off_t)at), 0);
        trail_make(5);
        assert_int_equal(access(path, F_OK), -1);
        const struct audit_verified v = trail_verify(&seen);
        if (trail_problems(&seen) > 0)
            fail_msg("%s", seen.text);
        assert_int_equal(v.calls, before.calls + 5);
        assert_int_equal(v.files, 1 + cut);
    }
}

static void
the_only_copy_of_records_stays_until_another_one_is_complete(void **unused)
{
    (void)unused;
    struct trail_seen seen;
    struct err e;
    const struct audit_settings s = failing_settings();
    struct audit *a = trail_open(&s);
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_equal(trail_wait(a).code, 0);
    (void)snprintf(next_path, sizeof next_path, "%s/audit-next.tmp", trail_folder);
    const int fd = open(trail_path(2), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && close(fd) == 0);
    copies = 0;
    kept = false;
    (void)snprintf(in_the_way, sizeof in_the_way, "%s", trail_path(2));
    syncs_that_fail = 1;
    trail_call(a, "/stockade.v1.SandboxService/Create");
    assert_int_not_equal(trail_wait(a).code, 0); // the first file is cut, and the second not named
    wait_within("the name is free", WAIT_MS, audit_admit(a, &e) == 0)(void)
        uv_run(&trail_loop, UV_RUN_NOWAIT);
    in_the_way[0] = '\0';
    audit_close(a, 0);
    assert_true(copies >= 2 && kept);
    const struct audit_verified v = trail_verify(&seen);
    if (trail_problems(&seen) > 0)
        fail_msg("%s", seen.text);
    assert_int_equal(v.calls, 2);
}

// ---- clocks

static _Atomic int64_t wall_offset_s;

static int64_t
moving_now(clockid_t clock)
{
    return now_ns(clock) + (clock == CLOCK_REALTIME ? wall_offset_s * 1000000000 : 0);
}

static void
a_clock_that_is_set_back_and_forth_changes_no_order_and_no_signature(void **unused)
{
    (void)unused;
    static const struct audit_system moving = {.sync = fdatasync, .now_ns = moving_now};
    static const int64_t offsets[] = {0,    -86400,          86400, -INT64_C(1700000000),
                                      3600, INT64_C(9) << 30};
    struct trail_seen seen;
    struct err e;
    struct audit_scan scan;
    struct audit_frame f;
    uint64_t sequence = 0, boot_ns = 0;
    int64_t least = INT64_MAX, most = 0;
    struct audit_settings s = trail_settings();
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    s.system = &moving;
    s.checkpoint_ms = 1;
    struct audit *a = trail_open(&s);
    for (size_t i = 0; i < 60; i++) {
        wall_offset_s = offsets[i % (sizeof offsets / sizeof offsets[0])];
        trail_call(a, "/stockade.v1.SandboxService/Create");
        assert_int_equal(trail_wait(a).code, 0);
    }
    wall_offset_s = 0;
    audit_close(a, 0);
    const struct audit_verified v = trail_verify(&seen);
    if (trail_problems(&seen) > 0)
        fail_msg("%s", seen.text);
    assert_int_equal(v.calls, 60);
    assert_true(v.checkpoints > 3);
    int auto_close fd = open(trail_path(1), O_RDONLY | O_CLOEXEC);
    assert_int_equal(audit_scan_open(&scan, fd, 0, &e), 0);
    while (audit_scan_next(&scan, &f, &e) > 0) {
        const Stockade__V1__AuditRecord *m = NULL;
        arena_reset(arena);
        assert_int_equal(audit_record_read(f.record, f.n, arena, &m, &e), 0);
        assert_int_equal(m->sequence, ++sequence);
        if (m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_CALL)
            assert_true(m->boot_ns >= boot_ns);
        boot_ns = m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_CALL ? m->boot_ns : boot_ns;
        least = m->time->seconds < least ? m->time->seconds : least;
        most = m->time->seconds > most ? m->time->seconds : most;
    }
    audit_scan_close(&scan);
    assert_true(most - least > INT64_C(1700000000));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, trail_set_up, trail_tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sync_that_failed_is_not_tried_again_on_the_same_file),
        TEST(a_disk_that_goes_on_failing_is_no_stored_record),
        TEST(a_kill_during_a_move_loses_and_doubles_nothing),
        TEST(the_only_copy_of_records_stays_until_another_one_is_complete),
        TEST(a_clock_that_is_set_back_and_forth_changes_no_order_and_no_signature),
    };
    return sodium_init() >= 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
