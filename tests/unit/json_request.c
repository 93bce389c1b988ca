// SPDX-License-Identifier: Apache-2.0
// Requests of the dashboard in JSON (client/exporter/json_request.h).
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "client/exporter/json_request.h"
#include "proto/arena.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "stockade/v1/telemetry_service.pb-c.h"

static struct arena *arena;

static int
setup(void **state)
{
    (void)state;
    arena = arena_new(65536);
    return arena == NULL;
}

static int
teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

// The field that is refused, or the text if there is none.
static const char *
refused(const char *text, const ProtobufCMessageDescriptor *type)
{
    static struct err e;
    ProtobufCMessage *m = NULL;
    memset(&e, 0, sizeof e);
    assert_true(json_request(text, strlen(text), type, arena, &m, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_null(m);
    return e.subject[0] != '\0' ? e.subject : e.text;
}

static void
wrong_values_are_refused_with_their_field(void **state)
{
    static const struct {
        const char *text, *field;
    } wrong[] = {
        {"{\"tenant\": 1}", "tenant"},
        {"{\"tenant\": null}", "tenant"},
        {"{\"kinds\": \"exec\"}", "kinds"},
        {"{\"kinds\": [\"no-such\"]}", "kinds"},
        {"{\"kinds\": [3]}", "kinds"},
        {"{\"kinds\": [\"\"]}", "kinds"},
        {"{\"from_sequence\": -1}", "from_sequence"},
        {"{\"from_sequence\": 1.5}", "from_sequence"},
        {"{\"kept_only\": 1}", "kept_only"},
        {"{\"sandbox_ids\": {\"a\": 1}}", "sandbox_ids"},
        {"{\"nothing\": 1}", "nothing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_string_equal(refused(wrong[i].text, &stockade__v1__subscribe_request__descriptor),
                            wrong[i].field);
    assert_string_equal(
        refused("{\"page_size\": 4294967296}", &stockade__v1__list_usage_request__descriptor),
        "page_size");
    assert_string_equal(
        refused("{\"digest\": \"abc\"}", &stockade__v1__approve_request__descriptor), "digest");
    assert_string_equal(refused("{\"digest\": \"AB\"}", &stockade__v1__approve_request__descriptor),
                        "digest");
    assert_string_equal(refused("{\"grant\": 1}", &stockade__v1__approve_request__descriptor),
                        "ApprovalGrant must be an object");
}

static void
what_is_no_json_is_refused(void **state)
{
    static const char *const wrong[] = {"{",
                                        "[]",
                                        "1",
                                        "\"a\"",
                                        "{\"tenant\": \"a\", \"tenant\": \"b\"}",
                                        "{} {}",
                                        "null",
                                        "{\"tenant\": \"\\u0000\"}"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        (void)refused(wrong[i], &stockade__v1__subscribe_request__descriptor);
}

static void
a_request_has_the_values_of_its_text(void **state)
{
    static const char text[] =
        "{\"tenant\": \"*\", \"kinds\": [\"exec\", \"JOB_ENDED\"], \"from_sequence\": 9007199254740993, "
        "\"kept_only\": true, \"sandbox_ids\": [\"a\", \"b\"], \"severity\": \"warning\"}";
    ProtobufCMessage *m = NULL;
    struct err e;
    (void)state;
    assert_int_equal(json_request(text, strlen(text), &stockade__v1__subscribe_request__descriptor,
                                  arena, &m, &e),
                     0);
    const Stockade__V1__SubscribeRequest *r = (const Stockade__V1__SubscribeRequest *)m;
    assert_string_equal(r->tenant, "*");
    assert_int_equal(r->n_kinds, 2);
    assert_int_equal(r->kinds[0], STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC);
    assert_int_equal(r->kinds[1], STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_ENDED);
    assert_true(r->from_sequence == UINT64_C(9007199254740993));
    assert_true(r->kept_only);
    assert_int_equal(r->n_sandbox_ids, 2);
    assert_string_equal(r->sandbox_ids[1], "b");
    assert_int_equal(r->severity, STOCKADE__V1__SEVERITY__SEVERITY_WARNING);
}

static void
messages_in_messages_and_bytes_are_read(void **state)
{
    static const char text[] =
        "{\"id\": \"x\", \"digest\": \"00ff10\", \"grant\": {\"reach\": \"session\", \"ttl_ms\": 5000}}";
    ProtobufCMessage *m = NULL;
    struct err e;
    (void)state;
    assert_int_equal(
        json_request(text, strlen(text), &stockade__v1__approve_request__descriptor, arena, &m, &e),
        0);
    const Stockade__V1__ApproveRequest *r = (const Stockade__V1__ApproveRequest *)m;
    assert_int_equal(r->digest.len, 3);
    assert_memory_equal(r->digest.data, "\x00\xff\x10", 3);
    assert_int_equal(r->grant->reach, STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_SESSION);
    assert_int_equal(r->grant->ttl_ms, 5000);
    assert_int_equal(json_request("", 0, &stockade__v1__approve_request__descriptor, arena, &m, &e),
                     0);
    assert_string_equal(((const Stockade__V1__ApproveRequest *)m)->id, "");
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_values_are_refused_with_their_field, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_json_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_has_the_values_of_its_text, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_in_messages_and_bytes_are_read, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
