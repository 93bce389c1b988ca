// SPDX-License-Identifier: Apache-2.0
// A server whose method table and schema differ does not start.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "stockade/v1/system_service.pb-c.h"

#include "proto/validate.h"
#include "server/api/api.h"
#include "server/rpc/dispatch.h"

static void
never(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    (void)c;
    (void)req;
    fail();
}

static void
a_method_that_the_schema_does_not_have_is_refused(void **state)
{
    (void)state;
    static const struct call_method methods[] = {
        {"/stockade.v1.SystemService/Inform", &stockade__v1__info_request__descriptor,
         &stockade__v1__info_response__descriptor, never},
        {0},
    };
    struct err e = {0};
    struct dispatch *d = dispatch_new(NULL);
    assert_int_not_equal(dispatch_add(d, methods, &e), 0);
    assert_non_null(strstr(e.text, "the schema has no such method"));
    dispatch_free(d);
}

static void
a_method_is_served_once(void **state)
{
    (void)state;
    struct err e = {0};
    struct dispatch *d = dispatch_new(NULL);
    assert_int_equal(dispatch_add(d, health_methods, &e), 0);
    assert_int_not_equal(dispatch_add(d, health_methods, &e), 0);
    assert_non_null(strstr(e.text, "already served"));
    dispatch_free(d);
}

static void
a_method_without_a_handler_fails_the_self_test(void **state)
{
    (void)state;
    struct err e = {0};
    struct dispatch *d = dispatch_new(NULL);
    assert_int_equal(dispatch_add(d, health_methods, &e), 0);
    assert_int_not_equal(dispatch_complete(d, &e), 0);
    assert_non_null(strstr(e.text, "has no handler"));
    dispatch_free(d);
}

static int
load_rules(void **state)
{
    (void)state;
    struct err e;
    return validate_init(&e);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_method_that_the_schema_does_not_have_is_refused),
        cmocka_unit_test(a_method_is_served_once),
        cmocka_unit_test(a_method_without_a_handler_fails_the_self_test),
    };
    return cmocka_run_group_tests(tests, load_rules, NULL);
}
