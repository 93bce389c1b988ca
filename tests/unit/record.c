// SPDX-License-Identifier: Apache-2.0
// The record of a job: equal entries are counted once, lists are shortened, and text of a job cannot break a message.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "server/telemetry/finding.h"
#include "server/telemetry/record.h"
#include "server/telemetry/record_store.h"
#include "server/base/syscall_names.h"

static struct record_denial
denial(char *destination)
{
    return (struct record_denial){.operation = "connect",
                                  .protocol = "tcp",
                                  .reason = "no-rule",
                                  .comm = "curl",
                                  .destination = destination};
}

static void
bytes_that_are_not_text_become_text(void **state)
{
    (void)state;
    char out[64];
    assert_string_equal(record_text("a\xff"
                                    "b\x01"
                                    "c",
                                    5, out, sizeof out),
                        "a\xef\xbf\xbd"
                        "b\xef\xbf\xbd"
                        "c");
    assert_string_equal(record_text("\xc3\xa9\xe2\x82\xac", 5, out, sizeof out),
                        "\xc3\xa9\xe2\x82\xac");
    assert_string_equal(record_text("\xed\xa0\x80", 3, out, sizeof out),
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
    assert_string_equal(record_text("\xf0\x9f", 2, out, sizeof out),
                        "\xef\xbf\xbd\xef\xbf\xbd"); // truncated
    assert_string_equal(record_text("abc\0def", 7, out, sizeof out), "abc");
    // never within a character
    assert_string_equal(record_text("\xc3\xa9\xc3\xa9", 4, out, 4), "\xc3\xa9");
}

static void
the_same_denial_is_counted_and_another_is_listed(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    char one[] = "192.0.2.1:443";
    char two[] = "192.0.2.1:80";
    struct record_denial d = denial(one);
    for (int i = 0; i < 10; i++)
        record_denial(r, &d);
    d = denial(two);
    record_denial(r, &d);
    assert_int_equal(r->denials_n, 2);
    assert_int_equal(r->denials[0].count, 10);
    assert_int_equal(r->denials_total, 11);
    assert_false(r->cut);
    record_free(r);
}

static void
lists_are_bounded_and_totals_continue(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    struct finding *auto_free f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->sequence = 1;
    for (int i = 0; i < 500; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "192.0.2.1:%d", i);
        struct record_denial d = denial(text);
        struct record_execution x = {.path = text};
        record_denial(r, &d);
        record_execution(r, &x);
        record_finding(r, f);
    }
    assert_int_equal(r->denials_n, RECORD_DENIALS);
    assert_int_equal(r->executions_n, RECORD_EXECUTIONS);
    assert_int_equal(r->findings_n, RECORD_FINDINGS);
    assert_int_equal(r->denials_total + r->executions_total + r->findings_total, 1500);
    assert_true(r->cut);
    record_free(r);
}

static void
a_flood_displaces_neither_the_first_nor_the_last_entries(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    struct finding *auto_free f = calloc(1, sizeof *f);
    struct arena *auto_arena a = arena_new(1024 * 1024);
    char text[32];
    assert_non_null(f);
    (void)snprintf(f->rule, sizeof f->rule, "oom");
    for (int i = 0; i < 500; i++) {
        (void)snprintf(text, sizeof text, "192.0.2.1:%d", i);
        struct record_denial d = denial(text);
        struct record_execution x = {.path = text};
        f->sequence = (uint64_t)i + 1;
        record_denial(r, &d);
        record_execution(r, &x);
        record_finding(r, f);
    }
    const struct record_view v = {.whole = true};
    const Stockade__V1__Record *m = record_message(r, &v, a);
    assert_non_null(m);
    assert_int_equal(m->n_denials, RECORD_DENIALS);
    assert_int_equal(m->n_executed, RECORD_EXECUTIONS);
    assert_int_equal(m->n_findings, RECORD_FINDINGS);
    for (int i = 0; i < RECORD_DENIALS; i++) {
        int which = i < RECORD_DENIALS / 2 ? i : 500 - RECORD_DENIALS + i;
        (void)snprintf(text, sizeof text, "192.0.2.1:%d", which);
        assert_string_equal(m->denials[i]->destination, text);
        assert_string_equal(m->executed[i]->path, text);
    }
    assert_int_equal(m->findings[0]->sequence, 1);
    assert_int_equal(m->findings[RECORD_FINDINGS - 1]->sequence, 500);
    record_free(r);
}

static void
a_record_whose_lists_are_cut_is_not_complete(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    struct arena *auto_arena a = arena_new(1024 * 1024);
    const struct record_view v = {.whole = true};
    for (int i = 0; i <= RECORD_EXECUTIONS; i++) {
        const Stockade__V1__Record *m = record_message(r, &v, a);
        assert_true(m->completeness->complete && m->completeness->n_missing == 0 && !m->cut);
        char text[32];
        (void)snprintf(text, sizeof text, "/bin/%d", i);
        struct record_execution x = {.path = text};
        record_execution(r, &x);
        arena_free(a);
        a = arena_new(1024 * 1024);
    }
    const Stockade__V1__Record *m = record_message(r, &v, a);
    assert_true(m->cut && !m->completeness->complete);
    assert_int_equal(m->completeness->n_missing, 1);
    assert_non_null(strstr(m->completeness->missing[0], "lists:"));
    record_free(r);
}

static void
a_withheld_finding_is_only_counted(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    static const struct finding f;
    record_finding(r, &f);
    assert_int_equal(r->findings_n, 0);
    assert_int_equal(r->findings_total, 1);
    assert_true(r->cut);
    record_free(r);
}

// The largest possible record.
static void
fill(struct record *r, struct watch_account *account)
{
    struct finding *auto_free f = calloc(1, sizeof *f);
    char text[769];
    assert_non_null(f);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    memset(f->text, 'y', sizeof f->text - 1);
    (void)snprintf(f->rule, sizeof f->rule, "denied-fan-out");
    f->sequence = 1;
    for (int i = 0; i < 100; i++) {
        (void)snprintf(text, 5, "%04d", i);
        text[4] = 'x';
        char destination[300];
        (void)snprintf(destination, sizeof destination, "%.250s", text);
        struct record_denial d = denial(destination);
        struct record_execution x = {.path = text, .args_hash = (uint64_t)i};
        record_denial(r, &d);
        record_execution(r, &x);
        record_finding(r, f);
    }
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++)
        account->syscalls[i] = UINT64_MAX / 1024 + i;
    for (uint32_t i = 1; i < WATCH_ERRORS; i++)
        account->errors[i] = 1;
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        for (uint32_t cpu = 0; cpu < RECORD_CPUS; cpu++)
            record_lost(r, class, cpu, 1);
}

static void
the_largest_record_fits_into_a_result(void **state)
{
    (void)state;
    struct record *r = record_new(1000000000);
    struct watch_account *auto_free account = calloc(1, sizeof *account);
    struct arena *auto_arena a = arena_new(2 * 1024 * 1024);
    assert_non_null(account);
    fill(r, account);
    const struct record_view v = {.account = account, .syscalls = true, .whole = true, .end_ns = 2};
    Stockade__V1__Record *m = record_message(r, &v, a);
    assert_non_null(m);
    size_t n = protobuf_c_message_get_packed_size(&m->base);
    assert_true(n <= RECORD_BYTES);
    assert_true(m->cut && m->n_denials > 0 && m->n_denials < RECORD_DENIALS);
    assert_true(memcmp(m->denials[0]->destination, "0000", 4) == 0 &&
                memcmp(m->denials[m->n_denials - 1]->destination, "0099", 4) == 0);
    assert_int_equal(m->denials_total, 100 + RECORD_CPUS); // including those that no event reported
    assert_false(m->completeness->complete);               // something was lost
    assert_int_equal(m->completeness->n_lost, EVENT_CLASSES);
    assert_true(m->by_number[0]->count > m->by_number[1]->count);
    uint8_t *auto_free packed = malloc(n);
    struct err e;
    (void)protobuf_c_message_pack(&m->base, packed);
    assert_int_equal(wire_check(&stockade__v1__record__descriptor, packed, n, &e), 0);
    record_free(r);
}

static void
a_record_without_hooks_is_marked_so(void **state)
{
    (void)state;
    static const char *const missing[] = {"network: no program"};
    struct record *r = record_new(1);
    struct arena *auto_arena a = arena_new(64 * 1024);
    const struct record_view v = {.missing = missing, .missing_n = 1, .end_ns = 2};
    const Stockade__V1__Record *m = record_message(r, &v, a);
    assert_non_null(m);
    assert_null(m->network);
    assert_false(m->completeness->complete);
    assert_string_equal(m->completeness->missing[0], missing[0]);
    record_free(r);
}

static void
without_room_there_is_no_record(void **state)
{
    (void)state;
    struct record *r = record_new(1);
    struct arena *auto_arena a = arena_new(300);
    const struct record_view v = {.whole = true};
    assert_null(record_message(r, &v, a));
    record_free(r);
}

static void
every_system_call_number_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(syscall_name(WATCH_SYSCALLS - 1), "syscall_511");
    assert_string_equal(syscall_name(UINT32_MAX), "syscall_511");
    bool found = false;
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++)
        found = found || strcmp(syscall_name(i), "openat") == 0;
    assert_true(found);
}

static void
store(struct record_store *st, const char *tenant, uint32_t number, size_t n)
{
    char id[33];
    (void)snprintf(id, sizeof id, "%032x", number);
    record_store_add(st, tenant, id, calloc(1, n), n);
}

static bool
stored(const struct record_store *st, const char *tenant, uint32_t number)
{
    char id[33];
    size_t n = 0;
    uint32_t several = 0;
    (void)snprintf(id, sizeof id, "%032x", number);
    return record_store_find(st, tenant, id, &n, &several) != NULL && several == 1;
}

static void
a_tenant_loses_its_own_oldest_records_first(void **state)
{
    (void)state;
    struct record_store *st = record_store_new();
    store(st, "uid:1", 1, 100);
    for (uint32_t i = 0; i < RECORDS_PER_TENANT + 5; i++)
        store(st, "uid:2", 1000 + i, 100);
    assert_true(stored(st, "uid:1", 1));
    assert_true(stored(st, NULL, 1));
    assert_false(stored(st, "uid:2", 1));
    assert_false(stored(st, "uid:2", 1004));
    assert_true(stored(st, "uid:2", 1005));
    store(st, "uid:2", 9, RECORDS_BYTES_PER_TENANT);
    assert_true(stored(st, "uid:2", 9)); // the newest is kept, whatever its size
    assert_false(stored(st, "uid:2", 1000 + RECORDS_PER_TENANT));
    for (uint32_t i = 0; i < 20; i++) {
        char tenant[32];
        (void)snprintf(tenant, sizeof tenant, "uid:%u", 100 + i);
        store(st, tenant, 5000 + i, RECORDS_BYTES_PER_TENANT / 2);
    }
    assert_false(stored(st, "uid:1", 1)); // above the total for all tenants
    assert_true(stored(st, "uid:119", 5019));
    record_store_free(st);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_text_become_text),
        cmocka_unit_test(without_room_there_is_no_record),
        cmocka_unit_test(a_record_without_hooks_is_marked_so),
        cmocka_unit_test(the_same_denial_is_counted_and_another_is_listed),
        cmocka_unit_test(lists_are_bounded_and_totals_continue),
        cmocka_unit_test(a_flood_displaces_neither_the_first_nor_the_last_entries),
        cmocka_unit_test(a_record_whose_lists_are_cut_is_not_complete),
        cmocka_unit_test(a_withheld_finding_is_only_counted),
        cmocka_unit_test(the_largest_record_fits_into_a_result),
        cmocka_unit_test(every_system_call_number_has_a_name),
        cmocka_unit_test(a_tenant_loses_its_own_oldest_records_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
