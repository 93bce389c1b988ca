// SPDX-License-Identifier: Apache-2.0
// Other properties of the relay: it starts only without privileges, restricts itself before it serves, exits on an
// invalid order, and survives everything that jobs do to its listeners.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_flow.h"

enum { PORT = 7000 };

// Starts the program as `uid`, with or without PDEATHSIG. Returns its exit status.
static int
status_as(unsigned uid, bool dies)
{
    char path[512];
    const char *build = getenv("STOCKADE_BUILD");
    (void)snprintf(path, sizeof path, "%s/server/stockade-relay", build != NULL ? build : ".");
    int exe = open(path, O_PATH | O_CLOEXEC);
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int high = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
        int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(quiet, STDERR_FILENO);
        (void)dup2(high, RELAY_SOCKET_FD);
        if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
            (dies && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0))
            _exit(98);
        char *const args[] = {path, NULL};
        char *const env[] = {NULL};
        (void)syscall(SYS_execveat, exe, "", args, env, AT_EMPTY_PATH);
        _exit(99);
    }
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(exe);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void
it_refuses_to_start_as_root_or_without_PDEATHSIG(void **state)
{
    (void)state;
    assert_int_equal(status_as(0, true), 1);
    assert_int_equal(status_as(BOX_UID, false), 1);
    // its socket is closed, so there is no first order
    assert_int_equal(status_as(BOX_UID, true), 1);
}

static unsigned long
status_field(const char *field)
{
    char path[64];
    char line[256];
    unsigned long v = ~0UL;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)box.relay);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, field, strlen(field)) == 0)
            v = strtoul(line + strlen(field), NULL, 16);
    (void)fclose(f);
    return v;
}

static void
it_serves_without_capability_with_a_filter_and_three_descriptors_of_others(void **state)
{
    (void)state;
    assert_int_equal(status_field("Seccomp:"), 2);
    assert_int_equal(status_field("NoNewPrivs:"), 1);
    assert_int_equal(status_field("CapEff:"), 0);
    assert_int_equal(status_field("CapPrm:"), 0);
    assert_true(box_relay_fds() < 32);
}

// Writes an invalid order and returns its length. So many descriptors come with it.
struct spoil {
    size_t (*write)(uint8_t *out);
    size_t fds_n;
};

static struct relay_order *
at(uint8_t *out)
{
    return (struct relay_order *)(void *)out;
}

static size_t
fill(uint8_t *out, uint32_t kind, uint32_t rules_n)
{
    size_t n = 0;
    struct relay_order *o = box_order(kind, rules_n, &n);
    o->mode = kind == RELAY_CLOSE ? 0 : NET_ALLOWLIST;
    for (uint32_t i = 0; i < rules_n; i++)
        box_name(&o->rules[i], RELAY_NAME, "a.test");
    memcpy(out, o, n);
    free(o);
    return n;
}

static size_t
a_byte_too_short(uint8_t *out)
{
    return fill(out, RELAY_POLICY, 1) - 1;
}

static size_t
of_no_kind(uint8_t *out)
{
    return fill(out, 77, 0);
}

static size_t
a_second_configuration(uint8_t *out)
{
    size_t n = fill(out, RELAY_CONFIGURE, 0);
    at(out)->mode = 0;
    return n;
}

static size_t
a_policy_of_a_slot_that_is_not_open(uint8_t *out)
{
    size_t n = fill(out, RELAY_POLICY, 1);
    at(out)->slot = BOX_SLOT + 1;
    return n;
}

static size_t
a_close_of_another_generation(uint8_t *out)
{
    size_t n = fill(out, RELAY_CLOSE, 0);
    at(out)->generation++;
    return n;
}

static size_t
a_slot_beyond_the_table(uint8_t *out)
{
    size_t n = fill(out, RELAY_CLOSE, 0);
    at(out)->slot = BPF_SLOTS;
    return n;
}

static size_t
an_open_without_listeners(uint8_t *out)
{
    size_t n = fill(out, RELAY_OPEN, 0);
    at(out)->slot = BOX_SLOT + 1;
    return n;
}

static size_t
an_open_with_a_descriptor_that_is_no_listener(uint8_t *out)
{
    size_t n = fill(out, RELAY_OPEN, 0);
    at(out)->slot = BOX_SLOT + 1;
    return n;
}

static size_t
an_open_of_a_slot_that_is_open(uint8_t *out)
{
    return fill(out, RELAY_OPEN, 0);
}

static size_t
more_descriptors_than_listeners(uint8_t *out)
{
    return fill(out, RELAY_OPEN, 0);
}

static size_t
a_mode_that_is_none(uint8_t *out)
{
    size_t n = fill(out, RELAY_POLICY, 0);
    at(out)->mode = 9;
    return n;
}

static const struct spoil spoils[] = {
    {a_byte_too_short, 0},
    {of_no_kind, 0},
    {a_second_configuration, 0},
    {a_policy_of_a_slot_that_is_not_open, 0},
    {a_close_of_another_generation, 0},
    {a_slot_beyond_the_table, 0},
    {an_open_without_listeners, 0},
    {an_open_with_a_descriptor_that_is_no_listener, 1},
    {an_open_of_a_slot_that_is_open, 1},
    {more_descriptors_than_listeners, 6},
    {a_mode_that_is_none, 0},
};

static void
an_order_that_no_correct_broker_sends_ends_it_and_every_flow(void **state)
{
    (void)state;
    static uint8_t bytes[sizeof(struct relay_order) + 2 * sizeof(struct relay_rule)];
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        struct box_policy p = box_policy(NET_ALLOWLIST);
        p.rules_n = 1;
        box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
        box_open(&p);
        int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
        int job = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
        int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        assert_true(peer >= 0);
        int fds[6] = {0, 0, 0, 0, 0, 0};
        size_t n = spoils[i].write(bytes);
        box_send(bytes, n, fds, spoils[i].fds_n);
        int status = box_wait_relay();
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        char byte = 0;
        assert_true(recv(job, &byte, 1, 0) <= 0); // no connection of the sandbox is left
        (void)close(job);
        (void)close(peer);
        (void)close(server);
        (void)close(box.socket);
        box_start_relay(BOX_DNS_PORT);
    }
}

// Datagrams and connections to the listeners directly, floods, and streams that never send a query.
static void
invalid_traffic_to_the_listeners_is_harmless(void **state)
{
    (void)state;
    struct box_policy p = box_policy(NET_ALLOWLIST);
    unsigned before = box_relay_fds();
    box_open(&p);
    box_enter(box.sandbox_ns);
    int udp = box_socket(AF_INET, SOCK_DGRAM);
    static uint8_t junk[60000];
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (uint8_t)(i * 7);
    for (uint32_t i = 0; i < 200; i++) {
        struct sockaddr_in sa =
            box_v4(i % 2 == 0 ? NET_FLOW_V4 + i : INADDR_LOOPBACK, NET_RELAY_PORT);
        (void)sendto(udp, junk, i * 300 % sizeof junk, MSG_DONTWAIT, (struct sockaddr *)&sa,
                     sizeof sa);
    }
    box_enter(box.host_ns);
    int dns = box_connect(SOCK_DGRAM, 0x08080808, NET_DNS_PORT);
    for (size_t i = 0; i < 300; i++)
        (void)send(dns, junk + i, i * 5, MSG_DONTWAIT);
    int silent[40];
    for (size_t i = 0; i < 40; i++)
        silent[i] = box_connect(SOCK_STREAM, 0x08080808, NET_DNS_PORT);
    char byte = 0;
    assert_true(recv(silent[39], &byte, 1, 0) <= 0); // more streams than a sandbox may have
    for (size_t i = 0; i < 40; i++)
        (void)close(silent[i]);
    (void)close(udp);
    (void)close(dns);
    box_close();
    assert_int_equal(box_relay_fds(), before);
}

static void
reports_without_room_are_counted_and_replies_still_come(void **state)
{
    (void)state;
    struct box_policy p = box_policy(NET_ALLOWLIST);
    box_open(&p);
    for (int i = 0; i < 2000; i++)
        box_expect_reset(box_connect(SOCK_STREAM, 0x0a000001, PORT)); // reports are not read
    size_t n = 0;
    struct relay_order *o = box_order(RELAY_PING, 0, &n);
    o->slot = 0;
    box_send(o, n, NULL, 0);
    assert_int_equal(box_await(RELAY_PONG).generation, o->generation);
    o->slot = box.slot;
    o->kind = RELAY_CLOSE;
    box_send(o, n, NULL, 0);
    free(o);
    (void)box_await(RELAY_CLOSED);
    assert_true(box.sums.lost > 0);
    assert_int_equal(box.denials + box.sums.lost, 2000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_refuses_to_start_as_root_or_without_PDEATHSIG),
        cmocka_unit_test(
            it_serves_without_capability_with_a_filter_and_three_descriptors_of_others),
        cmocka_unit_test(an_order_that_no_correct_broker_sends_ends_it_and_every_flow),
        cmocka_unit_test(invalid_traffic_to_the_listeners_is_harmless),
        cmocka_unit_test(reports_without_room_are_counted_and_replies_still_come),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
