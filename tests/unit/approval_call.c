// SPDX-License-Identifier: Apache-2.0
// server/api/approval_call: what an approver sees of a call, and what its digest covers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "server/api/approval_call.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

static struct arena *arena;

static struct approval_call
run_of(const char *workdir, size_t n, const char **args)
{
    struct err e;
    struct approval_call call;
    Stockade__V1__RunRequest m = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command c = STOCKADE__V1__COMMAND__INIT;
    m.command = &c;
    c.n_args = n;
    c.args = args;
    c.workdir = workdir;
    assert_int_equal(approval_call_read("ProcessService/Run", &m.base, arena, &call, &e), 0);
    return call;
}

static void
lines_of_different_commands_differ(void **unused)
{
    (void)unused;
    const char *one[] = {"a b"}, *two[] = {"a", "b"}, *three[] = {"a'b\n"}, *four[] = {"a", ""};
    assert_string_equal(run_of("", 1, one).subject, "'a b'");
    assert_string_equal(run_of("", 2, two).subject, "a b");
    assert_string_equal(run_of("", 1, three).subject, "$'a\\'b\\x0a'");
    assert_string_equal(run_of("", 2, four).subject, "a ''");
    char long_word[2 * APPROVAL_SUBJECT_MAX];
    memset(long_word, 'x', sizeof long_word);
    long_word[sizeof long_word - 1] = '\0';
    const char *five[] = {"echo", "\xc3\xa4", long_word};
    const struct approval_call cut = run_of("", LENGTH(five), five);
    assert_false(cut.has_command); // no pattern can match what is not shown
    assert_true(strlen(cut.subject) <= APPROVAL_SUBJECT_MAX);
}

static void
a_digest_covers_every_field_and_the_method(void **unused)
{
    (void)unused;
    struct err e;
    const char *one[] = {"a"}, *two[] = {"b"};
    struct approval_call other;
    const struct approval_call a = run_of("", 1, one), same = run_of("", 1, one),
                               b = run_of("", 1, two), c = run_of("/", 1, one);
    assert_memory_equal(a.digest, same.digest, APPROVAL_DIGEST);
    assert_memory_not_equal(a.digest, b.digest, APPROVAL_DIGEST);
    assert_memory_not_equal(a.digest, c.digest, APPROVAL_DIGEST);
    assert_memory_equal(a.around, b.around,
                        APPROVAL_DIGEST); // they differ in their command line alone
    assert_memory_not_equal(a.around, c.around, APPROVAL_DIGEST);
    Stockade__V1__RunRequest m = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command command = STOCKADE__V1__COMMAND__INIT;
    m.command = &command;
    command.n_args = 1;
    command.args = one;
    assert_int_equal(approval_call_read("ProcessService/Start", &m.base, arena, &other, &e), 0);
    assert_memory_not_equal(a.digest, other.digest, APPROVAL_DIGEST);
}

static void
a_call_without_a_command_is_described_by_its_texts(void **unused)
{
    (void)unused;
    struct err e;
    struct approval_call call;
    Stockade__V1__SandboxServiceDeleteRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_DELETE_REQUEST__INIT;
    m.id = "a b";
    assert_int_equal(approval_call_read("SandboxService/Delete", &m.base, arena, &call, &e), 0);
    assert_string_equal(call.subject, "id='a b'");
    assert_false(call.has_command);
}

static void
a_large_request_is_covered_but_not_kept(void **unused)
{
    (void)unused;
    static uint8_t bytes[APPROVAL_REQUEST_MAX + 1];
    struct err e;
    struct approval_call call;
    const char *args[] = {"cat"};
    Stockade__V1__RunRequest m = STOCKADE__V1__RUN_REQUEST__INIT;
    Stockade__V1__Command c = STOCKADE__V1__COMMAND__INIT;
    m.command = &c;
    c.n_args = 1;
    c.args = args;
    c.stdin = (ProtobufCBinaryData){sizeof bytes, bytes};
    assert_int_equal(approval_call_read("ProcessService/Run", &m.base, arena, &call, &e), 0);
    assert_null(call.request);
    assert_true(call.request_n > sizeof bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_different_commands_differ),
        cmocka_unit_test(a_digest_covers_every_field_and_the_method),
        cmocka_unit_test(a_call_without_a_command_is_described_by_its_texts),
        cmocka_unit_test(a_large_request_is_covered_but_not_kept),
    };
    if (sodium_init() < 0)
        return 1;
    arena = arena_new((size_t)16 * 1024 * 1024);
    if (arena == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return failed;
}
