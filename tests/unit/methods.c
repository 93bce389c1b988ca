// SPDX-License-Identifier: Apache-2.0
// client/methods.c against the descriptor set.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/methods.h"
#include "proto/rules.h"
#include "proto/validate.h"
#include "proto/wire.h"

static void
an_unknown_method_gets_a_key(void **state)
{
    (void)state;
    assert_true(method_wants_key("/stockade.v2.Nothing/Here"));
    assert_true(method_wants_key(""));
}

static void
the_table_agrees_with_the_schema(void **state)
{
    struct err e;
    (void)state;
    assert_int_equal(validate_init(&e), 0);
    for (const struct method *m = methods; m->path != NULL; m++) {
        const struct method_rules *rules = validate_method(m->path);
        assert_non_null(rules);
        assert_int_equal(rules->idempotent, m->idempotent);
        assert_false(m->idempotent && m->key);
        assert_int_equal(method_wants_key(m->path), m->key);
    }
    assert_true(method_wants_key("/stockade.v1.SandboxService/Create"));
    assert_false(method_wants_key("/stockade.v1.ProcessService/Run"));
    assert_false(method_wants_key("/stockade.v1.ProcessService/Input"));
}

// A method that is missing gets a key, which the broker hashes its request for and keeps for minutes.
static void
every_method_of_the_schema_is_in_the_table(void **state)
{
    struct err e;
    (void)state;
    assert_int_equal(validate_init(&e), 0);
    for (size_t i = 0; validate_method_at(i) != NULL; i++) {
        const char *path = validate_method_at(i)->path;
        const struct method *m = methods;
        while (m->path != NULL && strcmp(m->path, path) != 0)
            m++;
        if (m->path == NULL)
            fail_msg("%s is not in the table", path);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_method_gets_a_key),
        cmocka_unit_test(the_table_agrees_with_the_schema),
        cmocka_unit_test(every_method_of_the_schema_is_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
