// SPDX-License-Identifier: Apache-2.0
// The bill: the source of each figure, unknown figures, and the limits that were reached.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/sandbox/bill.h"
#include "stockade/v1/limits.pb-c.h"

static void
know(struct cgstat *s, enum cgroup_stat i, uint64_t v)
{
    s->known |= 1u << i;
    s->v[i] = v;
}

static void
figures_without_a_source_are_unknown(void **state)
{
    (void)state;
    struct bill_input in = {.arrived_ns = 1, .sandbox_ns = 1, .started_ns = 1, .ended_ns = 1};
    struct bill b;
    bill_compute(&in, &b);
    for (int i = 0; i < BILL_FIGURES_N; i++) {
        bool known = b.f[i].source != BILL_UNKNOWN;
        assert_int_equal(known, b.unknown[i] == NULL);
        assert_int_equal(known, b.f[i].scope != BILL_NO_SCOPE);
        if (!known)
            assert_int_equal(b.f[i].value, 0);
    }
    assert_non_null(b.unknown[BILL_MEMORY_PEAK_BYTES]);
    assert_non_null(b.unknown[BILL_IO_READ_OPS]);
    assert_null(b.unknown[BILL_WALL_US]);
}

static void
a_jobs_own_figure_has_priority_over_the_sandboxs_and_rusage(void **state)
{
    (void)state;
    struct bill_input in = {0};
    struct bill b;
    in.rusage = (struct bill_rusage){.known = true, .user_us = 1, .faults_minor = 11};
    know(&in.job, STAT_CPU_USER_NS, 500);
    know(&in.after, STAT_CPU_USER_NS, 900);
    know(&in.job, STAT_FAULTS, 30);
    know(&in.job, STAT_FAULTS_MAJOR, 4);
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_CPU_USER_NS].value, 500);
    assert_int_equal(b.f[BILL_CPU_USER_NS].scope, BILL_JOB);
    assert_int_equal(b.f[BILL_CPU_USER_NS].source, BILL_CGROUP);
    assert_int_equal(b.f[BILL_FAULTS_MINOR].value, 26);
    assert_int_equal(b.f[BILL_FAULTS_MAJOR].value, 4);
}

// Files of NFS and of 9p: no cgroup counts what is read from them.
static void
reads_without_a_block_device_come_from_rusage(void **state)
{
    (void)state;
    struct bill_input in = {.rusage = {.known = true, .in_blocks = 8}};
    struct bill b;
    know(&in.job, STAT_IO_READ_BYTES, 0);
    know(&in.job, STAT_IO_READS, 0);
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_IO_READ_BYTES].value, 4096);
    assert_int_equal(b.f[BILL_IO_READ_BYTES].source, BILL_RUSAGE);
    assert_int_equal(b.f[BILL_IO_READ_OPS].source, BILL_UNKNOWN);
    assert_non_null(b.unknown[BILL_IO_READ_OPS]);
    in.rusage.in_blocks = 0;
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_IO_READ_BYTES].source, BILL_CGROUP);
    assert_int_equal(b.f[BILL_IO_READ_OPS].source, BILL_CGROUP);
    know(&in.job, STAT_IO_READ_BYTES, 512);
    in.rusage.in_blocks = 8;
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_IO_READ_BYTES].value, 512);
}

static void
without_counters_per_job_the_sandboxs_increase_is_used(void **state)
{
    (void)state;
    struct bill_input in = {0};
    struct bill b;
    know(&in.before, STAT_IO_WRITE_BYTES, 100);
    know(&in.after, STAT_IO_WRITE_BYTES, 350);
    know(&in.before, STAT_PIDS_PEAK, 1);
    know(&in.after, STAT_PIDS_PEAK, 6); // the guest is one of them
    know(&in.before, STAT_MEMORY_PEAK_BYTES, 5000);
    know(&in.after, STAT_MEMORY_PEAK_BYTES, 9000);
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_IO_WRITE_BYTES].value, 250);
    assert_int_equal(b.f[BILL_IO_WRITE_BYTES].scope, BILL_SANDBOX);
    assert_int_equal(b.f[BILL_PIDS_PEAK].value, 5);
    assert_int_equal(b.f[BILL_MEMORY_PEAK_BYTES].value, 9000);
}

static void
a_counter_that_decreases_counts_nothing(void **state)
{
    (void)state;
    struct bill_input in = {.arrived_ns = 9, .sandbox_ns = 5, .started_ns = 3, .ended_ns = 1};
    struct bill b;
    know(&in.before, STAT_THROTTLED_NS, 100);
    know(&in.after, STAT_THROTTLED_NS, 50);
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_THROTTLED_NS].value, 0);
    assert_int_equal(b.f[BILL_WALL_US].value, 0);
    assert_int_equal(b.f[BILL_QUEUE_US].value, 0);
}

static void
frozen_time_is_not_wall_clock_time(void **state)
{
    (void)state;
    struct bill_input in = {.started_ns = 1000000, .ended_ns = 9000000, .paused_ns = 5000000};
    struct bill b;
    bill_compute(&in, &b);
    assert_int_equal(b.f[BILL_WALL_US].value, 3000);
}

static void
each_limit_is_reported_once_and_the_fatal_one_first(void **state)
{
    (void)state;
    struct bill_input in = {.output_cut_bytes = 77};
    struct limits l;
    struct limit_hits hits = {0};
    limits_usual(&l);
    know(&in.job, STAT_OOM_KILLS, 2);
    know(&in.before, STAT_PIDS_DENIED, 3);
    know(&in.after, STAT_PIDS_DENIED, 8);
    bill_limit_hits(&in, &l, &hits);
    limit_hits_add(&hits, (struct limit_hit){.limit = LIMIT_WALL_MS, .over = 12}, true);
    limit_hits_add(&hits, (struct limit_hit){.limit = LIMIT_WALL_MS, .over = 13}, true);
    assert_int_equal(hits.n, 4);
    assert_int_equal(hits.hit[0].limit, LIMIT_WALL_MS);
    assert_int_equal(hits.hit[0].over, 12);
    assert_int_equal(hits.hit[1].limit, LIMIT_MEMORY_BYTES);
    assert_true(hits.hit[1].count);
    assert_int_equal(hits.hit[2].over, 5);
    assert_int_equal(hits.hit[3].over, 77);
    for (int i = 0; i < LIMITS_N; i++)
        limit_hits_add(&hits, (struct limit_hit){.limit = (enum limit)i}, i % 2 == 0);
    assert_int_equal(hits.n, LIMITS_N);
}

static void
figures_have_the_order_of_the_message(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *type = &stockade__v1__bill__descriptor;
    assert_int_equal(type->n_fields, BILL_FIGURES_N + 1);
    for (unsigned i = 0; i < BILL_FIGURES_N; i++)
        assert_string_equal(type->fields[i].name, bill_name((enum bill_figure)i));
}

static void
a_full_disk_is_reported_with_the_number_of_checks(void **state)
{
    (void)state;
    struct bill_input in = {0};
    struct limits l;
    struct limit_hits hits = {0};
    limits_usual(&l);
    bill_limit_hits(&in, &l, &hits);
    assert_int_equal(hits.n, 0);
    in.disk_full = 1;
    in.inodes_full = 3;
    bill_limit_hits(&in, &l, &hits);
    assert_int_equal(hits.n, 2);
    assert_int_equal(hits.hit[0].limit, LIMIT_DISK_BYTES);
    assert_int_equal(hits.hit[0].value, l.v[LIMIT_DISK_BYTES]);
    assert_int_equal(hits.hit[1].limit, LIMIT_INODES);
    assert_int_equal(hits.hit[1].over, 3);
    assert_true(hits.hit[1].count);
}

// The guest is in no job's cgroup, so on hosts that count per job, its OOM kill is visible only in the sandbox's
// counters.
static void
a_guest_that_ran_out_of_memory_is_counted_with_its_sandbox(void **state)
{
    (void)state;
    struct bill_input in = {0};
    know(&in.job, STAT_OOM_KILLS, 0);
    know(&in.before, STAT_OOM_KILLS, 3);
    know(&in.after, STAT_OOM_KILLS, 4);
    assert_int_equal(bill_oom_kills(&in), 0);
    assert_int_equal(bill_oom_kills_of_sandbox(&in), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_without_a_source_are_unknown),
        cmocka_unit_test(a_jobs_own_figure_has_priority_over_the_sandboxs_and_rusage),
        cmocka_unit_test(reads_without_a_block_device_come_from_rusage),
        cmocka_unit_test(without_counters_per_job_the_sandboxs_increase_is_used),
        cmocka_unit_test(a_counter_that_decreases_counts_nothing),
        cmocka_unit_test(frozen_time_is_not_wall_clock_time),
        cmocka_unit_test(each_limit_is_reported_once_and_the_fatal_one_first),
        cmocka_unit_test(figures_have_the_order_of_the_message),
        cmocka_unit_test(a_guest_that_ran_out_of_memory_is_counted_with_its_sandbox),
        cmocka_unit_test(a_full_disk_is_reported_with_the_number_of_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
