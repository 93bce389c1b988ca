// SPDX-License-Identifier: Apache-2.0
// Input and output of jobs, through real processes: order, bounds, gaps, terminals.
#include "tests/harness/broker.h"

static void
input_is_refused_beyond_its_queue_and_after_its_end(void **state)
{
    (void)state;
    static char bytes[65536];
    struct record rec = {0};
    struct stockade_error e = {0};
    create("in");
    start_detached("in", "while [ ! -e /tmp/go ]; do sleep 0.02; done; wc -c", &rec);
    uint64_t taken = 0;
    while (stockade_input(broker.s, rec.id, bytes, sizeof bytes, &e) == 0)
        taken += sizeof bytes;
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    assert_true(taken >= 256 * 1024 && taken <= 512 * 1024);
    assert_true(stockade_resize(broker.s, rec.id, 10, 10, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(stockade_close_input(broker.s, rec.id, &e), 0);
    assert_true(stockade_input(broker.s, rec.id, bytes, 1, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    char id[33];
    memcpy(id, rec.id, sizeof id);
    struct stockade_processes const *ps = NULL;
    assert_int_equal(stockade_processes(broker.s, "in", NULL, &ps, &e), 0);
    assert_int_equal(ps->n, 1);
    start_detached("in", "touch /tmp/go", &(struct record){0});
    assert_int_equal(stockade_attach(broker.s, ps->items[0].id, 0, &h, &r, &e), 0);
    assert_int_equal(strtoull(rec.text, NULL, 10), taken); // all accepted bytes arrived
    stockade_free(r);
    stockade_free(ps);
    delete ("in");
}

static void
output_beyond_the_limit_is_counted_and_marked_once(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_limits l = {.output_bytes = 1000};
    const struct stockade_result *r =
        run("head -c 900 /dev/zero; head -c 100000 /dev/zero >&2; exit 5", &l, &rec);
    assert_int_equal(r->outcome, STOCKADE_OUTCOME_EXITED);
    assert_int_equal(r->exit_code, 5); // it was not killed
    assert_int_equal(rec.bytes, 1000);
    assert_int_equal(rec.limit_gaps, 1);
    assert_int_equal(r->bill.output_bytes.value, 100900);
    assert_int_equal(r->bill.output_cut_bytes.value, 99900);
    assert_string_equal(r->limits[0].name, "output_bytes");
    assert_int_equal(r->limits[0].over, 99900);
    stockade_free(r);
}

static void
ten_MiB_arrive_whole_however_slow_the_reader_is(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r = run("head -c 10485760 /dev/zero", NULL, &rec);
    assert_int_equal(rec.bytes, 10485760);
    assert_int_equal(rec.gaps, 0);
    stockade_free(r);
}

static void
a_flood_of_single_bytes_comes_in_few_messages(void **state)
{
    (void)state;
    struct record rec = {0};
    const struct stockade_result *r =
        run("dd if=/dev/zero bs=1 count=50000 2>/dev/null", NULL, &rec);
    assert_int_equal(rec.bytes, 50000);
    assert_true(rec.chunks < 5000);
    stockade_free(r);
}

static void
a_job_reads_a_megabyte_of_input(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    char *bytes = malloc(1048576);
    memset(bytes, 'a', 1048576);
    o.command.stdin_bytes = bytes;
    o.command.stdin_n = 1048576;
    (void)shell(&o.command, "cat");
    assert_int_equal(stockade_run(broker.s, &o, &h, &r, &e), 0);
    assert_int_equal(rec.bytes, 1048576);
    assert_int_equal(r->exit_code, 0);
    stockade_free(r);
    free(bytes);
}

static void
a_started_process_outlives_its_caller_and_is_found_again(void **state)
{
    (void)state;
    struct record first = {0}, again = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("keep");
    start_detached("keep", "echo one; sleep 0.3; echo two; exit 3", &first);
    struct stockade_handlers h = handlers(&again);
    assert_int_equal(stockade_attach(broker.s, first.id, 0, &h, &r, &e), 0);
    assert_string_equal(again.text, "one\ntwo\n");
    assert_int_equal(r->exit_code, 3);
    stockade_free(r);
    // it has ended, and can still be attached to from an offset
    again = (struct record){.bytes = 4};
    h.cookie = &again;
    assert_int_equal(stockade_attach(broker.s, first.id, 4, &h, &r, &e), 0);
    assert_string_equal(again.text, "two\n");
    stockade_free(r);
    assert_true(stockade_attach(broker.s, first.id, 9, &h, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_OUT_OF_RANGE);
    again = (struct record){0};
    wait_within("its id is forgotten", WAIT_MS,
                stockade_attach(broker.s, first.id, 0, &h, &r, &e) < 0)
    {
        again = (struct record){0};
        stockade_free(r);
    }
    assert_int_equal(e.code, STOCKADE_NOT_FOUND);
    delete ("keep");
}

static void
without_a_reader_the_last_MiB_is_kept_and_the_rest_is_a_gap(void **state)
{
    (void)state;
    struct record first = {0}, rec = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("gap");
    start_detached("gap", "head -c 5000000 /dev/zero", &first);
    wait_for_end(&first, STOCKADE_OUTCOME_EXITED);
    struct stockade_handlers h = handlers(&rec);
    assert_int_equal(stockade_attach(broker.s, first.id, 0, &h, &r, &e), 0);
    assert_int_equal(rec.gaps, 1);
    assert_true(rec.bytes >= 1048576);
    assert_int_equal(rec.bytes + rec.gap_bytes, 5000000);
    stockade_free(r);
    delete ("gap");
}

// Bytes that the only process of a sandbox has written.
static uint64_t
output_of(const char *sandbox)
{
    const struct stockade_processes *all = NULL;
    struct stockade_error e = {0};
    assert_int_equal(stockade_processes(broker.s, sandbox, NULL, &all, &e), 0);
    assert_int_equal(all->n, 1);
    uint64_t bytes = all->items[0].output_bytes;
    stockade_free(all);
    return bytes;
}

static void
a_terminal_is_one_stream_and_can_be_resized(void **state)
{
    (void)state;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    create("tty");
    o.sandbox = "tty";
    o.detach = true;
    o.command.stdin_open = true;
    o.command.rows = 11;
    o.command.columns = 22;
    (void)shell(&o.command, "stty size; read x; stty size; echo got $x >&2");
    assert_int_equal(stockade_start(broker.s, &o, &h, NULL, &e), 0);
    char id[33];
    memcpy(id, rec.id, sizeof id);
    wait_until("it has written something", output_of("tty") > 0);
    assert_int_equal(stockade_resize(broker.s, id, 33, 44, &e), 0);
    assert_int_equal(stockade_input(broker.s, id, "word\n", 5, &e), 0);
    h = handlers(&rec);
    assert_int_equal(stockade_attach(broker.s, id, 0, &h, &r, &e), 0);
    assert_non_null(strstr(rec.text, "11 22"));
    assert_non_null(strstr(rec.text, "33 44"));
    assert_non_null(strstr(rec.text, "got word"));
    stockade_free(r);
    delete ("tty");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_is_refused_beyond_its_queue_and_after_its_end),
        cmocka_unit_test(output_beyond_the_limit_is_counted_and_marked_once),
        cmocka_unit_test(ten_MiB_arrive_whole_however_slow_the_reader_is),
        cmocka_unit_test(a_flood_of_single_bytes_comes_in_few_messages),
        cmocka_unit_test(a_job_reads_a_megabyte_of_input),
        cmocka_unit_test(a_started_process_outlives_its_caller_and_is_found_again),
        cmocka_unit_test(without_a_reader_the_last_MiB_is_kept_and_the_rest_is_a_gap),
        cmocka_unit_test(a_terminal_is_one_stream_and_can_be_resized),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
