// SPDX-License-Identifier: Apache-2.0
// Agent programs in real sandboxes: what they get, what ends them, and what a job of the same uid can do to them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/sandbox/agent.h"
#include "tests/harness/core.h"

// What an agent did.
static struct seen {
    unsigned started, packets, drained, ended;
    char last[AGENT_PACKET_MAX + 1];
    size_t last_n;
    bool refuse; // the next packet
    struct err why;
} seen;

static void
on_started(void *cookie)
{
    ((struct seen *)cookie)->started++;
}

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct seen *s = cookie;
    (void)fd;
    s->packets++;
    memcpy(s->last, bytes, n);
    s->last[n] = '\0';
    s->last_n = n;
    return s->refuse ? err_set(e, ERR_INTERNAL, "not this one") : 0;
}

static void
on_drained(void *cookie)
{
    ((struct seen *)cookie)->drained++;
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct seen *s = cookie;
    s->ended++;
    s->why = *why;
}

static const struct agent_events events = {on_started, on_packet, on_drained, on_ended};

static struct agent *
start_with(const char *script, int program_fd, int script_fd, struct err *e)
{
    const char *const args[] = {"sh", "-c", script};
    static const char *const env[] = {"PATH=/usr/bin:/bin", "A=1"};
    const struct agent_spec spec = {.args = args,
                                    .args_n = 3,
                                    .env = env,
                                    .env_n = 2,
                                    .workdir = "/",
                                    .program_fd = program_fd,
                                    .script_fd = script_fd};
    struct agent *a = NULL;
    seen = (struct seen){0};
    return agent_start(box, &spec, &events, &seen, &a, e) == 0 ? a : NULL;
}

static struct agent *
start_agent(const char *script)
{
    struct err e;
    struct agent *a = start_with(script, -1, -1, &e);
    if (a == NULL)
        fail_msg("%s", e.text);
    return a;
}

static void
assert_ended(int code, const char *words)
{
    until(seen.ended > 0);
    assert_int_equal(seen.ended, 1);
    if (seen.why.code != code || strstr(seen.why.text, words) == NULL)
        fail_msg("it ended with %d, %s", seen.why.code, seen.why.text);
    assert_int_equal(box->agents_n, 0);
}

static void
a_command_that_does_not_exist_is_reported(void **state)
{
    (void)state;
    const char *const args[] = {"no-such-program"};
    const struct agent_spec spec = {
        .args = args, .args_n = 1, .workdir = "/", .program_fd = -1, .script_fd = -1};
    struct agent *a = NULL;
    struct err e;
    seen = (struct seen){0};
    assert_int_equal(agent_start(box, &spec, &events, &seen, &a, &e), 0);
    assert_ended(ERR_UNAVAILABLE, "no-such-program: No such file");
    assert_int_equal(seen.started, 0);
}

static void
the_seventeenth_agent_of_a_sandbox_is_refused(void **state)
{
    (void)state;
    struct err e;
    struct agent *all[AGENTS_OF_SANDBOX];
    for (unsigned i = 0; i < AGENTS_OF_SANDBOX; i++)
        all[i] = start_agent("cat <&3 >&3");
    assert_null(start_with("true", -1, -1, &e));
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "AGENTS_FULL");
    for (unsigned i = 0; i < AGENTS_OF_SANDBOX; i++)
        agent_close(all[i]);
    until(box->agents_n == 0);
}

static void
packets_go_both_ways(void **state)
{
    (void)state;
    struct err e;
    struct agent *a = start_agent("exec cat <&3 >&3");
    assert_int_equal(agent_send(a, "hello", 5, -1, &e), 0);
    until(seen.packets == 1);
    assert_string_equal(seen.last, "hello");
    until(seen.started == 1);
    assert_int_equal(agent_send(a, "again", 5, -1, &e), 0);
    until(seen.packets == 2);
    assert_string_equal(seen.last, "again");
    agent_close(a);
    until(box->agents_n == 0);
    assert_int_equal(seen.ended, 0); // it was closed by us
}

// The guest's report of the end may overtake the packets on the program's own socket.
static void
the_last_packets_of_an_agent_arrive_before_its_end(void **state)
{
    (void)state;
    for (int turn = 0; turn < 50; turn++) {
        (void)start_agent("for i in 1 2 3 4 5 6 7 8; do echo $i >&3; done; echo last >&3");
        until(seen.ended > 0);
        assert_int_equal(seen.packets, 9);
        assert_string_equal(seen.last, "last\n");
    }
}

// Descriptors 0 to 2 are /dev/null, 3 is the socket, 4 the script; nothing of the guest is left.
static void
an_agent_has_its_uid_its_filter_and_no_other_descriptors(void **state)
{
    (void)state;
    struct err e;
    char name[] = "/tmp/stockade-agent-XXXXXX";
    int auto_close file = mkstemp(name);
    assert_true(file >= 0);
    (void)unlink(name);
    assert_int_equal(fchmod(file, 0644), 0);
    static const char script[] =
        "{ id -u; grep Cap[PE] /proc/self/status | cut -f2; grep -c '^Seccomp:.*2$' /proc/self/status;"
        " pwd; for i in 3 4 5 6 7 8 9; do [ -h /proc/$$/fd/$i ] && echo $i; done;"
        " readlink /proc/$$/fd/[012]; } </dev/null >/tmp/out 2>/dev/null; cat /tmp/out >&3";
    assert_int_equal(write(file, script, sizeof script - 1), sizeof script - 1);
    const char *const args[] = {"sh", "/dev/fd/4"};
    static const char *const env[] = {"PATH=/usr/bin:/bin"};
    const struct agent_spec spec = {.args = args,
                                    .args_n = 2,
                                    .env = env,
                                    .env_n = 1,
                                    .workdir = "/",
                                    .program_fd = -1,
                                    .script_fd = file};
    struct agent *a = NULL;
    seen = (struct seen){0};
    assert_int_equal(agent_start(box, &spec, &events, &seen, &a, &e), 0);
    until(seen.packets == 1 || seen.ended > 0);
    assert_string_equal(seen.last, "1000\n0000000000000000\n0000000000000000\n1\n/\n3\n4\n"
                                   "/dev/null\n/tmp/out\n/dev/null\n");
    if (seen.ended == 0)
        agent_close(a);
    until(box->agents_n == 0);
}

// A copy of the shell with this mode, for agent_spec.program_fd.
static int
make_program(mode_t mode)
{
    char name[] = "/tmp/stockade-agent-XXXXXX";
    char bytes[65536];
    ssize_t n = 0;
    int auto_close shell = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    int auto_close copy = mkstemp(name);
    assert_true(copy >= 0 && shell >= 0);
    while ((n = read(shell, bytes, sizeof bytes)) > 0)
        assert_int_equal(write(copy, bytes, (size_t)n), n);
    assert_int_equal(fchmod(copy, mode), 0);
    int fd = open(name, O_PATH | O_CLOEXEC);
    (void)unlink(name);
    assert_true(fd >= 0);
    return fd;
}

// Lets a job open these files of /proc/PID of a running agent of this mode.
static void
look_at_program(mode_t mode, const char *files, const char *expected)
{
    struct err e;
    char script[300];
    int auto_close program = make_program(mode);
    struct agent *a = start_with("echo $$ >&3; read x <&3; kill -9 $$", program, -1, &e);
    if (a == NULL)
        fail_msg("%s", e.text);
    until(seen.packets == 1);
    (void)snprintf(script, sizeof script,
                   "p=%d; kill -0 $p && echo there; for f in %s; do"
                   " { true < /proc/$p/$f; } 2>/dev/null && echo $f; done; true",
                   (int)strtol(seen.last, NULL, 10), files);
    assert_sh(script, expected);
    assert_int_equal(agent_send(a, "\n", 1, -1, &e), 0);
    assert_ended(ERR_UNAVAILABLE, "signal 9");
}

// A program that the jobs' uid cannot read is out of reach of jobs, though they have the same uid.
static void
no_job_can_look_into_a_program_that_it_cannot_read(void **state)
{
    (void)state;
    look_at_program(0711, "environ maps fd/3 cwd/. mem", "there\n");
    // not mem: where Yama restricts ptrace, nobody else's can be opened
    look_at_program(0755, "environ maps fd/3 cwd/.", "there\nenviron\nmaps\ncwd/.\n");
}

static void
a_job_that_kills_an_agent_is_survived(void **state)
{
    (void)state;
    struct err e;
    (void)start_agent("exec cat <&3 >&3");
    until(seen.started == 1);
    assert_sh("until pkill -9 -x cat; do sleep 0.01; done", "");
    assert_ended(ERR_UNAVAILABLE, "killed by signal 9");
    struct agent *a = start_agent("exec cat <&3 >&3");
    assert_int_equal(agent_send(a, "x", 1, -1, &e), 0);
    until(seen.packets == 1);
    agent_close(a);
    until(box->agents_n == 0);
}

static void
a_stopped_agent_can_be_closed(void **state)
{
    (void)state;
    struct agent *a = start_agent("exec cat <&3 >&3");
    until(seen.started == 1);
    assert_sh("until pkill -STOP -x cat; do sleep 0.01; done", ""); // it may not run cat yet
    agent_close(a);
    until(box->agents_n == 0);
    assert_sh("while pgrep -x cat >/dev/null; do sleep 0.01; done", "");
}

static void
an_agent_that_closes_its_socket_is_killed_with_its_children(void **state)
{
    (void)state;
    (void)start_agent("sleep 100 3>&- & exec 3>&-; sleep 100");
    assert_ended(ERR_UNAVAILABLE, "killed by signal 9");
    assert_sh("while pgrep -fx 'sleep 100' >/dev/null; do sleep 0.01; done", "");
}

static void
an_agent_that_breaks_the_protocol_is_killed(void **state)
{
    (void)state;
    (void)start_agent("echo x >&3; sleep 100");
    seen.refuse = true;
    assert_ended(ERR_INTERNAL, "not this one");
    (void)start_agent("dd if=/dev/zero bs=65537 count=1 >&3 2>/dev/null; sleep 100");
    assert_ended(ERR_INTERNAL, "more than 65536 bytes");
}

static void
an_agent_that_does_not_read_is_bounded(void **state)
{
    (void)state;
    struct err e = {0};
    struct agent *a = start_agent("read x <&3; kill -STOP $$; exec cat <&3 >/dev/null");
    static char big[AGENT_PACKET_MAX];
    size_t sent = 0;
    assert_int_equal(agent_send(a, "\n", 1, -1, &e), 0);
    while (sent < 64 << 20 && agent_send(a, big, sizeof big, -1, &e) == 0)
        sent += sizeof big;
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_true(sent <= 2 * AGENT_QUEUE_BYTES);
    until(seen.started == 1);
    assert_int_equal(seen.drained, 0);
    for (unsigned i = 0; i < 200 && seen.drained == 0;
         i++) { // until it has stopped itself and continues
        (void)agent_signal(a, SIGCONT, &e);
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    until(seen.drained > 0);
    agent_close(a);
    until(box->agents_n == 0);
}

static void
a_held_agent_waits(void **state)
{
    (void)state;
    struct agent *a = start_agent("while echo x >&3; do echo >> /tmp/n; done");
    until(seen.packets > 10);
    agent_hold(a, true);
    unsigned before = seen.packets;
    assert_sh("sleep 0.2; wc -l < /tmp/n > /tmp/a; sleep 0.2; wc -l < /tmp/n | cmp - /tmp/a", "");
    assert_int_equal(seen.packets, before);
    agent_hold(a, false);
    until(seen.packets > before);
    agent_close(a);
    until(box->agents_n == 0);
}

static void
memory_of_an_agent_is_the_sandboxs(void **state)
{
    (void)state;
    (void)start_agent("exec tail /dev/zero");
    assert_ended(ERR_RESOURCE_EXHAUSTED, "ran out of memory");
}

static void
on_swapped(void *cookie, struct sandbox *s, const struct err *e)
{
    (void)cookie;
    (void)s;
    if (e != NULL)
        fail_msg("%s", e->text);
}

static void
sealing_the_files_ends_agents(void **state)
{
    (void)state;
    (void)start_agent("exec cat <&3 >&3");
    until(seen.started == 1);
    struct err e;
    struct sandbox_swap swap = {.waiter = {.done = on_swapped}};
    assert_int_equal(sandbox_seal(box, &swap, &e), 0);
    assert_ended(ERR_ABORTED, "another layer");
    until(box->state == SANDBOX_RUNNING);
    assert_int_equal(swap.layer, 1);
}

static void
an_agent_ends_with_its_sandbox(void **state)
{
    (void)start_agent("exec cat <&3 >&3");
    until(seen.started == 1);
    (void)remove_box(state);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.why.code, ERR_ABORTED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_command_that_does_not_exist_is_reported, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(the_seventeenth_agent_of_a_sandbox_is_refused, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(packets_go_both_ways, make_box, remove_box),
        cmocka_unit_test_setup_teardown(the_last_packets_of_an_agent_arrive_before_its_end,
                                        make_box, remove_box),
        cmocka_unit_test_setup_teardown(an_agent_has_its_uid_its_filter_and_no_other_descriptors,
                                        make_box, remove_box),
        cmocka_unit_test_setup_teardown(no_job_can_look_into_a_program_that_it_cannot_read,
                                        make_box, remove_box),
        cmocka_unit_test_setup_teardown(a_job_that_kills_an_agent_is_survived, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(a_stopped_agent_can_be_closed, make_box, remove_box),
        cmocka_unit_test_setup_teardown(an_agent_that_closes_its_socket_is_killed_with_its_children,
                                        make_box, remove_box),
        cmocka_unit_test_setup_teardown(an_agent_that_breaks_the_protocol_is_killed, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(an_agent_that_does_not_read_is_bounded, make_box,
                                        remove_box),
        cmocka_unit_test_setup_teardown(a_held_agent_waits, make_box, remove_box),
        cmocka_unit_test_setup_teardown(memory_of_an_agent_is_the_sandboxs, make_box, remove_box),
        cmocka_unit_test_setup_teardown(sealing_the_files_ends_agents, make_box, remove_box),
        cmocka_unit_test_setup_teardown(an_agent_ends_with_its_sandbox, make_box, remove_box),
    };
    return cmocka_run_group_tests(tests, start_core, stop_core);
}
