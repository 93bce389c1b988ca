// SPDX-License-Identifier: Apache-2.0
// Arguments that a program passes to the library: missing options, lists and handles.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdint.h>
#include <string.h>

#include "client/requests.h"
#include "client/stockade.h"

static struct stockade *s;
static struct stockade_error e;

static int
open_handle(void **state)
{
    (void)state;
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    // a request that passes the checks fails with UNAVAILABLE
    o.address = "ipc:///nonexistent/stockade.sock";
    return stockade_open(&s, &o, &e);
}

static int
close_handle(void **state)
{
    (void)state;
    stockade_close(s);
    return 0;
}

#define assert_refused(call, what)                                                                 \
    do {                                                                                           \
        e = (struct stockade_error){0};                                                            \
        assert_true((call) < 0);                                                                   \
        assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);                                       \
        if (strstr(e.text, what) == NULL)                                                          \
            fail_msg("\"%s\" does not say \"%s\"", e.text, what);                                  \
    } while (0)

static const char *const program[] = {"true", NULL};

static void
missing_options_are_refused(void **state)
{
    (void)state;
    const struct stockade_options unset = {.address = "ipc:///tmp/s"};
    struct stockade *none = NULL;
    assert_refused(stockade_open(&none, &unset, &e), "size is not set");
    assert_null(none);
    assert_refused(stockade_run(s, NULL, NULL, NULL, &e), "no options");
    assert_refused(stockade_start(s, NULL, NULL, NULL, &e), "no options");
    assert_refused(stockade_call(s, NULL, NULL, &e), "no options");
    assert_refused(stockade_set_policy(s, "a", NULL, NULL, &e), "network");
    assert_refused(stockade_forward(s, "a", 80, NULL, &e), "handlers");
}

static void
missing_lists_are_refused(void **state)
{
    (void)state;
    const struct stockade_policy nothing = {.mode = STOCKADE_NETWORK_ALLOWLIST, .allow_n = 1};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = program;
    o.command.env_n = 1;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "command.env");
    o.command.env_n = 0;
    o.command.stdin_n = SIZE_MAX;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "command.stdin");
    o.command.stdin_n = 0;
    o.labels_n = 2;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "metadata");
    o.labels = (const struct stockade_pair[]){{"a", "b"}};
    // multiplied by the size of an element it would overflow to a small number
    o.labels_n = SIZE_MAX;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "larger than");
    o.labels_n = 0;
    o.policy = &nothing;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "network.outbound");
    struct stockade_events_options events = STOCKADE_EVENTS_OPTIONS_INIT;
    events.kinds_n = 1;
    assert_refused(stockade_events(s, &events, NULL, &e), "kinds");
    events.kinds_n = 0;
    events.sandboxes_n = 1;
    assert_refused(stockade_events(s, &events, NULL, &e), "sandbox_ids");
    assert_refused(stockade_list(s, NULL, 3, NULL, NULL, &e), "metadata");
    assert_refused(stockade_update(s, "a", 0, NULL, 1, NULL, &e), "metadata");
    assert_refused(stockade_input(s, "a", NULL, 1, &e), "data");
    assert_refused(stockade_forward_input(s, "a", NULL, 1, &e), "data");
    assert_refused(stockade_profile_import(s, "a", NULL, 1, &e), "file");
}

static void
a_missing_handle_or_method_is_refused(void **state)
{
    (void)state;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    assert_refused(stockade_info(NULL, NULL, &e), "no handle");
    assert_refused(stockade_call(s, &r, NULL, &e), "no method");
    r.method = "/stockade.v1.SystemService/Info";
    r.body.n = 5;
    assert_refused(stockade_call(s, &r, NULL, &e), "body");
    stockade_interrupt(NULL);
    stockade_close(NULL);
    stockade_free(NULL);
}

static void
valid_arguments_reach_the_socket(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = program;
    assert_true(stockade_run(s, &o, NULL, NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_true(stockade_run(s, &o, NULL, NULL, NULL) < 0);
}

// The value itself is reported, not the largest that fits into the field.
static void
a_limit_beyond_32_bits_is_refused_with_its_value(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = program;
    o.limits.pids = 99999999999;
    assert_refused(stockade_run(s, &o, NULL, NULL, &e),
                   "limits.pids: 99999999999 requested, at most 4294967295 can be requested");
    assert_string_equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
    assert_string_equal(e.subject, "limits.pids");
    o.limits = (struct stockade_limits){.cpu_millis = UINT64_C(1) << 32};
    assert_refused(stockade_run(s, &o, NULL, NULL, &e), "limits.cpu_millis: 4294967.296 requested");
    const struct stockade_policy policy = {.mode = STOCKADE_NETWORK_ALLOWLIST,
                                           .queries_per_minute = UINT64_C(1) << 32};
    assert_refused(stockade_set_policy(s, "a", &policy, NULL, &e),
                   "queries_per_minute: 4294967296 requested");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_options_are_refused),
        cmocka_unit_test(a_limit_beyond_32_bits_is_refused_with_its_value),
        cmocka_unit_test(missing_lists_are_refused),
        cmocka_unit_test(a_missing_handle_or_method_is_refused),
        cmocka_unit_test(valid_arguments_reach_the_socket),
    };
    return cmocka_run_group_tests_name("requests", tests, open_handle, close_handle);
}
