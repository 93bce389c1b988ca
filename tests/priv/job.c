// SPDX-License-Identifier: Apache-2.0
// Jobs through a real broker, a real spawner and a real guest: the limits that end them, and what they leave behind.
#include "tests/harness/broker.h"

static void
a_command_above_120_KiB_is_refused(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    static char big[60000];
    memset(big, 'x', sizeof big - 1);
    const struct stockade_pair env[] = {{"A", big}, {"B", big}, {"C", big}};
    (void)shell(&o.command, "true");
    o.command.env = env;
    o.command.env_n = 3;
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
    o.command.env_n = 2;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    stockade_free(r);
}

static void
assert_limit(const struct stockade_result *r, const char *name)
{
    if (r->outcome != STOCKADE_OUTCOME_LIMIT || r->limits_n == 0 ||
        strcmp(r->limits[0].name, name) != 0)
        fail_msg("outcome %u, %s: expected the limit %s", r->outcome, r->reason, name);
}

static void
limits_end_a_job_and_are_named(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits wall = {.wall_ms = 300}, cpu = {.cpu_time_ms = 200};
    struct stockade_limits memory = {.memory_bytes = 32 << 20};
    struct stockade_limits file = {.file_size_bytes = 4096};
    uint64_t from = now_ms();
    const struct stockade_result *r = run("trap '' TERM INT; sleep 60", &wall, &rec);
    assert_limit(r, "wall_ms");
    assert_int_equal(r->limits[0].value, 300);
    assert_true(now_ms() - from < scaled_ms(30000));
    stockade_free(r);
    r = run("while :; do :; done", &cpu, &rec);
    assert_limit(r, "cpu_time_ms");
    assert_true(r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value >= 190000000);
    stockade_free(r);
    r = run("exec tail /dev/zero", &memory, &rec);
    assert_limit(r, "memory_bytes");
    assert_true(r->limits[0].count && r->limits[0].over >= 1);
    stockade_free(r);
    r = run("exec head -c 8192 /dev/zero > /tmp/f", &file, &rec);
    assert_limit(r, "file_size_bytes");
    stockade_free(r);
}

static bool
is_hybrid(void)
{
    const struct stockade_info *info = NULL;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    bool hybrid = strcmp(info->cgroups, "hybrid") == 0;
    stockade_free(info);
    return hybrid;
}

// On v2 the kernel kills the whole job when one of its processes runs out of memory (memory.oom.group), because a job
// without one of its processes is of no use. v1 kills only that process.
static void
a_limit_that_a_child_reached_is_reported_for_every_outcome(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits memory = {.memory_bytes = 32 << 20}, pids = {.pids = 3};
    const struct stockade_result *r = run("tail /dev/zero; echo went on; exit 7", &memory, &rec);
    assert_int_equal(r->outcome, is_hybrid() ? STOCKADE_OUTCOME_EXITED : STOCKADE_OUTCOME_LIMIT);
    assert_int_equal(r->exit_code, is_hybrid() ? 7 : 0);
    assert_true(r->limits_n >= 1);
    assert_string_equal(r->limits[0].name, "memory_bytes");
    stockade_free(r);
    r = run("sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait", &pids, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_true(r->limits_n >= 1);
    assert_string_equal(r->limits[0].name, "pids");
    assert_true(r->limits[0].count);
    stockade_free(r);
}

static const struct stockade_limit_hit *
hit_of(const struct stockade_result *r, const char *name)
{
    for (size_t i = 0; i < r->limits_n; i++)
        if (strcmp(r->limits[i].name, name) == 0)
            return &r->limits[i];
    return NULL;
}

static void
only_a_disk_that_is_full_at_the_end_is_reported(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits disk = {.disk_bytes = 1 << 20}, inodes = {.inodes = 300};
    const struct stockade_result *r = run(
        "head -c 2097152 /dev/zero > /tmp/f; rm /tmp/f; head -c 500000 /dev/zero > f", &disk, &rec);
    assert_null(hit_of(r, "disk_bytes")); // a slow machine may throttle it, which is another limit
    assert_null(hit_of(r, "inodes"));
    stockade_free(r);
    r = run("head -c 2097152 /dev/zero > /tmp/f || exit 9", &disk, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_int_equal(r->exit_code, 9);
    assert_non_null(hit_of(r, "disk_bytes"));
    assert_null(hit_of(r, "inodes"));
    assert_int_equal(hit_of(r, "disk_bytes")->value, 1 << 20);
    assert_true(hit_of(r, "disk_bytes")->count && hit_of(r, "disk_bytes")->over == 1);
    stockade_free(r);
    r = run("i=0; while : > /tmp/f$i; do i=$((i + 1)); done", &inodes, &rec);
    assert_non_null(hit_of(r, "inodes"));
    assert_int_equal(hit_of(r, "inodes")->value, 300);
    assert_null(hit_of(r, "disk_bytes"));
    stockade_free(r);
}

static void
the_file_size_limit_of_a_child_is_reported(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits file = {.file_size_bytes = 4096};
    const struct stockade_result *r = run("head -c 8192 /dev/zero > /tmp/f; echo $?", &file, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_non_null(strstr(rec.text, "153")); // 128 + SIGXFSZ
    const struct stockade_limit_hit *hit = hit_of(r, "file_size_bytes");
    assert_true(hit == NULL || (hit->count && hit->over == 1)); // NULL: no program counts it here
    stockade_free(r);
}

static void
a_program_that_cannot_be_executed_says_126_or_127(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    const char *absent[] = {"no-such-program", NULL}, *folder[] = {"/usr", NULL};
    o.command.args = absent;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_NOT_EXECUTED);
    assert_int_equal(r->exit_code, 127);
    stockade_free(r);
    o.command.args = folder;
    assert_int_equal(stockade_run(broker.s, &o, NULL, &r, &e), 0);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_NOT_EXECUTED);
    assert_int_equal(r->exit_code, 126);
    stockade_free(r);
}

static uint32_t
jobs_running(void)
{
    const struct stockade_info *info = NULL;
    assert_int_equal(stockade_info(broker.s, &info, NULL), 0);
    uint32_t n = info->processes;
    stockade_free(info);
    return n;
}

static void
a_run_that_is_cancelled_ends_immediately(void **state)
{
    (void)state;
    struct record rec = {.stop_at_start = true};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    struct stockade_handlers h = handlers(&rec);
    (void)shell(&o.command, "sleep 100");
    assert_true(stockade_run(broker.s, &o, &h, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_CANCELLED);
    wait_until("no job runs", jobs_running() == 0);
    wait_for_removal(rec.sandbox);
}

static void
processes_that_a_job_leaves_do_not_delay_its_result(void **state)
{
    (void)state;
    struct record rec = {0};
    uint64_t from = now_ms();
    const struct stockade_result *r = run("sleep 100 & setsid sleep 100 & echo gone", NULL, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_string_equal(rec.text, "gone\n");
    assert_true(now_ms() - from < scaled_ms(30000));
    stockade_free(r);
}

static void
every_figure_of_a_bill_has_a_source_or_a_reason(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r = run("true", NULL, &rec);
    const struct stockade_figure *f = &r->bill.wall_us;
    size_t unknown = 0;
    for (size_t i = 0; i < 18; i++)
        unknown += f[i].source == STOCKADE_SOURCE_UNKNOWN ? 1 : 0;
    assert_int_equal(unknown, r->bill.unknown_n);
    assert_int_equal(r->bill.cpu_user_ns.scope, STOCKADE_SCOPE_JOB);
    assert_true(r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value > 0);
    assert_true(r->bill.memory_peak_bytes.value > 0);
    assert_true(r->bill.faults_minor.value > 0);
    stockade_free(r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_above_120_KiB_is_refused),
        cmocka_unit_test(limits_end_a_job_and_are_named),
        cmocka_unit_test(a_limit_that_a_child_reached_is_reported_for_every_outcome),
        cmocka_unit_test(only_a_disk_that_is_full_at_the_end_is_reported),
        cmocka_unit_test(the_file_size_limit_of_a_child_is_reported),
        cmocka_unit_test(a_program_that_cannot_be_executed_says_126_or_127),
        cmocka_unit_test(a_run_that_is_cancelled_ends_immediately),
        cmocka_unit_test(processes_that_a_job_leaves_do_not_delay_its_result),
        cmocka_unit_test(every_figure_of_a_bill_has_a_source_or_a_reason),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
