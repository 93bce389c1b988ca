// SPDX-License-Identifier: Apache-2.0
// Sandboxes through real processes: refused requests, ownership, and their end.
#include "tests/harness/broker.h"

static void
connections_that_the_policy_forbids_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    (void)shell(&o.command, "true");
    o.network = STOCKADE_NETWORK_OPEN;
    o.template_name = "small";
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_string_equal(e.reason, "NETWORK_POLICY_TOO_WIDE");
    o.network = STOCKADE_NETWORK_NONE;
    o.template_name = "absent";
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_string_equal(e.reason, "TEMPLATE_UNKNOWN");
    o.template_name = "small";
    o.limits.memory_bytes = 65 << 20;
    assert_true(stockade_run(broker.s, &o, NULL, &r, &e) < 0);
    assert_string_equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
    assert_non_null(strstr(e.text, "64M"));
}

static void
quotas_are_enforced_and_named(void **state)
{
    (void)state;
    struct record rec[4] = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("full");
    for (int i = 0; i < 3; i++)
        start_detached("full", "sleep 100", &rec[i]);
    assert_true(start("full", "true", false, &rec[3], &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    char name[8];
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    const struct stockade_sandbox *sb = NULL;
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "q%d", i);
        create(name);
    }
    assert_true(stockade_create(broker.s, &o, &sb, &e) < 0);
    assert_int_equal(e.code, STOCKADE_RESOURCE_EXHAUSTED);
    o.name = "q1";
    for (int i = 0; i < 5; i++) {
        (void)snprintf(name, sizeof name, "q%d", i);
        delete (name);
    }
    delete ("full");
    for (int i = 0; i < 3; i++)
        wait_for_end(&rec[i], STOCKADE_OUTCOME_CANCELLED);
}

static void
the_name_of_a_sandbox_is_unique(void **state)
{
    (void)state;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    create("once");
    o.name = "once";
    assert_true(stockade_create(broker.s, &o, &sb, &e) < 0);
    assert_int_equal(e.code, STOCKADE_ALREADY_EXISTS);
    delete ("once");
    create("once");
    delete ("once");
}

static void
another_callers_sandbox_is_not_found(void **state)
{
    (void)state;
    create("mine");
    pid_t child = fork();
    if (child == 0) {
        struct stockade_options o = STOCKADE_OPTIONS_INIT;
        struct stockade *s = NULL;
        struct stockade_error mine = {0}, none = {0};
        const struct stockade_sandbox *sb = NULL;
        o.address = broker.address;
        bool ok = setgid(54321) == 0 && setuid(54321) == 0 && stockade_open(&s, &o, NULL) == 0;
        ok = ok && stockade_get(s, "mine", &sb, &mine) < 0 &&
             stockade_get(s, "none", &sb, &none) < 0;
        ok = ok && mine.code == STOCKADE_NOT_FOUND && none.code == STOCKADE_NOT_FOUND;
        ok = ok && strcmp(mine.reason, none.reason) == 0 && strlen(mine.text) == strlen(none.text);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    delete ("mine");
}

static void
a_paused_sandbox_accepts_no_job_and_its_clock_stops(void **state)
{
    (void)state;
    struct record rec = {0}, other = {0};
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    const struct stockade_result *r = NULL;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_handlers h = handlers(&rec);
    create("still");
    o.sandbox = "still";
    o.detach = true;
    o.limits.wall_ms = 2500;
    (void)shell(&o.command, "sleep 0.3; echo woke");
    assert_int_equal(stockade_start(broker.s, &o, &h, NULL, &e), 0);
    assert_int_equal(stockade_pause(broker.s, "still", &sb, &e), 0);
    assert_int_equal(sb->state, STOCKADE_STATE_PAUSED);
    stockade_free(sb);
    assert_true(start("still", "true", false, &other, &r, &e) < 0);
    assert_int_equal(e.code, STOCKADE_FAILED_PRECONDITION);
    assert_true(stockade_pause(broker.s, "still", &sb, &e) < 0);
    time_passes("longer than the job may run", 3000);
    assert_int_equal(stockade_resume(broker.s, "still", &sb, &e), 0);
    stockade_free(sb);
    wait_for_end(&rec, STOCKADE_OUTCOME_EXITED);
    delete ("still");
}

// The first process of a sandbox's guest in the host's pid namespace; 0: none.
static pid_t
guest_of(const char *sandbox)
{
    static const struct {
        const char *root, *apart;
    } rows[] = {{"/sys/fs/cgroup", "/guest"},
                {"/sys/fs/cgroup/unified", "/guest"},
                // on most hybrid hosts it is in the sandbox's own cgroup
                {"/sys/fs/cgroup/unified", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[256];
        int pid = 0;
        (void)snprintf(path, sizeof path, "%s/stockade-priv-%d/%s%s/cgroup.procs", rows[i].root,
                       (int)getpid(), sandbox, rows[i].apart);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        if (fscanf(f, "%d", &pid) != 1) // NOLINT(cert-err34-c): the kernel writes it
            pid = 0;
        (void)fclose(f);
        return pid;
    }
    return 0;
}

static void
a_guest_that_dies_fails_its_jobs_and_takes_the_sandbox_along(void **state)
{
    (void)state;
    struct record rec = {0};
    create("dead");
    start_detached("dead", "sleep 100", &rec);
    pid_t guest = guest_of(rec.sandbox);
    assert_true(guest > 1);
    assert_int_equal(kill(guest, SIGKILL), 0);
    wait_for_end(&rec, STOCKADE_OUTCOME_FAILED);
    wait_for_removal(rec.sandbox);
    assert_int_equal(guest_of(rec.sandbox), 0);
}

static void
two_jobs_of_one_sandbox_share_its_files_and_have_bills_of_their_own(void **state)
{
    (void)state;
    struct record rec = {0};
    struct stockade_error e = {0};
    const struct stockade_result *r = NULL;
    create("pair");
    assert_int_equal(start("pair",
                           "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; "
                           "echo kept > f",
                           false, &rec, &r, &e),
                     0);
    uint64_t busy = r->bill.cpu_user_ns.value;
    assert_int_equal(r->bill.cpu_user_ns.scope, STOCKADE_SCOPE_JOB);
    stockade_free(r);
    assert_int_equal(start("pair", "cat f", false, &rec, &r, &e), 0);
    assert_string_equal(rec.text, "kept\n");
    assert_true(r->bill.cpu_user_ns.value < busy);
    stockade_free(r);
    delete ("pair");
}

static void
a_templates_environment_stands_below_the_callers(void **state)
{
    (void)state;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e = {0};
    struct record rec = {0};
    struct stockade_handlers h = handlers(&rec);
    const struct stockade_result *r = NULL;
    const struct stockade_pair env[] = {{"FROM", "caller"}};
    o.template_name = "small"; // without a pool, so the call waits for a sandbox to be made
    o.command.env = env;
    o.command.env_n = 1;
    (void)shell(&o.command, "echo $FROM $KEPT $HOME $(pwd) $(id -u)");
    assert_int_equal(stockade_run(broker.s, &o, &h, &r, &e), 0);
    assert_string_equal(rec.text, "caller yes /home/agent /home/agent 1000\n");
    stockade_free(r);
}

static void
a_sandbox_ends_with_its_time_to_live(void **state)
{
    (void)state;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e = {0};
    const struct stockade_sandbox *sb = NULL;
    struct record rec = {0};
    o.name = "short";
    o.ttl_ms = 2000;
    assert_int_equal(stockade_create(broker.s, &o, &sb, &e), 0);
    assert_true(sb->expires_ms > sb->created_ms);
    stockade_free(sb);
    start_detached("short", "sleep 100", &rec);
    wait_for_end(&rec, STOCKADE_OUTCOME_CANCELLED);
    wait_for_removal("short");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_that_the_policy_forbids_are_refused_with_a_reason),
        cmocka_unit_test(quotas_are_enforced_and_named),
        cmocka_unit_test(the_name_of_a_sandbox_is_unique),
        cmocka_unit_test(another_callers_sandbox_is_not_found),
        cmocka_unit_test(a_paused_sandbox_accepts_no_job_and_its_clock_stops),
        cmocka_unit_test(a_guest_that_dies_fails_its_jobs_and_takes_the_sandbox_along),
        cmocka_unit_test(two_jobs_of_one_sandbox_share_its_files_and_have_bills_of_their_own),
        cmocka_unit_test(a_templates_environment_stands_below_the_callers),
        cmocka_unit_test(a_sandbox_ends_with_its_time_to_live),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
