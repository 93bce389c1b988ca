// SPDX-License-Identifier: Apache-2.0
// server/anomaly/silences: acknowledged findings at their limits, of a tenant and of all, in the real database.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include <cmocka.h>

#include "server/anomaly/silences.h"
#include "server/base/metrics.h"
#include "server/state/state.h"
#include "stockade/v1/anomaly_service.pb-c.h"

enum { TENANTS = ACKNOWLEDGED_MAX / ACKNOWLEDGED_TENANT_MAX };

static char folder[64];
static struct state *state;
static struct silences *all;
static unsigned done_n;

static void
open_all(void)
{
    struct err e;
    metrics_clear();
    assert_int_equal(state_open(folder, &state, &e), 0);
    assert_int_equal(silences_new(state, &all, &e), 0);
}

static void
close_all(void)
{
    state_close(state);
    silences_free(all);
}

static int
set_up(void **unused)
{
    (void)unused;
    (void)snprintf(folder, sizeof folder, "/dev/shm/stockade-acknowledged-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    open_all();
    return 0;
}

static int
tear_down(void **unused)
{
    static const char *const names[] = {"stockade.db", "stockade.db-wal", "stockade.db-journal"};
    char path[128];
    (void)unused;
    close_all();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static void
on_done(void *cookie, const struct silence *of, const struct err *e)
{
    (void)cookie;
    assert_null(of);
    assert_null(e);
    done_n++;
}

static void
name_tenant(char out[32], unsigned tenant)
{
    (void)snprintf(out, 32, "uid:%u", tenant);
}

// The finding of this number, of this tenant. Before the writer runs, a change is made at once.
static int
acknowledge(unsigned tenant, uint64_t sequence, bool by_host, struct err *e)
{
    struct acknowledged a = {
        .instance = "0123456789abcdef", .sequence = sequence, .by_host = by_host};
    Stockade__V1__Acknowledgement of = STOCKADE__V1__ACKNOWLEDGEMENT__INIT;
    Stockade__V1__Acknowledgement *const list[] = {&of};
    Stockade__V1__Finding m = STOCKADE__V1__FINDING__INIT;
    struct silences_op *op = NULL;
    uint8_t bytes[256];
    name_tenant(a.tenant, tenant);
    of.by_host = by_host;
    m.instance = a.instance;
    m.sequence = sequence;
    m.n_acknowledgements = 1;
    m.acknowledgements = (Stockade__V1__Acknowledgement **)(uintptr_t)list;
    assert_true(stockade__v1__finding__get_packed_size(&m) <= sizeof bytes);
    a.finding = bytes;
    a.finding_n = stockade__v1__finding__pack(&m, bytes);
    return acknowledged_put(all, &a, &(struct silences_call){.done = on_done, .op = &op}, e);
}

static bool
is_acknowledged(uint64_t sequence, bool by_host)
{
    return acknowledged_find(all, "0123456789abcdef", sequence, by_host) != NULL;
}

static unsigned
count(void)
{
    unsigned n = 0;
    for (const struct acknowledged *a = acknowledged_next(all, NULL); a != NULL;
         a = acknowledged_next(all, a))
        n++;
    assert_int_equal(metrics_value(METRIC_ACKNOWLEDGED, 0, 0), n);
    return n;
}

static uint64_t
displaced(void)
{
    return metrics_sum(METRIC_ACKNOWLEDGEMENTS_DISPLACED);
}

static void
fill(unsigned tenants)
{
    struct err e;
    for (unsigned t = 0; t < tenants; t++)
        for (uint64_t i = 0; i < ACKNOWLEDGED_TENANT_MAX; i++)
            assert_int_equal(acknowledge(t, 1000 * (uint64_t)t + i, false, &e), 0);
}

static void
withdraw(unsigned tenant, uint64_t sequence)
{
    struct err e;
    char name[32];
    struct silences_op *op = NULL;
    struct acknowledged which = {.instance = "0123456789abcdef", .sequence = sequence};
    name_tenant(name, tenant);
    assert_int_equal(acknowledged_withdraw(all, &which, name,
                                           &(struct silences_call){.done = on_done, .op = &op}, &e),
                     0);
}

static void
a_tenant_beyond_its_limit_displaces_its_own_oldest(void **unused)
{
    struct err e;
    (void)unused;
    assert_int_equal(acknowledge(7, 500000, false, &e), 0);
    assert_int_equal(acknowledge(0, 400000, true, &e), 0); // of the host, about the same tenant
    fill(1);
    assert_int_equal(displaced(), 0);
    assert_int_equal(acknowledge(0, 255, false, &e), 0); // again: the same row
    assert_int_equal(count(), ACKNOWLEDGED_TENANT_MAX + 2);
    assert_int_equal(displaced(), 0);
    assert_int_equal(acknowledge(0, 999, false, &e), 0);
    assert_int_equal(displaced(), 1);
    assert_int_equal(count(), ACKNOWLEDGED_TENANT_MAX + 2);
    assert_false(is_acknowledged(0, false));
    assert_true(is_acknowledged(1, false) && is_acknowledged(999, false));
    assert_true(is_acknowledged(500000, false) && is_acknowledged(400000, true));
}

static void
at_the_limit_of_all_others_are_refused_and_nobody_elses_gives_way(void **unused)
{
    struct err e;
    (void)unused;
    fill(TENANTS);
    assert_int_equal(count(), ACKNOWLEDGED_MAX);
    assert_int_equal(displaced(), 0);
    const unsigned before = done_n;
    for (int i = 0; i < 2; i++) { // a tenant without any, and the host
        assert_int_equal(acknowledge(TENANTS, 900000, i == 1, &e), -ENOSPC);
        assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
        assert_string_equal(e.reason, "ACKNOWLEDGEMENTS");
        assert_non_null(strstr(e.text, "4096"));
    }
    assert_int_equal(done_n, before);
    assert_int_equal(count(), ACKNOWLEDGED_MAX);
    assert_int_equal(displaced(), 0);

    assert_int_equal(acknowledge(3, 3999, false, &e), 0);
    assert_int_equal(displaced(), 1);
    assert_false(is_acknowledged(3000, false));
    assert_true(is_acknowledged(0, false) && is_acknowledged(2000, false));

    withdraw(0, 5);
    assert_int_equal(acknowledge(TENANTS, 900000, false, &e), 0); // there is room again
    assert_int_equal(displaced(), 1);
    assert_int_equal(acknowledge(TENANTS, 900001, false, &e), 0); // for one
    assert_int_equal(displaced(), 2);
    assert_false(is_acknowledged(900000, false));
    assert_int_equal(count(), ACKNOWLEDGED_MAX);

    close_all();
    open_all(); // what gave way has left the database, too
    assert_int_equal(count(), ACKNOWLEDGED_MAX);
    assert_false(is_acknowledged(900000, false) || is_acknowledged(3000, false) ||
                 is_acknowledged(5, false));
    assert_true(is_acknowledged(900001, false) && is_acknowledged(3999, false));
}

// What comes while others are being written finds the room that they leave.
static void
those_that_are_being_written_count_to_the_limit_of_all(void **unused)
{
    uv_loop_t loop;
    struct err e;
    (void)unused;
    fill(TENANTS);
    withdraw(0, 5);
    withdraw(0, 6);
    assert_int_equal(acknowledge(TENANTS, 900000, false, &e), 0);
    const unsigned before = done_n;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(state_start(state, &loop, &e),
                     0); // without a turn of the loop nothing takes effect
    assert_int_equal(acknowledge(TENANTS + 1, 910000, false, &e),
                     0); // the last one for which there is room
    assert_int_equal(acknowledge(TENANTS + 2, 920000, false, &e), -ENOSPC);
    assert_int_equal(acknowledge(TENANTS + 3, 930000, true, &e), -ENOSPC);
    assert_string_equal(e.reason, "ACKNOWLEDGEMENTS");
    assert_int_equal(acknowledge(TENANTS, 900001, false, &e), 0); // in the place of its only one
    assert_int_equal(acknowledge(TENANTS, 900002, false, &e), -ENOSPC);
    assert_int_equal(acknowledge(3, 3998, false, &e), 0);
    assert_int_equal(acknowledge(3, 3999, false, &e), 0);
    assert_int_equal(done_n, before);
    state_close(state);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(done_n, before + 4);
    assert_int_equal(count(), ACKNOWLEDGED_MAX);
    assert_true(is_acknowledged(910000, false) && is_acknowledged(900001, false) &&
                is_acknowledged(3999, false));
    assert_false(is_acknowledged(900000, false) || is_acknowledged(3000, false) ||
                 is_acknowledged(3001, false));
    silences_free(all);
    open_all();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_that_are_being_written_count_to_the_limit_of_all,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            at_the_limit_of_all_others_are_refused_and_nobody_elses_gives_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tenant_beyond_its_limit_displaces_its_own_oldest, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
