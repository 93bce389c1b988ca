// SPDX-License-Identifier: Apache-2.0
// NET_OPEN and NET_DIAL with the real spawner and real sandboxes; spawner_refusals.c has invalid requests.
#include "tests/harness/spawner.h"
#include "tests/harness/skip.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "bpf/net.h"

static struct broker b;
static struct spawned x;

static int
start(void **state)
{
    (void)need_root(state);
    broker_config(&b, "");
    broker_start(&b);
    spawned_create(&b, &x, 1);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    spawned_destroy(&b, &x);
    broker_stop(&b);
    return 0;
}

// Runs a function in the namespace, in a child.
static pid_t
inside_begin(int (*what)(void *arg), void *arg)
{
    pid_t pid = fork();
    if (pid == 0) {
        spawned_enter_network(&x);
        _exit(what(arg));
    }
    return pid;
}

// Its result.
static int
inside_end(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int
inside(int (*what)(void *arg), void *arg)
{
    return inside_end(inside_begin(what, arg));
}

static struct spawn_reply
net_open(int fds[SPAWN_FDS_MAX])
{
    struct spawn_request q = request_for(&x, SPAWN_NET_OPEN, 0);
    return broker_ask(&b, &q, fds);
}

static struct spawn_reply
dial(uint16_t port, int fds[SPAWN_FDS_MAX])
{
    struct spawn_request q = request_for(&x, SPAWN_NET_DIAL, port);
    return broker_ask(&b, &q, fds);
}

static void
close_all(int fds[SPAWN_FDS_MAX])
{
    for (int i = 0; i < SPAWN_FDS_MAX; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
}

struct target {
    const char *address;
    uint16_t port;
    int type;
};

static socklen_t
socket_address(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    *out = (struct sockaddr_storage){.ss_family = AF_INET};
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    *out = (struct sockaddr_storage){.ss_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    v6->sin6_port = htons(port);
    return sizeof *v6;
}

// 0, or errno.
static int
send_to(void *arg)
{
    const struct target *t = arg;
    struct sockaddr_storage to;
    socklen_t n = socket_address(t->address, t->port, &to);
    int fd = socket(to.ss_family, t->type | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, n) < 0)
        return errno;
    char end;
    if (send(fd, "x", 1, MSG_NOSIGNAL) != 1)
        return errno;
    // The other end closes first, so that TIME_WAIT is on the listener's port.
    return t->type == SOCK_DGRAM || recv(fd, &end, 1, 0) == 0 ? 0 : errno;
}

static void
a_dial_to_a_port_without_listener_is_an_error(void **state)
{
    (void)state;
    int fds[SPAWN_FDS_MAX] = {-1};
    struct spawn_reply r = dial(4711, fds);
    assert_false(r.ok);
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
    assert_string_equal(r.err.reason, "PORT_CLOSED");
}

static void
open_listeners_are_not_opened_twice(void **state)
{
    (void)state;
    int fds[SPAWN_FDS_MAX] = {-1};
    int none[SPAWN_FDS_MAX] = {-1};
    assert_true(net_open(fds).ok);
    struct spawn_reply r = net_open(none);
    assert_false(r.ok);
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
    close_all(fds);
    assert_true(net_open(fds).ok); // as after the end of a relay
    close_all(fds);
}

static void
nothing_listens_beside_the_relays_port(void **state)
{
    (void)state;
    int fds[SPAWN_FDS_MAX] = {-1};
    struct target t = {"127.128.0.5", NET_RELAY_PORT, SOCK_STREAM};
    wait_until("the sockets of the test before are closed", inside(send_to, &t) == ECONNREFUSED);
    assert_true(net_open(fds).ok);
    t.port++;
    assert_int_equal(inside(send_to, &t), ECONNREFUSED);
    t.address = "fd53:746f:636c::1"; // outside of the prefix of flows
    assert_int_equal(inside(send_to, &t), ENETUNREACH);
    close_all(fds);
}

// Asserts that a connection arrives, and that the listener sees the address it was made to.
static void
assert_tcp_to(int listener, struct target *t)
{
    char text[INET6_ADDRSTRLEN] = "";
    char byte = 0;
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof at;
    t->type = SOCK_STREAM;
    pid_t pid = inside_begin(send_to, t);
    assert_true(readable(listener, BROKER_WAIT_MS));
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    const void *bytes = at.ss_family == AF_INET
                            ? (const void *)&((struct sockaddr_in *)&at)->sin_addr
                            : (const void *)&((struct sockaddr_in6 *)&at)->sin6_addr;
    assert_non_null(inet_ntop(at.ss_family, bytes, text, sizeof text));
    assert_string_equal(text, t->address);
    (void)close(fd);
    assert_int_equal(inside_end(pid), 0);
}

// The same for a packet.
static void
assert_udp_to(int listener, int family, struct target *t)
{
    t->type = SOCK_DGRAM;
    assert_int_equal(inside(send_to, t), 0);
    union {
        struct cmsghdr align;
        char bytes[256];
    } control;
    char text[INET6_ADDRSTRLEN] = "";
    char byte = 0;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    assert_true(readable(listener, BROKER_WAIT_MS));
    assert_int_equal(recvmsg(listener, &m, 0), 1);
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    struct in_pktinfo v4 = {0};
    struct in6_pktinfo v6 = {0};
    if (!h)
        fail_msg("no packet information");
    else if (family == AF_INET)
        memcpy(&v4, CMSG_DATA(h), sizeof v4);
    else
        memcpy(&v6, CMSG_DATA(h), sizeof v6);
    const void *at = family == AF_INET ? (const void *)&v4.ipi_addr : (const void *)&v6.ipi6_addr;
    assert_non_null(inet_ntop(family, at, text, sizeof text));
    assert_string_equal(text, t->address);
}

static void
every_flow_address_reaches_the_listeners_which_see_it(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) { // as after the end of a relay
        int fds[SPAWN_FDS_MAX] = {-1};
        struct spawn_reply r = net_open(fds);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        struct target t = {"127.128.0.5", NET_RELAY_PORT, SOCK_STREAM};
        assert_tcp_to(fds[NET_FD_TCP4], &t);
        t.address = "127.255.255.254";
        assert_udp_to(fds[NET_FD_UDP4], AF_INET, &t);
        if (fds[NET_FD_TCP6] < 0) {
            (void)puts("skipped: no IPv6 here");
        } else {
            t.address = "fd53:746f:636b::7";
            assert_tcp_to(fds[NET_FD_TCP6], &t);
            t.address = "fd53:746f:636b::ffff:ffff";
            assert_udp_to(fds[NET_FD_UDP6], AF_INET6, &t);
        }
        close_all(fds);
    }
}

struct service {
    struct target at;
    int ready_fd;
};

// Listens, reports that, and sends one byte to each connection.
static int
serve(void *arg)
{
    const struct service *s = arg;
    struct sockaddr_storage at;
    socklen_t n = socket_address(s->at.address, s->at.port, &at);
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (const struct sockaddr *)&at, n) < 0 || listen(fd, 1) < 0)
        return errno;
    (void)!write(s->ready_fd, "r", 1);
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    return peer >= 0 && send(peer, "s", 1, MSG_NOSIGNAL) == 1 ? 0 : errno;
}

static void
a_dial_reaches_listeners_on_either_loopback_address(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1", "::1"};
    for (int i = 0; i < 2; i++) {
        int ready[2];
        int fds[SPAWN_FDS_MAX] = {-1};
        char byte = 0;
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        struct service s = {{addresses[i], 8080, SOCK_STREAM}, ready[1]};
        pid_t pid = inside_begin(serve, &s);
        assert_true(readable(ready[0], BROKER_WAIT_MS));
        struct spawn_reply r = dial(8080, fds);
        if (!r.ok)
            fail_msg("%s", r.err.text);
        assert_true(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
        assert_true(readable(fds[0], BROKER_WAIT_MS));
        assert_int_equal(recv(fds[0], &byte, 1, 0), 1);
        assert_int_equal(byte, 's');
        assert_int_equal(inside_end(pid), 0);
        (void)close(fds[0]);
        (void)close(ready[0]);
        (void)close(ready[1]);
    }
}

// The spawner is in the host's namespace again: what it makes next belongs to another sandbox.
static void
the_next_sandbox_has_a_network_of_its_own(void **state)
{
    (void)state;
    int fds[SPAWN_FDS_MAX] = {-1};
    int other[SPAWN_FDS_MAX] = {-1};
    struct spawned y;
    assert_true(net_open(fds).ok);
    spawned_create(&b, &y, 2);
    struct spawn_request q = request_for(&y, SPAWN_NET_OPEN, 0);
    struct spawn_reply r = broker_ask(&b, &q, other);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    close_all(other);
    close_all(fds);
    spawned_destroy(&b, &y);
}

static void
without_a_relay_no_restart_is_tried(void **state)
{
    (void)state;
    struct spawn_request q = {.op = SPAWN_RELAY};
    struct spawn_reply r = broker_ask(&b, &q, NULL);
    assert_false(r.ok);
    assert_int_equal(r.err.code, ERR_FAILED_PRECONDITION);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dial_to_a_port_without_listener_is_an_error),
        cmocka_unit_test(open_listeners_are_not_opened_twice),
        cmocka_unit_test(nothing_listens_beside_the_relays_port),
        cmocka_unit_test(without_a_relay_no_restart_is_tried),
        cmocka_unit_test(every_flow_address_reaches_the_listeners_which_see_it),
        cmocka_unit_test(a_dial_reaches_listeners_on_either_loopback_address),
        cmocka_unit_test(the_next_sandbox_has_a_network_of_its_own),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
