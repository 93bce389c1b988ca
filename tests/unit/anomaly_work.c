// SPDX-License-Identifier: Apache-2.0
// Benign work that looks like an attack by its numbers, compared with the attack.
#include "tests/harness/anomaly_box.h"

static struct activity sums;

static int
set_up_work(void **state)
{
    memset(&sums, 0, sizeof sums);
    return set_up(state);
}

static void
tick(void)
{
    now_ns += 100 * MS;
    box_tick(&box, &sums, now_ns);
}

static void
files_that_are_replaced_by_renaming_are_not_a_mass_rename(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) { // pip, for each compiled module: 2,000 in 10 s
        sums.opens_exclusive += 20;
        sums.renames += i % 2 == 0 ? 15 : 25; // some in the next tick
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RENAME], 0);
    for (int i = 0; i < 60 && raised[RULE_MASS_RENAME] == 0; i++) { // then existing files
        sums.renames += 10;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
}

static void
created_files_excuse_only_few_renames(void **state)
{
    (void)state;
    sums.opens_exclusive = 100000;
    tick();
    sums.renames = policy.rule[RULE_MASS_RENAME].threshold + BOX_MADE_MAX - 1;
    tick();
    assert_int_equal(raised[RULE_MASS_RENAME], 0);
    sums.renames++;
    tick();
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
}

static void
files_that_are_rewritten_and_later_removed_are_not_a_mass_wipe(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) { // tar replaces all files, and rm removes them
        sums.rewrites += 100;
        tick();
    }
    for (int i = 0; i < 20; i++) {
        sums.unlinks += 100;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_WIPE], 0);
    for (int i = 0; i < 60 && raised[RULE_MASS_WIPE] == 0; i++) { // one after the other
        sums.rewrites += 10;
        sums.unlinks += 10;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_WIPE], 1);
}

static void
files_that_are_renamed_or_rewritten_are_not_a_mass_encryption(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) { // pictures get names, and their folders are sorted
        sums.renames += 100;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
    for (int i = 0; i < 100; i++)
        tick();
    for (int i = 0; i < 30; i++) { // a formatter
        sums.rewrites += 100;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_ENCRYPT], 0);
}

static void
files_that_are_rewritten_and_renamed_are_a_mass_encryption(void **state)
{
    const uint64_t most = policy.rule[RULE_MASS_ENCRYPT].threshold;
    sums.rewrites = most - 1; // in two passes
    tick();
    sums.renames = 2 * most;
    tick();
    assert_int_equal(raised[RULE_MASS_ENCRYPT], 0);
    sums.rewrites++;
    tick();
    assert_int_equal(raised[RULE_MASS_ENCRYPT], 1);
    assert_non_null(strstr(said, "files were rewritten and renamed"));
    set_up_work(state);
    for (uint64_t i = 0; i < most; i++) { // one after the other
        sums.rewrites++;
        sums.renames++;
        if (i % 20 == 0)
            tick();
    }
    tick();
    assert_int_equal(raised[RULE_MASS_ENCRYPT], 1);
    set_up_work(state);
    for (uint64_t i = 0; i < 3 * most; i++) { // a new file takes the place of each
        sums.opens_exclusive++;
        sums.rewrites++;
        sums.renames++;
        if (i % 20 == 0)
            tick();
    }
    assert_int_equal(raised[RULE_MASS_ENCRYPT], 0);
}

static void
links_of_new_files_are_not_a_mass_relink(void **state)
{
    (void)state;
    for (int i = 0; i < 100;
         i++) { // git makes a file, links it to its final name and removes the first name
        sums.opens_exclusive += 20;
        sums.links += 20;
        sums.unlinks += 20;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RELINK], 0);
    for (int i = 0; i < 60 && raised[RULE_MASS_RELINK] == 0; i++) { // then existing files
        sums.links += 10;
        sums.unlinks += 10;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RELINK], 1);
}

static void
tasks_that_execute_a_program_count_half(void **state)
{
    (void)state;
    uint64_t most = policy.rule[RULE_FORK_STORM].threshold;
    sums.forks = sums.execs = most + most / 2; // xargs -P
    tick();
    assert_int_equal(raised[RULE_FORK_STORM], 0);
    sums.exits = sums.forks;
    for (int i = 0; i < 20; i++)
        tick();
    sums.forks += most; // a fork bomb among processes that have executed programs
    tick();
    assert_int_equal(raised[RULE_FORK_STORM], 1);
}

static void
a_bomb_that_executes_needs_twice_as_many(void **state)
{
    (void)state;
    uint64_t most = policy.rule[RULE_FORK_STORM].threshold;
    sums.forks = 2 * most;
    sums.execs = 100 * most;
    tick();
    assert_int_equal(raised[RULE_FORK_STORM], 1);
}

static void
open_as(const char *comm, const char *path)
{
    struct watch_open o = {.op = WATCH_FILE_OPEN};
    struct event e = {.time_ns = now_ns, .kind = EVENT_OPEN, .size = sizeof o};
    o.path_n = o.resolved_n = (uint32_t)strlen(path);
    memcpy(o.path, path, o.path_n);
    memcpy(o.resolved, path, o.path_n);
    (void)snprintf(e.comm, sizeof e.comm, "%s", comm);
    give(&e, &o, BOX_EXE_KNOWN);
}

static void
a_tool_that_manages_keys_may_open_its_own_folder(void **state)
{
    (void)state;
    exec_path("/usr/bin/gpg", false, BOX_EXE_KNOWN, 1);
    exec_path("/usr/bin/ssh-keygen", false, BOX_EXE_KNOWN, 2);
    open_as("gpg", "/home/user/.gnupg/pubring.kbx");
    open_as("ssh-keygen", "/home/user/.ssh/id_ed25519");
    open_as("ssh-keygen", "/home/user/work/id_ed25519");
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 0);
    open_as("gpg", "/home/user/.ssh/id_ed25519"); // another program's folder
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 1);
    open_as("cat", "/home/user/.gnupg/secring.gpg"); // another program
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 2);
    open_as("gpg", "/home/user/.gnupg/../.aws/credentials");
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 3);
}

static void
a_process_name_alone_is_not_a_tool(void **state)
{
    (void)state;
    open_as("gpg", "/home/user/.gnupg/secring.gpg"); // it was not executed
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 1);
    exec_path("/tmp/gpg", false, BOX_EXE_KNOWN, 1);
    exec_path("/usr/bin/../../tmp/ssh-keygen", false, BOX_EXE_KNOWN, 1);
    open_as("gpg", "/home/user/.gnupg/trustdb.gpg");
    open_as("ssh-keygen", "/home/user/.ssh/id_rsa");
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files_that_are_replaced_by_renaming_are_not_a_mass_rename,
                               set_up_work),
        cmocka_unit_test_setup(created_files_excuse_only_few_renames, set_up_work),
        cmocka_unit_test_setup(files_that_are_rewritten_and_later_removed_are_not_a_mass_wipe,
                               set_up_work),
        cmocka_unit_test_setup(files_that_are_renamed_or_rewritten_are_not_a_mass_encryption,
                               set_up_work),
        cmocka_unit_test_setup(files_that_are_rewritten_and_renamed_are_a_mass_encryption,
                               set_up_work),
        cmocka_unit_test_setup(links_of_new_files_are_not_a_mass_relink, set_up_work),
        cmocka_unit_test_setup(tasks_that_execute_a_program_count_half, set_up_work),
        cmocka_unit_test_setup(a_bomb_that_executes_needs_twice_as_many, set_up_work),
        cmocka_unit_test_setup(a_tool_that_manages_keys_may_open_its_own_folder, set_up_work),
        cmocka_unit_test_setup(a_process_name_alone_is_not_a_tool, set_up_work),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
