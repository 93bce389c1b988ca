// SPDX-License-Identifier: Apache-2.0
// The wire form of an error: the right details, and no bytes that a client cannot decode.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/wire.h"
#include "server/rpc/status.h"

static const ProtobufCMessage *
detail(const Stockade__V1__Status *s, const ProtobufCMessageDescriptor *type, struct arena *a)
{
    for (size_t i = 0; i < s->n_details; i++) {
        ProtobufCMessage *m = NULL;
        struct err e = {0};
        const char *name = strrchr(s->details[i]->type_url, '/') + 1;
        if (strcmp(name, type->name) != 0)
            continue;
        assert_int_equal(
            wire_unpack(type, s->details[i]->value.data, s->details[i]->value.len, a, &m, &e), 0);
        return m;
    }
    return NULL;
}

static void
bytes_that_are_not_text_do_not_reach_a_client(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    struct err e;
    (void)err_set(&e, ERR_INTERNAL, "open /x\xff\xfe\ny: no");
    e.code = 4711;
    const Stockade__V1__Status *s = status_of(&e, "uid:1", NULL, 0, a);
    assert_string_equal(s->message, "open /x???y: no");
    assert_int_equal(s->code, ERR_INTERNAL);
    assert_int_equal(s->n_details, 0);
}

static void
a_status_without_room_has_no_details(void **state)
{
    (void)state;
    struct err e;
    (void)err_field(&e, "limits.pids", "5 is above 4");
    struct arena *auto_arena a = arena_new(100);
    const Stockade__V1__Status *s = status_of(&e, "uid:1", NULL, 0, a);
    assert_non_null(s);
    assert_int_equal(s->n_details, 0);
    struct arena *auto_arena none = arena_new(10);
    assert_null(status_of(&e, "uid:1", NULL, 0, none));
}

static void
a_wrong_field_is_a_bad_request(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    struct err e;
    (void)err_field(&e, "limits.pids", "5 is above 4");
    const Stockade__V1__Status *s = status_of(&e, "uid:1", NULL, 0, a);
    const Stockade__V1__BadRequest *b =
        (const Stockade__V1__BadRequest *)detail(s, &stockade__v1__bad_request__descriptor, a);
    assert_non_null(b);
    assert_string_equal(b->field_violations[0]->field, "limits.pids");
    assert_null(detail(s, &stockade__v1__retry_info__descriptor, a));
    assert_null(detail(s, &stockade__v1__quota_failure__descriptor, a));
}

static void
an_exhausted_quota_names_the_tenant_with_reason_hint_and_facts(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    const struct status_fact facts[] = {{"process_id", "abc"}};
    struct err e;
    (void)err_set(&e, ERR_RESOURCE_EXHAUSTED, "all 5 are in use");
    err_detail(&e, "SANDBOXES", "sandboxes", "delete one");
    const Stockade__V1__Status *s = status_of(&e, "uid:1", facts, 1, a);
    const Stockade__V1__QuotaFailure *q =
        (const Stockade__V1__QuotaFailure *)detail(s, &stockade__v1__quota_failure__descriptor, a);
    assert_string_equal(q->violations[0]->subject, "uid:1");
    const Stockade__V1__ErrorInfo *i =
        (const Stockade__V1__ErrorInfo *)detail(s, &stockade__v1__error_info__descriptor, a);
    assert_string_equal(i->reason, "SANDBOXES");
    assert_string_equal(i->domain, "stockade");
    assert_int_equal(i->n_metadata, 3);
    assert_string_equal(i->metadata[1]->value, "delete one");
    assert_string_equal(i->metadata[2]->key, "process_id");
    (void)err_set(&e, ERR_UNAVAILABLE, "draining");
    s = status_of(&e, "uid:1", NULL, 0, a);
    assert_non_null(detail(s, &stockade__v1__retry_info__descriptor, a));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_text_do_not_reach_a_client),
        cmocka_unit_test(a_status_without_room_has_no_details),
        cmocka_unit_test(a_wrong_field_is_a_bad_request),
        cmocka_unit_test(an_exhausted_quota_names_the_tenant_with_reason_hint_and_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
