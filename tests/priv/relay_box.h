// SPDX-License-Identifier: Apache-2.0
// A relay of the test's own: the real program, unprivileged, in a network namespace that stands for the host, with
// listeners in another that stands for a sandbox. The test process is broker, spawner, kernel (it writes map "flows"),
// job and the world at once; sockets of the job are made by stepping into the sandbox's namespace.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bpf/net.h"
#include "server/relay/relay.h"

enum {
    BOX_SLOT = 7,
    BOX_DNS_PORT = 5300,
    BOX_UID = 65534,
    BOX_WAIT_S = 20, // what a slow machine may need for anything
    BOX_RULES = 4,
};

#ifndef BOX_FILES
#define BOX_FILES 16384 // descriptors, of the relay's as well
#endif

struct box {
    pid_t relay;
    uint32_t slot;           // of the sandbox that orders and flows are about
    int socket;              // to the relay
    int names_fd, flows_fd;  // maps
    int host_ns, sandbox_ns; // namespaces
    bool v6;                 // flow addresses of IPv6 are local in the sandbox
    bool many;               // descriptors for a thousand connections
    uint32_t generation, flow;
    struct relay_report denied; // the last
    unsigned denials;
    struct relay_report sums; // the last
    struct relay_report flow_end;
    unsigned ends, lookups;
};

static struct box box;

static inline void
box_die(const char *what)
{
    print_error("%s: %s\n", what, strerror(errno));
    fail();
}

static inline int
box_map(enum bpf_map_type type, uint32_t key, uint32_t value, uint32_t most)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = type;
    attr.key_size = key;
    attr.value_size = value;
    attr.max_entries = most;
    return (int)syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr);
}

static inline long
box_map_call(enum bpf_cmd cmd, int fd, const void *key, const void *value)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)fd;
    attr.key = (uintptr_t)key;
    attr.value = (uintptr_t)value;
    return syscall(SYS_bpf, cmd, &attr, sizeof attr);
}

static inline void
box_enter(int ns)
{
    if (setns(ns, CLONE_NEWNET) < 0)
        box_die("setns");
}

// A new namespace with loopback up; the process is in it afterwards.
static inline int
box_netns(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    if (unshare(CLONE_NEWNET) < 0)
        box_die("unshare");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    lo.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        box_die("lo");
    (void)close(fd);
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static inline struct sockaddr_in
box_v4(uint32_t address, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

// A socket with time-outs, so that no test hangs.
static inline int
box_socket(int family, int type)
{
    static const struct timeval wait = {.tv_sec = BOX_WAIT_S};
    int fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        box_die("socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    return fd;
}

static inline int
box_bound(int type, uint32_t address, uint16_t port)
{
    static const int yes = 1;
    int fd = box_socket(AF_INET, type);
    struct sockaddr_in sa = box_v4(address, port);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&sa, sizeof sa) < 0 ||
        (type == SOCK_STREAM && listen(fd, 1024) < 0))
        box_die("bind");
    return fd;
}

static inline void
box_exec_relay(const int fds[3])
{
    char path[512];
    const char *build = getenv("STOCKADE_BUILD");
    (void)snprintf(path, sizeof path, "%s/server/stockade-relay", build != NULL ? build : ".");
    int exe = open(path, O_PATH | O_CLOEXEC);
    int high[3];
    for (int i = 0; i < 3; i++)
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
    for (int i = 0; i < 3; i++)
        (void)dup2(high[i], RELAY_SOCKET_FD + i);
    if (setresgid(BOX_UID, BOX_UID, BOX_UID) < 0 || setresuid(BOX_UID, BOX_UID, BOX_UID) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(98);
    char *const args[] = {path, NULL};
    char *const env[] = {NULL};
    (void)syscall(SYS_execveat, exe, "", args, env, AT_EMPTY_PATH);
    _exit(99);
}

// The packet of an order with its rules; free() it.
static inline struct relay_order *
box_order(uint32_t kind, uint32_t rules_n, size_t *n)
{
    *n = sizeof(struct relay_order) + rules_n * sizeof(struct relay_rule);
    struct relay_order *o = calloc(1, *n);
    assert_non_null(o);
    o->kind = kind;
    o->slot = box.slot;
    o->generation = box.generation;
    o->rules_n = rules_n;
    return o;
}

static inline void
box_send(const void *order, size_t n, const int *fds, size_t fds_n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 8)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)order, .iov_len = n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fds_n > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * fds_n);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fds_n);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * fds_n);
    }
    assert_int_equal(sendmsg(box.socket, &m, MSG_NOSIGNAL), (ssize_t)n);
}

// One report, also counted. False: none came in time, or the relay is gone.
static inline bool
box_report(struct relay_report *r, int wait_ms)
{
    struct pollfd p = {.fd = box.socket, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0 ||
        recv(box.socket, r, sizeof *r, MSG_DONTWAIT) != (ssize_t)sizeof *r)
        return false;
    if (r->kind == RELAY_DENIED) {
        box.denied = *r;
        box.denials++;
    } else if (r->kind == RELAY_SUMS) {
        box.sums = *r;
    } else if (r->kind == RELAY_FLOW_END) {
        box.flow_end = *r;
        box.ends++;
    } else if (r->kind == RELAY_LOOKUP) {
        box.lookups++;
    }
    return true;
}

// Reads until one of this kind came.
static inline struct relay_report
box_await(uint32_t kind)
{
    struct relay_report r = {0};
    time_t until = time(NULL) + BOX_WAIT_S;
    while (time(NULL) <= until)
        if (box_report(&r, 1000) && r.kind == kind)
            return r;
    print_error("no report of kind %u came\n", kind);
    fail();
    return r;
}

// What is there already.
static inline void
box_drain(void)
{
    struct relay_report r;
    while (box_report(&r, 0))
        ;
}

static inline void
box_start_relay(uint32_t dns_port)
{
    int ends[2];
    size_t n = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        box_die("socketpair");
    box.relay = fork();
    if (box.relay == 0) {
        const int fds[3] = {ends[1], box.names_fd, box.flows_fd};
        box_exec_relay(fds);
    }
    (void)close(ends[1]);
    box.socket = ends[0];
    struct relay_order *o = box_order(RELAY_CONFIGURE, 0, &n);
    static const uint8_t loopback[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    o->slot = o->generation = 0;
    o->servers_n = 1;
    memcpy(o->servers[0].address, loopback, sizeof loopback);
    o->servers[0].port = (uint16_t)dns_port;
    box_send(o, n, NULL, 0);
    free(o);
    (void)box_await(RELAY_READY);
}

// The relay's status as waitpid(2) tells it; it must have ended or be about to.
static inline int
box_wait_relay(void)
{
    int status = 0;
    for (int i = 0; i < BOX_WAIT_S * 100; i++) {
        if (waitpid(box.relay, &status, WNOHANG) == box.relay)
            return status;
        (void)usleep(10000);
    }
    print_error("the relay does not end\n");
    fail();
    return -1;
}

// Every flow address of IPv6 is local, as the spawner arranges.
static inline bool
box_local_v6(void)
{
    char *const args[] = {(char[]){"ip"},  (char[]){"-6"},    (char[]){"route"},
                          (char[]){"add"}, (char[]){"local"}, (char[]){"fd53:746f:636b::/64"},
                          (char[]){"dev"}, (char[]){"lo"},    NULL};
    int status = -1;
    box_enter(box.sandbox_ns);
    pid_t pid = fork();
    if (pid == 0) {
        (void)execvp(args[0], args);
        _exit(127);
    }
    (void)waitpid(pid, &status, 0);
    box_enter(box.host_ns);
    return status == 0;
}

// "skipped" where the machine does not let us.
static inline int
box_setup(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        (void)printf("skipped: needs root\n");
        exit(77);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    box.slot = BOX_SLOT;
    const struct rlimit files = {BOX_FILES, BOX_FILES}; // both ends here, and the relay's
    box.many = setrlimit(RLIMIT_NOFILE, &files) == 0;
    box.sandbox_ns = box_netns();
    box.host_ns = box_netns();
    box.v6 = box_local_v6();
    box.names_fd =
        box_map(BPF_MAP_TYPE_HASH, sizeof(struct net_name_key), sizeof(struct net_name), 8192);
    box.flows_fd =
        box_map(BPF_MAP_TYPE_LRU_HASH, sizeof(struct net_flow_key), sizeof(struct net_flow), 8192);
    if (box.names_fd < 0 || box.flows_fd < 0) {
        (void)printf("skipped: no BPF map can be made here (%s)\n", strerror(errno));
        exit(77);
    }
    box_start_relay(BOX_DNS_PORT);
    return 0;
}

static inline int
box_teardown(void **state)
{
    (void)state;
    (void)close(box.socket);
    return WIFEXITED(box_wait_relay()) ? 0 : -1;
}

static inline void
box_prefix(struct relay_rule *r, uint32_t address, uint8_t bits, uint16_t port)
{
    *r = (struct relay_rule){.kind = RELAY_PREFIX, .prefix = (uint8_t)(96 + bits)};
    r->address[10] = r->address[11] = 0xff;
    uint32_t wire = htonl(address);
    memcpy(r->address + 12, &wire, sizeof wire);
    if (port != 0)
        r->ports[r->ports_n++] = (struct net_ports){.first = port, .last = port};
}

static inline void
box_name(struct relay_rule *r, enum relay_rule_kind kind, const char *name)
{
    *r = (struct relay_rule){.kind = (uint8_t)kind};
    (void)snprintf(r->name, sizeof r->name, "%s", name);
}

// A policy that tests fill; allowlist of nothing at first.
struct box_policy {
    uint32_t mode, rules_n, queries_per_minute;
    uint64_t out_bytes_max, in_bytes_max, out_rate, in_rate;
    struct relay_counted counted; // before, for OPEN
    struct relay_rule rules[BOX_RULES];
};

static inline struct box_policy
box_policy(uint32_t mode)
{
    return (struct box_policy){.mode = mode};
}

static inline void
box_send_policy(uint32_t kind, const struct box_policy *p, const int *fds, size_t fds_n)
{
    size_t n = 0;
    struct relay_order *o = box_order(kind, p->rules_n, &n);
    o->mode = p->mode;
    o->out_bytes_max = p->out_bytes_max;
    o->in_bytes_max = p->in_bytes_max;
    o->out_rate = p->out_rate;
    o->in_rate = p->in_rate;
    o->queries_per_minute = p->queries_per_minute;
    if (kind == RELAY_OPEN)
        o->counted = p->counted;
    for (uint32_t i = 0; i < o->rules_n; i++) {
        o->rules[i] = p->rules[i];
        o->rules[i].number = i;
    }
    box_send(o, n, fds, fds_n);
    free(o);
}

// Another policy, and the relay has read it: what it does for an order it does before it looks at anything else.
static inline void
box_change(const struct box_policy *p)
{
    int unread = 1;
    box_send_policy(RELAY_POLICY, p, NULL, 0);
    for (int i = 0; i < BOX_WAIT_S * 1000 && unread > 0; i++) {
        assert_int_equal(ioctl(box.socket, SIOCOUTQ, &unread), 0);
        (void)usleep(1000);
    }
    assert_int_equal(unread, 0);
}

// The listeners that the spawner would make; IPv6 as well, with every flow address local.
static inline void
box_listeners(int fds[4])
{
    static const int yes = 1;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(NET_RELAY_PORT)};
    box_enter(box.sandbox_ns);
    fds[0] = box_bound(SOCK_STREAM, INADDR_ANY, NET_RELAY_PORT);
    fds[1] = box_bound(SOCK_DGRAM, INADDR_ANY, NET_RELAY_PORT);
    fds[2] = box_socket(AF_INET6, SOCK_STREAM);
    fds[3] = box_socket(AF_INET6, SOCK_DGRAM);
    for (int i = 2; i < 4; i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        (void)setsockopt(fds[i], IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
        if (bind(fds[i], (const struct sockaddr *)&v6, sizeof v6) < 0 ||
            (i == 2 && listen(fds[i], 1024) < 0))
            box_die("bind v6");
    }
    box_enter(box.host_ns);
}

static inline void
box_open(const struct box_policy *p)
{
    int fds[4];
    box.generation++;
    box.denials = box.ends = box.lookups = 0;
    memset(&box.sums, 0, sizeof box.sums);
    box_listeners(fds);
    box_send_policy(RELAY_OPEN, p, fds, 4);
    for (int i = 0; i < 4; i++)
        (void)close(fds[i]);
}

static inline void
box_close(void)
{
    size_t n = 0;
    struct relay_order *o = box_order(RELAY_CLOSE, 0, &n);
    box_send(o, n, NULL, 0);
    free(o);
    (void)box_await(RELAY_CLOSED);
}

// Descriptors that the relay has open.
static inline unsigned
box_relay_fds(void)
{
    char path[64];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)box.relay);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}
