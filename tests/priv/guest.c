// SPDX-License-Identifier: Apache-2.0
// The real guest in a real tree, with requests over its socket as from the broker. Needs root.
//
// The test program moves into the spawner's tiny root, like the spawner. Its parent process waits and then removes
// the folders, which cannot be reached from there.
#include "tests/harness/guest_box.h"

static void
a_missing_command_exits_with_127(void **state)
{
    struct start s = {.args = {(char[]){"no-such-command"}}, .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 127, "execute no-such-command: No such file");
}

// A name that is truncated within a character must not make the broker refuse the message.
static void
an_odd_name_is_reported_in_plain_characters(void **state)
{
    char name[402] = "a";
    for (size_t i = 1; i + 2 < sizeof name; i += 2)
        (void)snprintf(name + i, sizeof name - i, "\xc3\xa9");
    struct start s = {.args = {name}, .pipes = -1};
    try_start(*state, &s);
    Stockade__Guest__Event *event = next_event(((struct box *)*state)->socket, NULL);
    assert_non_null(event);
    assert_int_equal(event->event_case, STOCKADE__GUEST__EVENT__EVENT_FAILED);
    for (const char *p = event->failed->text; *p != '\0'; p++)
        assert_true(*p >= ' ' && *p < 0x7f);
    stockade__guest__event__free_unpacked(event, NULL);
}

static void
a_file_that_is_not_executable_exits_126(void **state)
{
    struct start s = {.args = {(char[]){"/etc/passwd"}}, .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 126, "execute /etc/passwd: Permission denied");
}

static void
a_missing_working_folder_is_reported(void **state)
{
    struct start s = {.args = {(char[]){"true"}}, .workdir = "/nowhere", .pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 126, "enter /nowhere: No such file");
}

static void
a_start_without_its_three_pipes_is_refused(void **state)
{
    struct start s = {.args = {(char[]){"true"}}, .pipes = 2};
    try_start(*state, &s);
    expect_failed(*state, 0, "2 descriptors");
}

static void
a_start_without_a_command_is_refused(void **state)
{
    struct start s = {.pipes = -1};
    try_start(*state, &s);
    expect_failed(*state, 0, "args");
}

static void
a_failed_start_leaves_no_cgroup(void **state)
{
    struct box *b = *state;
    struct start s = {.args = {(char[]){"no-such-command"}}, .pipes = -1};
    try_start(b, &s);
    expect_failed(b, 127, "");
    char path[96];
    (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, b->jobs);
    struct stat st;
    assert_int_equal(stat(path, &st), -1);
}

static void
bytes_that_are_not_a_request_end_the_sandbox(void **state)
{
    (void)state;
    struct box b;
    box_open(&b);
    send_packet(b.socket, "\xff\xff\xff", 3, NULL, 0);
    assert_null(next_event(b.socket, NULL));
    box_close(&b);
}

static void
exit_codes_and_signals_arrive_as_wait_status(void **state)
{
    (void)run_script(*state, "exit 7", 7 << 8);
    (void)run_script(*state, "kill -TERM $$", SIGTERM);
    assert_string_equal(run_script(*state, "echo out; echo err >&2; cat </dev/null", 0),
                        "out\nerr\n");
    assert_string_equal(run_script(*state, "echo again > /dev/stderr", 0), "again\n");
}

static void
a_job_is_the_agent_without_rights(void **state)
{
    const char *out = run_script(
        *state,
        "id; grep -E 'Uid|Groups|Cap|NoNew|Seccomp|Sig' /proc/self/status; echo cwd=$PWD; for i in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && echo open $i; done; true",
        0);
    expect_in(out, "uid=1000(agent) gid=1000(agent) groups=1000(agent)\n");
    expect_in(out, "Uid:\t1000\t1000\t1000\t1000\n");
    expect_in(out, "Groups:\t \n");
    expect_in(out,
              "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
              "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n");
    expect_in(out, "Seccomp:\t2\nSeccomp_filters:\t2\n");
    expect_in(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    expect_in(out, "cwd=/home/agent\nopen 0\nopen 1\nopen 2\n");
    assert_null(strstr(out, "open 3"));
}

static void
a_job_leads_a_session_and_has_its_limits(void **state)
{
    const char *out =
        run_script(*state,
                   "ps -o sid= -p $$ | tr -d ' '; echo pid=$$; ulimit -Hn; ulimit -Hf;"
                   " ulimit -Ht; ulimit -Hl; ulimit -Hr; umask; ulimit -v",
                   0);
    int sid = 0;
    int pid = -1;
    (void)sscanf(out, "%d\npid=%d", &sid, &pid); // NOLINT(cert-err34-c)
    assert_int_equal(sid, pid);
    expect_in(out, "\n256\n16384\n60\n8192\n0\n0022\nunlimited\n");
}

static void
a_job_sees_only_processes_of_jobs(void **state)
{
    const char *out =
        run_script(*state,
                   "ls /proc | grep '^[0-9]' | head -1; cat /proc/1/status; ls /proc/1/fd;"
                   " kill -KILL 1; kill -0 1; echo end",
                   0);
    assert_null(strstr(out, "stockade-guest"));
    expect_in(out, "/proc/1/status: No such file");
    expect_in(out, "Operation not permitted");
}

// The inode of job-1; 0: it does not exist. Waits until it exists, or is removed.
static ino_t
first_cgroup(const struct box *b, bool there)
{
    char path[96];
    struct stat st = {0};
    (void)snprintf(path, sizeof path, "%s/job-1", b->cgroup);
    wait_until(there ? "the first job's cgroup is made" : "it is removed",
               (stat(path, &st) == 0) == there);
    return there ? st.st_ino : 0;
}

static void
the_first_jobs_cgroup_is_there_before_the_job(void **state)
{
    struct box *b = *state;
    char path[96];
    struct stat st = {0};
    (void)snprintf(path, sizeof path, "%s/job-1", b->cgroup);
    ino_t ahead = first_cgroup(b, true);
    assert_int_not_equal(ahead, 0);
    assert_int_equal(b->jobs, 0);
    expect_in(run_script(b, "cat /proc/self/cgroup", 0), "/job-1\n");
    if (stat(path, &st) == 0) // exists until the job is removed
        assert_int_equal(st.st_ino, ahead);
    expect_in(run_script(b, "cat /proc/self/cgroup", 0), "/job-2\n");
}

static void
an_idle_guest_removes_the_first_jobs_cgroup_and_makes_it_again(void **state)
{
    struct box *b = *state;
    assert_int_not_equal(first_cgroup(b, true), 0);
    for (int i = 0; i < 2; i++) { // the second finds nothing to remove
        send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_REMOVE, 1, 0, false);
        assert_int_equal(first_cgroup(b, false), 0);
    }
    expect_in(run_script(b, "cat /proc/self/cgroup", 0), "/job-1\n");
    expect_in(run_script(b, "cat /proc/self/cgroup", 0), "/job-2\n");
}

static void
a_start_that_meets_the_removal_of_its_cgroup_has_one(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"sh"}, (char[]){"-c"},
                               (char[]){"read line; cat /proc/self/cgroup; exit 3"}},
                      .pipes = -1};
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_REMOVE, 1, 0, false);
    uint32_t job = start_job(b, &s, &input, &output);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_REMOVE, job, 0, false); // of a running job
    expect_started(b, job, NULL);
    assert_int_equal(write(input, "\n", 1), 1);
    expect_in(read_all(output), "/job-1\n");
    assert_int_equal(expect_exited(b, job), 3 << 8);
}

static void
a_job_has_a_cgroup_and_a_keyring_of_its_own(void **state)
{
    struct box *b = *state;
    const char *out = run_script(b, "cat /proc/self/cgroup; echo; wc -c < /proc/keys", 0);
    char name[32];
    (void)snprintf(name, sizeof name, "/job-%u\n", b->jobs);
    expect_in(out, name);
    expect_in(out, "\n0\n");
}

static void
processes_that_a_job_leaves_are_killed(void **state)
{
    struct box *b = *state;
    (void)run_script(
        b, "setsid sh -c 'sleep 1000' >/dev/null 2>&1 </dev/null & (sleep 1000 &) ; exit 3",
        3 << 8);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/job-%u", b->cgroup, b->jobs);
    struct stat st;
    wait_until("the job's cgroup is removed", stat(path, &st) < 0);
    const char *out = run_script(b, "ls /proc | grep -c '^[0-9]'", 0);
    assert_string_equal(out, "3\n"); // sh, ls and grep
}

// Whether the guest has no child left.
static bool
has_no_child(const struct box *b)
{
    char path[96];
    char byte = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", b->pid, b->pid);
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &byte, 1) == 0;
}

static void
four_hundred_orphans_are_reaped(void **state)
{
    struct box *b = *state;
    (void)run_script(
        b, "i=0; while [ $i -lt 400 ]; do (sh -c 'exit 1' &) ; i=$((i+1)); done; exit 0", 0);
    (void)run_script(b, "sleep 0.1", 0);
    wait_until("all orphans are reaped", has_no_child(b));
}

static void
signals_reach_the_main_process_or_its_group(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {
        .args = {(char[]){"sh"}, (char[]){"-c"},
                 (char[]){"trap 'echo hup' HUP; sleep 100 & echo ready; wait; wait; echo over"}},
        .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    char line[16] = "";
    assert_true(read(output, line, sizeof line) > 0);
    assert_string_equal(line, "ready\n");
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, 200, false); // none: ignored
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job + 9, SIGHUP, false); // no such job
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGHUP, false);
    memset(line, 0, sizeof line);
    assert_true(read(output, line, sizeof line) > 0);
    assert_string_equal(line, "hup\n");
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGTERM, true);
    assert_int_equal(expect_exited(b, job), SIGTERM);
}

static void
kill_ends_a_job_that_ignores_signals(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {
        .args = {(char[]){"sh"}, (char[]){"-c"},
                 (char[]){"trap '' TERM HUP INT; echo ready; while :; do sleep 1; done"}},
        .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    char line[16] = "";
    assert_true(read(output, line, sizeof line) > 0);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL, job, SIGTERM, false);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_KILL, job, 0, false);
    assert_int_equal(expect_exited(b, job), SIGKILL);
}

static void
a_terminal_is_the_jobs_own(void **state)
{
    struct box *b = *state;
    int auto_close input = -1;
    int auto_close output = -1;
    int auto_close master = -1;
    struct start s = {
        .args = {(char[]){"bash"}, (char[]){"-c"},
                 (char[]){"tty; stty size; ls -l $(tty) | cut -c1-22; test -r /dev/tty && "
                          "echo mine > /dev/tty; read l; echo got $l; exit 5"}},
        .terminal = true};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, &master);
    assert_true(master >= 0);
    assert_int_equal(write(master, "line\n", 5), 5);
    const char *out = read_all(master);
    expect_in(out, "/dev/pts/0\r\n"); // the echo of "line" may come before
    expect_in(out, "33 99\r\n");
    expect_in(out, "crw--w---- 1 agent tty\r\n");
    expect_in(out, "mine\r\n");
    expect_in(out, "got line\r\n");
    assert_int_equal(expect_exited(b, job), 5 << 8);
}

static void
jobs_beyond_the_table_are_refused(void **state)
{
    struct box *b = *state;
    for (int i = 0; i < 257; i++) {
        int auto_close input = -1;
        int auto_close output = -1;
        struct start s = {.args = {(char[]){"true"}}, .pipes = -1};
        uint32_t job = start_job(b, &s, &input, &output);
        if (i == 256) {
            expect_failed(b, 0, "256 jobs exist");
            return;
        }
        expect_started(b, job, NULL);
        assert_int_equal(expect_exited(b, job), 0);
    }
}

static void
the_end_of_the_socket_ends_every_job(void **state)
{
    (void)state;
    struct box b;
    box_open(&b);
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"sleep"}, (char[]){"1000"}}, .pipes = -1};
    uint32_t job = start_job(&b, &s, &input, &output);
    expect_started(&b, job, NULL);
    box_close(&b); // removes the job's cgroup, which must be empty
}

static long
anonymous_kib(pid_t pid)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    char line[256];
    long kib = -1;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Anonymous: %ld", &kib) == 1) // NOLINT(cert-err34-c)
            break;
    (void)fclose(f);
    return kib;
}

static void
an_idle_guest_is_as_small_after_a_large_request_as_before(void **state)
{
    struct box *b = *state;
    enum { STACK_KIB = 8 }; // the stack was not used so deeply before
    long before = anonymous_kib(b->pid);
    static char large[90001];
    memset(large, 'x', sizeof large - 1);
    int auto_close input = -1;
    int auto_close output = -1;
    struct start s = {.args = {(char[]){"true"}, large}, .pipes = -1};
    uint32_t job = start_job(b, &s, &input, &output);
    expect_started(b, job, NULL);
    assert_int_equal(expect_exited(b, job), 0);
    long after = anonymous_kib(b->pid);
    assert_true(before > 0 && before < 100);
    assert_true(after < 150);
    send_simple(b, STOCKADE__GUEST__REQUEST__REQUEST_REMOVE, job, 0, false);
    long idle;
    wait_until("the guest is as small as before",
               (idle = anonymous_kib(b->pid)) <= before + STACK_KIB);
    print_message("guest's own memory: %ld KiB, after a large request %ld KiB, idle %ld KiB\n",
                  before, after, idle);
}

static int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void
times_are_printed(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    double ready[ROUNDS];
    double job_us[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        struct box b;
        box_open(&b);
        ready[i] = ready_us;
        double from = now_us();
        int auto_close input = -1;
        int auto_close output = -1;
        struct start s = {.args = {(char[]){"/usr/bin/true"}}, .pipes = -1};
        uint32_t job = start_job(&b, &s, &input, &output);
        expect_started(&b, job, NULL);
        assert_int_equal(expect_exited(&b, job), 0);
        job_us[i] = now_us() - from;
        box_close(&b);
    }
    qsort(ready, ROUNDS, sizeof ready[0], by_value);
    qsort(job_us, ROUNDS, sizeof job_us[0], by_value);
    print_message("clone3 to Ready: median %.0f us; Start to Exited of true: median %.0f us\n",
                  ready[ROUNDS / 2], job_us[ROUNDS / 2]);
    assert_true(ready[0] > 0);
}

#define WITH_BOX(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int
run_all(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BOX(a_missing_command_exits_with_127),
        WITH_BOX(an_odd_name_is_reported_in_plain_characters),
        WITH_BOX(a_file_that_is_not_executable_exits_126),
        WITH_BOX(a_missing_working_folder_is_reported),
        WITH_BOX(a_start_without_its_three_pipes_is_refused),
        WITH_BOX(a_start_without_a_command_is_refused),
        WITH_BOX(a_failed_start_leaves_no_cgroup),
        cmocka_unit_test(bytes_that_are_not_a_request_end_the_sandbox),
        WITH_BOX(jobs_beyond_the_table_are_refused),
        WITH_BOX(exit_codes_and_signals_arrive_as_wait_status),
        WITH_BOX(a_job_is_the_agent_without_rights),
        WITH_BOX(a_job_leads_a_session_and_has_its_limits),
        WITH_BOX(a_job_sees_only_processes_of_jobs),
        WITH_BOX(the_first_jobs_cgroup_is_there_before_the_job),
        WITH_BOX(an_idle_guest_removes_the_first_jobs_cgroup_and_makes_it_again),
        WITH_BOX(a_start_that_meets_the_removal_of_its_cgroup_has_one),
        WITH_BOX(a_job_has_a_cgroup_and_a_keyring_of_its_own),
        WITH_BOX(processes_that_a_job_leaves_are_killed),
        WITH_BOX(four_hundred_orphans_are_reaped),
        WITH_BOX(signals_reach_the_main_process_or_its_group),
        WITH_BOX(kill_ends_a_job_that_ignores_signals),
        WITH_BOX(a_terminal_is_the_jobs_own),
        cmocka_unit_test(the_end_of_the_socket_ends_every_job),
        WITH_BOX(an_idle_guest_is_as_small_after_a_large_request_as_before),
        cmocka_unit_test(times_are_printed),
    };
    return cmocka_run_group_tests_name("guest", tests, NULL, NULL);
}

int
main(int argc, char **argv)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%.*s/../server/stockade-guest",
                   (int)(strrchr(argv[0], '/') - argv[0]), argv[0]);
    guest_exe = open(argc > 1 ? argv[1] : path, O_RDONLY | O_CLOEXEC);
    if (guest_exe < 0)
        inside_die(path);
    return inside_main("guest", NULL, run_all);
}
