// SPDX-License-Identifier: Apache-2.0
// Commands that explore the sandbox; and programs of the host whose ordinary way of working looks like an attack.
#include "tests/harness/anomaly_box.h"

#include <errno.h>
#include <fcntl.h>

#include "server/anomaly/sensitive.h"

enum { PS = 77 };

// An exec of a program with words that are joined by '|'.
static void
run_as(uint32_t pid, uint32_t owner, const char *path, const char *words)
{
    static uint64_t inode;
    struct watch_exec x = {.exe = {.inode = ++inode, .owner = owner},
                           .path_n = (uint32_t)strlen(path)};
    struct event e = {
        .time_ns = now_ns, .kind = EVENT_EXEC, .size = sizeof x, .pid = pid, .comm = "job"};
    memcpy(x.path, path, strlen(path));
    x.args_n = (uint32_t)strlen(words) + 1;
    memcpy(x.argv, words, strlen(words) < WATCH_ARGV ? strlen(words) : WATCH_ARGV);
    for (uint32_t i = 0; i < WATCH_ARGV; i++)
        if (x.argv[i] == '|')
            x.argv[i] = '\0';
    give(&e, &x, BOX_EXE_KNOWN);
    now_ns += 10 * MS;
}

static void
run(const char *path, const char *words)
{
    run_as(5, 0, path, words);
}

static void
ordinary_commands_are_no_reconnaissance(void **state)
{
    static const char *const work[][2] = {
        {"/bin/uname", "uname|-a"},
        {"/bin/cat", "cat|/etc/os-release|/proc/cpuinfo"},
        {"/usr/bin/ps", "ps|aux"},
        {"/usr/bin/ip", "ip|addr"},
        {"/bin/cat", "cat|/proc/12/status"},
        {"/usr/bin/find", "find|.|-name|x"},
        {"/usr/bin/sudo", "sudo|-n|true"},
        {"/usr/bin/getent", "getent|hosts|localhost"},
        {"/bin/sh", "sh|-c|cat /etc/passwd /proc/1/cgroup; sudo -l; find -perm"},
        {"/bin/sh", "sh|-c|/etc/passwd /proc/1/cgroup"},
        {"", ""},
        {"/", "|||"},
        {"/tmp/", "x|/"}};
    (void)state;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof work / sizeof work[0]; i++)
            run(work[i][0], work[i][1]);
    assert_int_equal(raised[RULE_RECONNAISSANCE], 0);
}

static void
five_kinds_within_the_window_are_a_reconnaissance(void **state)
{
    (void)state;
    run("/bin/cat", "cat|/etc/passwd|/etc/group");
    run("/bin/hostname", "hostname");
    run("/usr/bin/ps", "ps|aux");
    for (int i = 0; i < 50; i++)
        run("/bin/cat", "cat|/proc/net/tcp");
    assert_int_equal(raised[RULE_RECONNAISSANCE], 0);
    run("/bin/cat", "cat|/proc/1/cgroup|/.dockerenv"); // a first look around
    assert_int_equal(raised[RULE_RECONNAISSANCE], 0);
    run("/bin/ls", "ls|-l|/var/run/docker.sock");
    assert_int_equal(raised[RULE_RECONNAISSANCE], 1);
    assert_string_equal(
        said, "within 60 s, commands explored host, accounts, processes, network, container");
    run("/usr/bin/find", "find|/|-perm|/6000");
    assert_int_equal(raised[RULE_RECONNAISSANCE], 1); // once in the window
}

static void
kinds_that_are_apart_are_no_reconnaissance(void **state)
{
    static const char *const kinds[][2] = {{"/bin/uname", "uname"},
                                           {"/bin/cat", "cat|/etc/passwd"},
                                           {"/bin/ps", "ps"},
                                           {"/sbin/ip", "ip|r"},
                                           {"/usr/bin/sudo", "sudo|-l"},
                                           {"/bin/cat", "cat|/proc/1/cgroup"}};
    (void)state;
    for (size_t i = 0; i < 60; i++) {
        run(kinds[i % 6][0], kinds[i % 6][1]);
        now_ns += 16 * S;
    }
    assert_int_equal(raised[RULE_RECONNAISSANCE], 0);
}

static void
kinds_of_two_jobs_are_a_reconnaissance_of_the_sandbox(void **state)
{
    struct box_job jobs[2] = {{.number = 1}, {.number = 2}};
    (void)state;
    for (int i = 0; i < 2; i++)
        box_job_begin(&box, &jobs[i]);
    enter(&jobs[0]);
    run("/bin/uname", "uname");
    run("/bin/cat", "cat|/etc/passwd");
    run("/bin/ps", "ps");
    enter(&jobs[1]);
    run("/sbin/ip", "ip|r");
    assert_int_equal(raised[RULE_RECONNAISSANCE], 0);
    run("/bin/cat", "cat|/proc/1/environ");
    assert_int_equal(raised[RULE_RECONNAISSANCE], 1);
    for (int i = 0; i < 2; i++)
        box_job_end(&jobs[i]);
    enter(NULL);
}

// The process opens a path; the findings of it.
static unsigned
opens(uint32_t pid, const char *path, uint32_t op)
{
    struct watch_open o = {.op = op, .resolved_n = (uint32_t)strlen(path)};
    struct event e = {
        .time_ns = now_ns, .kind = EVENT_OPEN, .size = sizeof o, .pid = pid, .comm = "ps"};
    const unsigned before = raised[RULE_SENSITIVE_PATH];
    o.rule = (uint32_t)anomaly_sensitive_find("/etc/shadow");
    memcpy(o.resolved, path, strlen(path));
    memcpy(o.path, path, strlen(path));
    o.path_n = o.resolved_n;
    give(&e, &o, BOX_EXE_KNOWN);
    now_ns += 61 * S;
    return raised[RULE_SENSITIVE_PATH] - before;
}

static void
ps_may_open_an_environment_and_nothing_else(void **state)
{
    static const char *const work[] = {"ps",
                                       "ps|aux",
                                       "ps|-ef",
                                       "ps|-e",
                                       "ps|axo|pid,etime",
                                       "ps|-o|pid,etime,comm",
                                       "ps|-C|node",
                                       "ps|--sort=etime|ax",
                                       "ps|-u|me|-p|1"};
    static const char *const attacks[] = {"ps|e",
                                          "ps|auxe",
                                          "ps|auxeww",
                                          "ps|-ef|e",
                                          "ps|-C|x|e",
                                          "ps|-oo|e",
                                          "ps|-opid|e",
                                          "ps|-o|environ",
                                          "ps|-oenviron",
                                          "ps|axo|pid,environ",
                                          "ps|--format=environ",
                                          "ps|--format|environ"};
    (void)state;
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    for (size_t i = 0; i < sizeof work / sizeof work[0]; i++) {
        run_as(PS, UINT32_MAX, "/usr/bin/ps", work[i]);
        assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 0);
    }
    static const char *const others[] = {
        "/proc/1/mem",       "/proc/1/task/1/environ", "/etc/shadow",     "/proc//environ",
        "/proc/1/environ/x", "/x/proc/1/environ",      "/proc/1x/environ"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(opens(PS, others[i], WATCH_FILE_OPEN), 1);
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_RENAME), 1);
    assert_int_equal(opens(PS + 1, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
        run_as(PS, UINT32_MAX, "/usr/bin/ps", attacks[i]);
        assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    }
}

static void
only_the_hosts_ps_is_excused_and_until_its_next_exec(void **state)
{
    char many[WATCH_ARGV + 8];
    (void)state;
    run_as(PS, 1000, "/usr/bin/ps", "ps|aux");
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    run_as(PS, 0, "/tmp/usr/bin/ps", "ps|aux");
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    run_as(PS, 0, "/bin/ps", "ps|aux");
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 0);
    run_as(PS, 0, "/bin/cat", "ps|aux");
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
    memset(many, 'a', sizeof many);
    memcpy(many, "ps|", 3);
    many[sizeof many - 1] = '\0'; // the last words are not known
    run_as(PS, 0, "/bin/ps", many);
    assert_int_equal(opens(PS, "/proc/1/environ", WATCH_FILE_OPEN), 1);
}

static void
an_own_environment_reveals_nothing(void **state)
{
    struct watch_open o = {.op = WATCH_FILE_OPEN,
                           .path_n = 18,
                           .path = "/proc/self/environ",
                           .resolved_n = 16,
                           .resolved = "/proc/20/environ"};
    (void)state;
    o.rule = (uint32_t)anomaly_sensitive_find("/proc/self/environ");
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 0);
    memcpy(o.resolved, "/etc/shadow/////", o.resolved_n); // the text leads somewhere else
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 1);
    memcpy(o.resolved, "/proc/21/environ", o.resolved_n);
    memcpy(o.path, "/proc/sel4/environ", o.path_n);
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 2);
}

// An open of the sandbox's one job. made: it created the file.
static void
opens_file(const char *path, uint64_t file, uint32_t made, const char *rule, uint32_t flags)
{
    struct watch_open o = {
        .op = WATCH_FILE_OPEN, .file = file, .made = made, .flags = flags, .result = 3};
    o.rule = (uint32_t)anomaly_sensitive_find(rule);
    o.path_n = o.resolved_n = (uint32_t)strlen(path);
    memcpy(o.path, path, o.path_n);
    memcpy(o.resolved, path, o.resolved_n);
    event(EVENT_OPEN, &o, sizeof o);
}

static void
a_credential_that_the_job_made_is_its_own_under_its_name(void **state)
{
    struct box_job jobs[2] = {{.number = 1}, {.number = 2}};
    (void)state;
    for (int i = 0; i < 2; i++)
        box_job_begin(&box, &jobs[i]);
    enter(&jobs[0]);
    opens_file("/home/a/.netrc", 6, 1, ".netrc", O_WRONLY);
    opens_file("/home/a/.env", 7, 1, ".env", O_WRONLY);
    opens_file("/home/a/.env", 7, 0, ".env", O_RDONLY);
    opens_file("/home/a/.ssh/id_rsa.pub", 9, 0, ".ssh", O_RDONLY);
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 0);
    opens_file("/home/a/.env", 8, 0, ".env", O_RDONLY); // another file has this name
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 1);
    opens_file("/home/b/.env", 7, 0, ".env", O_RDONLY); // the file has another name
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 2);
    opens_file("/home/a/.ssh/authorized_keys", 10, 1, ".ssh", O_WRONLY);
    assert_int_equal(raised[RULE_STARTUP_FILE], 1);
    assert_int_equal(raised[RULE_STARTUP_FILES], 0);
    opens_file("/etc/cron.d/x", 11, 1, "/etc/cron.d", O_WRONLY);
    assert_int_equal(raised[RULE_STARTUP_FILE], 2);
    assert_int_equal(raised[RULE_STARTUP_FILES], 1);
    assert_string_equal(
        said,
        "2 different kinds of files that run programs later, or allow logins, were used within 300 s: .ssh, /etc/cron.d");
    opens_file("/etc/cron.d/y", 12, 0, "/etc/cron.d", O_RDONLY);
    assert_int_equal(raised[RULE_STARTUP_FILE], 2);
    opens_file("/home/a/.ssh/id_rsa.pub", 9, 0, ".ssh", O_RDWR);
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 3);
    enter(&jobs[1]);
    opens_file("/home/a/.netrc", 6, 0, ".netrc", O_RDONLY); // another job made it
    assert_int_equal(raised[RULE_CREDENTIAL_USE], 4);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 0);
    enter(NULL);
    for (int i = 0; i < 2; i++)
        box_job_end(&jobs[i]);
}

static void
a_call_of_another_abi_by_a_program_of_that_abi_is_none(void **state)
{
    struct watch_syscall call = {.number = 45, .result = -38, .arch = 0x40000003, .own = 1};
    (void)state;
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 0);
    call.own = 0;
    event(EVENT_DANGEROUS, &call, sizeof call);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 1);
}

static void
a_look_at_what_the_broker_covers_is_none(void **state)
{
    struct watch_open o = {.op = WATCH_FILE_LOOK,
                           .path_n = 14,
                           .path = "/proc/kallsyms",
                           .resolved_n = 14,
                           .resolved = "/proc/kallsyms"};
    (void)state;
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SENSITIVE_LOOK], 0);
    o.op = WATCH_FILE_OPEN;
    o.rule = (uint32_t)anomaly_sensitive_find("/proc/kallsyms");
    event(EVENT_OPEN, &o, sizeof o);
    assert_int_equal(raised[RULE_SYSTEM_FILE], 1);
    assert_int_equal(raised[RULE_SENSITIVE_PATH], 0);
}

// A process opens a path for reading; whether it is an alert.
static unsigned
reads(uint32_t pid, const char *pattern, const char *path, int result, uint32_t flags)
{
    struct watch_open o = {.op = WATCH_FILE_OPEN, .result = result, .flags = flags};
    struct event e = {.time_ns = now_ns, .kind = EVENT_OPEN, .size = sizeof o, .pid = pid};
    const unsigned before = raised[RULE_SENSITIVE_PATH];
    o.rule = (uint32_t)anomaly_sensitive_find(pattern);
    o.path_n = o.resolved_n = (uint32_t)strlen(path);
    memcpy(o.path, path, o.path_n);
    memcpy(o.resolved, path, o.resolved_n);
    give(&e, &o, BOX_EXE_KNOWN);
    now_ns += 61 * S;
    return raised[RULE_SENSITIVE_PATH] - before;
}

static void
a_tool_that_comes_across_a_file_and_is_refused_is_evidence_only(void **state)
{
    (void)state;
    static const char *const walks[] = {"grep|-r|x|/etc", "grep|-r|x|/", "grep|x|/etc/passwd"};
    for (size_t i = 0; i < sizeof walks / sizeof walks[0]; i++) {
        run_as(PS, 0, "/usr/bin/grep", walks[i]);
        assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -EACCES, O_RDONLY), 0);
    }
    assert_int_equal(raised[RULE_SYSTEM_FILE], 3);
    assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", 3, O_RDONLY), 1); // not refused
    assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -EACCES, O_RDWR), 1);
    run_as(PS, 0, "/usr/bin/grep", "grep|-r|x|/");
    assert_int_equal(reads(PS, "/proc/#/environ", "/proc/7/environ", 3, O_RDONLY), 0);
    char cut[WATCH_ARGV + 32];
    (void)snprintf(cut, sizeof cut, "grep|-r|x|/|%0*d|/proc/7/environ", WATCH_ARGV, 0);
    run_as(PS, 0, "/usr/bin/grep", cut); // what it names is not known
    assert_int_equal(reads(PS, "/proc/#/environ", "/proc/7/environ", 3, O_RDONLY), 1);
    static const char *const asks[] = {"grep|x|/etc/shadow", "grep|-ra|KEY|/proc",
                                       "grep|-r|x|/etc|/run/secrets"};
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        run_as(PS, 0, "/usr/bin/grep", asks[i]);
        assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -EACCES, O_RDONLY), 1);
    }
    run_as(PS, 1000, "/usr/bin/grep", walks[0]); // a file of the sandbox
    assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -EACCES, O_RDONLY), 1);
    run_as(PS, 0, "/usr/bin/cat", "cat|x"); // no tool of this kind
    assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -EACCES, O_RDONLY), 1);
}

static void
what_is_not_there_is_evidence_only_if_programs_look_for_it(void **state)
{
    (void)state;
    assert_int_equal(reads(1, "/run/secrets", "/run/secrets/db", -ENOENT, O_RDONLY), 0);
    assert_int_equal(reads(1, "/run/secrets", "/run/secrets/db", 3, O_RDONLY), 1);
    assert_int_equal(reads(1, "/etc/shadow", "/etc/shadow", -ENOENT, O_RDONLY), 1);
    assert_int_equal(reads(1, "/etc/sudoers", "/etc/sudoers", -EACCES, O_RDONLY), 0);
    assert_int_equal(reads(1, "/etc/sudoers", "/etc/sudoers", -EACCES, O_WRONLY), 1);
    run_as(PS, 0, "/usr/bin/su", "su|-c|id");
    assert_int_equal(reads(PS, "/etc/shadow", "/etc/shadow", -ENOENT, O_RDONLY), 0);
    assert_int_equal(raised[RULE_ACCOUNT_TOOL], 1);
    assert_int_equal(reads(PS, "/etc/sudoers", "/etc/sudoers", 3, O_RDONLY), 1);
}

static void
four_kinds_of_credentials_are_a_sweep(void **state)
{
    struct box_job jobs[2] = {{.number = 1}, {.number = 2}};
    (void)state;
    for (int i = 0; i < 2; i++)
        box_job_begin(&box, &jobs[i]);
    enter(&jobs[0]);
    for (uint64_t i = 0; i < 9; i++) {
        opens_file("/a/.env", 20 + i, 0, ".env", O_RDONLY);
        opens_file("/h/.ssh/id_rsa", 40, 0, ".ssh", O_RDONLY);
        opens_file("/h/.ssh/id_ed25519", 41, 0, "id_ed25519", O_RDONLY);
    }
    opens_file("/h/.netrc", 42, 0, ".netrc", O_RDONLY);
    assert_int_equal(raised[RULE_CREDENTIAL_SWEEP], 0);
    enter(&jobs[1]); // of another job of the sandbox
    opens_file("/h/.kube/config", 43, 0, ".kube", O_RDONLY);
    assert_int_equal(raised[RULE_CREDENTIAL_SWEEP], 1);
    assert_string_equal(said, "4 different kinds of credentials were used within 300 s: .env, "
                              ".ssh, .netrc, .kube");
    enter(NULL);
    for (int i = 0; i < 2; i++)
        box_job_end(&jobs[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(five_kinds_within_the_window_are_a_reconnaissance, set_up),
        cmocka_unit_test_setup(kinds_of_two_jobs_are_a_reconnaissance_of_the_sandbox, set_up),
        cmocka_unit_test_setup(ordinary_commands_are_no_reconnaissance, set_up),
        cmocka_unit_test_setup(kinds_that_are_apart_are_no_reconnaissance, set_up),
        cmocka_unit_test_setup(only_the_hosts_ps_is_excused_and_until_its_next_exec, set_up),
        cmocka_unit_test_setup(ps_may_open_an_environment_and_nothing_else, set_up),
        cmocka_unit_test_setup(an_own_environment_reveals_nothing, set_up),
        cmocka_unit_test_setup(a_credential_that_the_job_made_is_its_own_under_its_name, set_up),
        cmocka_unit_test_setup(a_call_of_another_abi_by_a_program_of_that_abi_is_none, set_up),
        cmocka_unit_test_setup(a_look_at_what_the_broker_covers_is_none, set_up),
        cmocka_unit_test_setup(a_tool_that_comes_across_a_file_and_is_refused_is_evidence_only,
                               set_up),
        cmocka_unit_test_setup(what_is_not_there_is_evidence_only_if_programs_look_for_it, set_up),
        cmocka_unit_test_setup(four_kinds_of_credentials_are_a_sweep, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
