// SPDX-License-Identifier: Apache-2.0
// Kept findings are bounded in total, and the tenant with the most loses its oldest.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/anomaly/findings.h"

static struct findings all;

static int
clear(void **state)
{
    (void)state;
    findings_clear(&all);
    memset(&all, 0, sizeof all);
    return 0;
}

static void
add(const char *tenant, unsigned n)
{
    struct finding f = {0};
    (void)snprintf(f.tenant, sizeof f.tenant, "%s", tenant);
    for (unsigned i = 0; i < n; i++)
        findings_add(&all, &f);
}

static unsigned
count(const char *tenant)
{
    unsigned n = 0;
    const struct finding *f = NULL;
    for (uint64_t at = 0; (f = findings_next(&all, at)) != NULL; at = f->sequence) {
        assert_true(f->sequence > at);
        n += strcmp(f->tenant, tenant) == 0;
    }
    return n;
}

static void
a_tenant_does_not_displace_anothers_entries(void **state)
{
    (void)state;
    add("quiet", 3);
    add("loud", 3 * ANOMALY_FINDINGS);
    add("late", 2);
    assert_int_equal(count("quiet"), 3);
    assert_int_equal(count("late"), 2);
    assert_int_equal(count("loud"), ANOMALY_FINDINGS - 5);
    assert_int_equal(all.last, 3 * ANOMALY_FINDINGS + 5);
}

static void
dropped_findings_are_counted_per_tenant(void **state)
{
    (void)state;
    add("quiet", 3);
    add("loud", ANOMALY_FINDINGS);
    assert_int_equal(findings_forgotten(&all, "quiet", 0), 0);
    assert_int_equal(findings_forgotten(&all, "loud", 0), 3);
    assert_int_equal(findings_forgotten(&all, NULL, 0), 3);
    assert_int_equal(findings_forgotten(&all, "loud", 5), 1);
    assert_int_equal(findings_forgotten(&all, "loud", 6), 0);
    assert_int_equal(findings_forgotten(&all, NULL, 6), 0);
    assert_int_equal(findings_next(&all, 0)->sequence, 1);
    assert_int_equal(findings_next(&all, 3)->sequence, 7);
    assert_null(findings_next(&all, all.last));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tenant_does_not_displace_anothers_entries, clear, clear),
        cmocka_unit_test_setup_teardown(dropped_findings_are_counted_per_tenant, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
