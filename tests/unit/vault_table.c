// SPDX-License-Identifier: Apache-2.0
// server/vault/table.c: data keys of thousands of tenants.
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/harness/vault_box.h"

enum { TENANTS = 10000, LOOKS = 10000 };

static uint64_t
cpu_ns(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// Looks for the data keys of the first tenants, as often.
static uint64_t
look_for_keys(unsigned tenants)
{
    uint8_t id[SEALED_KEY_ID], first[SEALED_KEY_ID];
    const uint64_t began = cpu_ns();
    for (unsigned i = 0; i < LOOKS; i++) {
        char name[VAULT_TENANT];
        struct err e;
        (void)snprintf(name, sizeof name, "tenant-%u", i % tenants);
        assert_int_equal(vault_need(vault_box.vault, name, id, NULL, NULL, &e), 1);
        assert_true(vault_is_current(vault_box.vault, name, id) && vault_has(vault_box.vault, id));
        if (i == 0)
            memcpy(first, id, sizeof id);
        assert_int_equal(memcmp(first, id, sizeof id) == 0, i % tenants == 0);
    }
    return cpu_ns() - began;
}

static void
on_key(void *cookie, const struct err *e)
{
    assert_null(e);
    ++*(unsigned *)cookie;
}

static void
a_tenant_does_not_pay_for_ten_thousand_others(void **unused)
{
    struct err e, done = {.code = ERR_UNKNOWN};
    uint8_t id[SEALED_KEY_ID], anew[SEALED_KEY_ID];
    unsigned n = 0;
    uint64_t few_ns = UINT64_MAX, many_ns = UINT64_MAX;
    (void)unused;
    vault_box_start(1);
    for (unsigned i = 0; i < TENANTS; i++) {
        char name[VAULT_TENANT];
        (void)snprintf(name, sizeof name, "tenant-%u", i);
        assert_int_equal(vault_need(vault_box.vault, name, id, on_key, &n, &e), 0);
    }
    while (n < TENANTS)
        (void)uv_run(&vault_box.loop, UV_RUN_ONCE);
    vault_box_stop();
    vault_box_start(1); // in the order of the database
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t few = look_for_keys(10), many = look_for_keys(TENANTS);
        few_ns = few < few_ns ? few : few_ns;
        many_ns = many < many_ns ? many : many_ns;
    }
    print_message("one of 10 tenants: %u ns, one of %d: %u ns\n", (unsigned)(few_ns / LOOKS),
                  TENANTS, (unsigned)(many_ns / LOOKS));
    assert_true(many_ns < 20 * few_ns); // a list takes 1000 times as long
    assert_int_equal(vault_need(vault_box.vault, "tenant-5000", id, on_key, &n, &e), 1);
    assert_int_equal(vault_forget(vault_box.vault, "tenant-5000", vault_box_on_done, &done, &e), 0);
    vault_box_wait_for(&done);
    assert_true(vault_forget(vault_box.vault, "tenant-5000", vault_box_on_done, &done, &e) < 0);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(vault_need(vault_box.vault, "tenant-5000", anew, on_key, &n, &e), 0);
    assert_true(memcmp(id, anew, sizeof id) != 0 && !vault_has(vault_box.vault, id) &&
                vault_has(vault_box.vault, anew));
    while (n < TENANTS + 1)
        (void)uv_run(&vault_box.loop, UV_RUN_ONCE);
    (void)look_for_keys(TENANTS);
    vault_box_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tenant_does_not_pay_for_ten_thousand_others,
                                        vault_box_set_up, vault_box_tear_down),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
