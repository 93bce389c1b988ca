// SPDX-License-Identifier: Apache-2.0
// Network namespaces that are used again, with the real spawner and real sandboxes: only those that are as new. A setting of
// the namespace is the test's mark.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

#include <sys/socket.h>

enum { USUAL_TTL = 64, MARK = 77 };

static struct broker b;
static struct spawned x;
static uint32_t number;

static int
start(void **state)
{
    (void)need_root(state);
    broker_config(&b, "");
    broker_start(&b);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    broker_stop(&b);
    return 0;
}

// The TTL of the namespace; a mark other than 0 is written first.
static int
ttl(int mark)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        spawned_enter_network(&x);
        int value = -1;
        FILE *f = fopen("/proc/sys/net/ipv4/ip_default_ttl", "r+e");
        if (f != NULL && mark != 0 && (fprintf(f, "%d", mark) < 0 || fflush(f) != 0))
            _exit(0);
        _exit(f != NULL && fseek(f, 0, SEEK_SET) == 0 && fscanf(f, "%d", &value) == 1 ? value : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
make(void)
{
    spawned_create(&b, &x, ++number);
}

static void
make_marked(void)
{
    make();
    assert_int_equal(ttl(0), USUAL_TTL);
    assert_int_equal(ttl(MARK), MARK);
}

static void
destroy(bool off)
{
    struct spawn_request q = request_for(&x, SPAWN_DESTROY, off);
    struct spawn_reply r = broker_ask(&b, &q, NULL);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    spawned_close_fds(&x);
}

// The next sandbox gets another namespace.
static void
assert_not_again(void)
{
    make();
    assert_int_equal(ttl(0), USUAL_TTL);
    destroy(false);
}

static void
one_of_a_sandbox_that_could_make_sockets_is_not(void **state)
{
    (void)state;
    make_marked();
    destroy(false);
    assert_not_again();
}

static void
ask(enum spawn_op op, uint32_t arg)
{
    int fds[SPAWN_FDS_MAX];
    memset(fds, 0xff, sizeof fds); // sets each to -1
    struct spawn_request q = request_for(&x, op, arg);
    (void)broker_ask(&b, &q, fds);
    for (int i = 0; i < SPAWN_FDS_MAX; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

static void
one_that_the_spawner_changed_is_not(void **state)
{
    static const struct {
        enum spawn_op op;
        uint32_t arg;
    } rows[] = {{SPAWN_NET_OPEN, 0}, {SPAWN_NET_DIAL, 80}, {SPAWN_RESET, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_marked();
        ask(rows[i].op, rows[i].arg);
        destroy(true);
        assert_not_again();
    }
}

// A child of this test that has a socket there until it is killed.
static pid_t
hold_a_socket(void)
{
    int pair[2];
    char byte;
    assert_int_equal(pipe(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        spawned_enter_network(&x);
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd >= 0)
            (void)!write(pair[1], "x", 1);
        (void)pause();
        _exit(0);
    }
    (void)close(pair[1]);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    (void)close(pair[0]);
    return pid;
}

static void
one_in_which_a_socket_is_left_is_not(void **state)
{
    (void)state;
    make_marked();
    pid_t pid = hold_a_socket();
    destroy(true);
    assert_not_again();
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void
one_that_is_as_new_is(void **state)
{
    (void)state;
    make_marked();
    for (int i = 0; i < 3; i++) {
        destroy(true);
        make();
        assert_int_equal(ttl(0), MARK);
    }
    destroy(false);
    assert_not_again();
}

static void
no_two_sandboxes_have_the_same_one(void **state)
{
    (void)state;
    make_marked();
    destroy(true);
    make();
    const struct spawned first = x;
    make();
    assert_int_equal(ttl(0), USUAL_TTL);
    destroy(false);
    x = first;
    assert_int_equal(ttl(0), MARK);
    destroy(false);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_a_sandbox_that_could_make_sockets_is_not),
        cmocka_unit_test(one_that_the_spawner_changed_is_not),
        cmocka_unit_test(one_in_which_a_socket_is_left_is_not),
        cmocka_unit_test(no_two_sandboxes_have_the_same_one),
        cmocka_unit_test(one_that_is_as_new_is),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
