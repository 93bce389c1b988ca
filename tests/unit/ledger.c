// SPDX-License-Identifier: Apache-2.0
// The ledger over any store: in memory, one that lasts, and one that fails. And calls and keys when it fails.
#include <errno.h>
#include <stdio.h>

#include "server/rpc/ledger.h"
#include "server/rpc/tenants.h"
#include "tests/harness/conn_memory.h"

// ---- a store that lasts as long as the test, and fails on request

enum { OWNERS = 8 };

static struct {
    struct {
        char owner[32];
        uint64_t held[LEDGER_ACCOUNTS];
    } entry[OWNERS];
    unsigned entries_n;
    unsigned loads, saves;
    bool fails_to_load;
    uint32_t fails_to_save; // bits of accounts
} stored;

static uint64_t *
entry_of(const char *owner)
{
    for (unsigned i = 0; i < stored.entries_n; i++)
        if (strcmp(stored.entry[i].owner, owner) == 0)
            return stored.entry[i].held;
    assert_true(stored.entries_n < OWNERS);
    unsigned i = stored.entries_n++;
    (void)snprintf(stored.entry[i].owner, sizeof stored.entry[i].owner, "%s", owner);
    return stored.entry[i].held;
}

static int
test_load(void *state, const char *owner, uint64_t held[LEDGER_ACCOUNTS], struct err *e)
{
    assert_ptr_equal(state, &stored);
    stored.loads++;
    if (stored.fails_to_load)
        return err_sys(e, EIO, "read the table");
    memcpy(held, entry_of(owner), LEDGER_ACCOUNTS * sizeof held[0]);
    return 0;
}

static int
test_save(void *state, const char *owner, enum ledger_account a, uint64_t held, struct err *e)
{
    assert_ptr_equal(state, &stored);
    stored.saves++;
    if ((stored.fails_to_save >> a & 1) != 0)
        return err_sys(e, ENOSPC, "write the table");
    entry_of(owner)[a] = held;
    return 0;
}

static const struct ledger_store lasting = {"test", true, test_load, test_save};
static const struct ledger_keeper keepers[] = {
    {NULL, NULL}, {&ledger_memory, NULL}, {&lasting, &stored}};
static const struct ledger_keeper *const test_keeper = &keepers[2];
static const char me[] = "uid:1";

static int
forget_all(void **state)
{
    (void)state;
    memset(&stored, 0, sizeof stored);
    return 0;
}

// ---- every row

static void
a_charge_above_the_maximum_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof keepers / sizeof keepers[0]; i++) {
        const struct ledger_keeper *k = &keepers[i];
        struct ledger l = {.loaded = false};
        struct err e = {.code = 77};
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, 101, 100, &e), -EDQUOT);
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, UINT64_MAX, 100, &e), -EDQUOT);
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, 100, 100, &e), 0);
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, 1, 100, &e), -EDQUOT);
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, 1, 50, &e), -EDQUOT); // lowered
        assert_int_equal(ledger_charge(&l, k, me, LEDGER_BYTES, UINT64_MAX, UINT64_MAX, &e),
                         -EDQUOT); // no overflow
        assert_int_equal(e.code, 77);
        assert_int_equal(l.held[LEDGER_BYTES], 100);
    }
}

static void
accounts_are_apart_and_what_is_released_can_be_charged_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof keepers / sizeof keepers[0]; i++) {
        const struct ledger_keeper *k = &keepers[i];
        struct ledger l = {.loaded = false};
        struct err e;
        for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++)
            assert_int_equal(ledger_charge(&l, k, me, (enum ledger_account)a, a + 1, 100, &e), 0);
        for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++)
            assert_int_equal(l.held[a], a + 1);
        assert_int_equal(ledger_may_rest(&l, k), k == test_keeper);
        for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++) {
            ledger_release(&l, k, me, (enum ledger_account)a, a + 1);
            assert_int_equal(l.held[a], 0);
            assert_int_equal(ledger_charge(&l, k, me, (enum ledger_account)a, 100, 100, &e), 0);
            ledger_release(&l, k, me, (enum ledger_account)a, 100);
        }
        assert_true(ledger_settle(&l, k, me));
        assert_true(ledger_may_rest(&l, k));
    }
}

static void
every_account_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++) {
        assert_non_null(ledger_account_name((enum ledger_account)a));
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(ledger_account_name((enum ledger_account)a),
                                    ledger_account_name((enum ledger_account)b));
    }
}

// ---- a store that fails

static void
a_store_that_cannot_be_read_refuses_and_is_read_later(void **state)
{
    (void)state;
    struct ledger l = {.loaded = false};
    struct err e;
    entry_of(me)[LEDGER_SANDBOXES] = 9;
    stored.fails_to_load = true;
    assert_true(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 1, 10, &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_string_equal(e.reason, "LEDGER");
    assert_string_equal(e.text, "read the ledger of uid:1: read the table: Input/output error");
    assert_int_equal(l.held[LEDGER_SANDBOXES], 0);
    stored.fails_to_load = false;
    assert_int_equal(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 1, 10, &e), 0);
    assert_int_equal(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 1, 10, &e), -EDQUOT);
    assert_int_equal(l.held[LEDGER_SANDBOXES], 10); // with what was stored
    assert_int_equal(stored.loads, 2);
}

static void
a_store_that_cannot_be_written_refuses_and_nothing_has_changed(void **state)
{
    (void)state;
    struct ledger l = {.loaded = false};
    struct err e;
    assert_int_equal(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 3, 10, &e), 0);
    stored.fails_to_save = 1u << LEDGER_SANDBOXES;
    assert_true(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 1, 10, &e) < 0);
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_string_equal(e.text,
                        "change the ledger of uid:1: write the table: No space left on device");
    assert_int_equal(l.held[LEDGER_SANDBOXES], 3);
    assert_int_equal(entry_of(me)[LEDGER_SANDBOXES], 3);
    assert_true(ledger_settle(&l, test_keeper, me)); // a refused charge owes nothing
    assert_int_equal(ledger_charge(&l, test_keeper, me, LEDGER_JOBS, 1, 10, &e), 0); // the others
}

static void
a_release_that_the_store_does_not_take_is_saved_later(void **state)
{
    (void)state;
    struct ledger l = {.loaded = false};
    struct err e;
    assert_int_equal(ledger_charge(&l, test_keeper, me, LEDGER_SANDBOXES, 3, 3, &e), 0);
    stored.fails_to_save = ~0u;
    ledger_release(&l, test_keeper, me, LEDGER_SANDBOXES, 2);
    assert_int_equal(l.held[LEDGER_SANDBOXES], 1);
    assert_int_equal(entry_of(me)[LEDGER_SANDBOXES], 3);
    assert_false(ledger_settle(&l, test_keeper, me));
    stored.fails_to_save = 0;
    assert_true(ledger_settle(&l, test_keeper, me));
    assert_int_equal(entry_of(me)[LEDGER_SANDBOXES], 1);
    stored.saves = 0;
    assert_true(ledger_settle(&l, test_keeper, me));
    assert_int_equal(stored.saves, 0);
}

// ---- tenants

static void
a_tenant_is_remembered_until_its_ledger_is_saved(void **state)
{
    (void)state;
    struct tenants ts = {.keeper = *test_keeper};
    struct err e;
    struct tenant *t = tenant_hold(&ts, me);
    assert_int_equal(tenant_charge(t, LEDGER_SANDBOXES, 1, 1, &e), 0);
    stored.fails_to_save = ~0u;
    tenant_release(t, LEDGER_SANDBOXES, 1);
    tenant_drop(t);
    assert_ptr_equal(tenant_find(&ts, me), t);
    tenant_drop(tenant_hold(&ts, "uid:2")); // a new owner: the others are checked
    assert_ptr_equal(tenant_find(&ts, me), t);
    stored.fails_to_save = 0;
    tenant_drop(tenant_hold(&ts, "uid:3"));
    assert_null(tenant_find(&ts, me));
    assert_int_equal(entry_of(me)[LEDGER_SANDBOXES], 0);
    assert_int_equal(tenants_forget(&ts), 0);
}

static void
a_ledger_that_is_lost_at_the_end_is_counted(void **state)
{
    (void)state;
    struct tenants ts = {.keeper = *test_keeper};
    struct err e;
    struct tenant *t = tenant_hold(&ts, me);
    assert_int_equal(tenant_charge(t, LEDGER_SANDBOXES, 1, 1, &e), 0);
    stored.fails_to_save = ~0u;
    tenant_release(t, LEDGER_SANDBOXES, 1);
    tenant_drop(t);
    assert_int_equal(tenants_forget(&ts), 1);
    assert_null(tenant_find(&ts, me));
}

static void
what_a_lasting_store_holds_comes_back_with_the_tenant(void **state)
{
    (void)state;
    struct tenants ts = {.keeper = *test_keeper};
    struct err e;
    struct tenant *t = tenant_hold(&ts, me);
    assert_int_equal(tenant_charge(t, LEDGER_SANDBOXES, 2, 3, &e), 0);
    tenant_drop(t);
    assert_null(tenant_find(&ts, me)); // it may rest: the store has it
    t = tenant_hold(&ts, me);
    assert_int_equal(tenant_charge(t, LEDGER_SANDBOXES, 2, 3, &e), -EDQUOT);
    assert_int_equal(tenant_held(t, LEDGER_SANDBOXES), 2);
    tenant_release(t, LEDGER_SANDBOXES, 2);
    tenant_drop(t);
}

// ---- what a caller sees

static void
assert_only_a_connection_is_held(void)
{
    for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++)
        if (a != LEDGER_CONNECTIONS)
            assert_int_equal(tenant_held(tenant_find(&it.tenants, me), (enum ledger_account)a), 0);
}

static void
calls_are_refused_as_unavailable_and_leak_nothing(void **state)
{
    (void)state;
    static const enum ledger_account needed[] = {LEDGER_CALLS, LEDGER_KEYS};
    it.tenants.keeper = *test_keeper;
    struct transport_stream *s = open_one(1);
    for (uint32_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        stored.fails_to_save = 1u << needed[i];
        give_call(s, ID(i + 1), "key", "");
        assert_next(s, ID(i + 1), END, ERR_UNAVAILABLE);
        assert_int_equal(it.executed, 0);
        stored.fails_to_save = 0;
        assert_only_a_connection_is_held();
    }
    give_call(s, ID(9), "key", "");
    reply(s);
    assert_next(s, ID(9), END, 0);
    assert_int_equal(it.executed, 1);
    leave(s);
}

// The answer, too, is charged before it is written.
static void
a_connection_whose_bytes_cannot_be_charged_is_closed(void **state)
{
    (void)state;
    it.tenants.keeper = *test_keeper;
    struct transport_stream *s = open_one(1);
    stored.fails_to_save = 1u << LEDGER_BYTES;
    give_call(s, ID(1), NULL, "");
    assert_true(s->closed && it.executed == 0);
    leave(s);
    stored.fails_to_save = 0;
    assert_int_equal(tenants_forget(&it.tenants), 0); // it is remembered for its shares alone
    assert_null(tenant_find(&it.tenants, me));
}

static void
a_connection_that_cannot_be_charged_is_closed(void **state)
{
    (void)state;
    it.tenants.keeper = *test_keeper;
    stored.fails_to_save = 1u << LEDGER_CONNECTIONS;
    struct transport_stream *s = arrive(1);
    assert_true(s->closed);
    assert_null(tenant_find(&it.tenants, me));
    stored.fails_to_save = 0;
    leave(s);
}

int
main(void)
{
#define LEDGER_TEST(name) cmocka_unit_test_setup(name, forget_all)
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(a_charge_above_the_maximum_is_refused_and_changes_nothing),
        LEDGER_TEST(accounts_are_apart_and_what_is_released_can_be_charged_again),
        LEDGER_TEST(every_account_has_a_name_of_its_own),
        LEDGER_TEST(a_store_that_cannot_be_read_refuses_and_is_read_later),
        LEDGER_TEST(a_store_that_cannot_be_written_refuses_and_nothing_has_changed),
        LEDGER_TEST(a_release_that_the_store_does_not_take_is_saved_later),
        LEDGER_TEST(a_tenant_is_remembered_until_its_ledger_is_saved),
        LEDGER_TEST(a_ledger_that_is_lost_at_the_end_is_counted),
        LEDGER_TEST(what_a_lasting_store_holds_comes_back_with_the_tenant),
    };
    const struct CMUnitTest of_calls[] = {
        TEST(calls_are_refused_as_unavailable_and_leak_nothing),
        TEST(a_connection_whose_bytes_cannot_be_charged_is_closed),
        TEST(a_connection_that_cannot_be_charged_is_closed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)forget_all(NULL);
    return failed + cmocka_run_group_tests(of_calls, NULL, NULL);
}
