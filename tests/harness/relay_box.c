// SPDX-License-Identifier: Apache-2.0
// See relay_box.h.
#include "tests/harness/relay_box.h"
#include "tests/harness/process.h"
#include "tests/harness/skip.h"

#include "proto/fdpass.h"

struct box box;
unsigned box_files = 16384;

void
box_die(const char *what)
{
    print_error("%s: %s\n", what, strerror(errno));
    fail();
    abort(); // not reached
}

static int
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

long
box_map_call(enum bpf_cmd cmd, int fd, const void *key, const void *value)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_fd = (uint32_t)fd;
    attr.key = (uintptr_t)key;
    attr.value = (uintptr_t)value;
    return syscall(SYS_bpf, cmd, &attr, sizeof attr);
}

void
box_enter(int ns)
{
    if (setns(ns, CLONE_NEWNET) < 0)
        box_die("setns");
}

int
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

struct sockaddr_in
box_v4(uint32_t address, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

int
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

int
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

static void
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

struct relay_order *
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

void
box_send(const void *order, size_t n, const int *fds, size_t fds_n)
{
    const struct fdpass m = {(void *)(uintptr_t)order, n, (int *)(uintptr_t)fds, fds_n};
    assert_int_equal(fdpass_send(box.socket, &m, 0), 0);
}

bool
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

struct relay_report
box_await(uint32_t kind)
{
    struct relay_report r = {0};
    char what[40];
    (void)snprintf(what, sizeof what, "a report of kind %u", kind);
    wait_until(what, box_report(&r, 1000) && r.kind == kind);
    return r;
}

void
box_drain(void)
{
    struct relay_report r;
    while (box_report(&r, 0))
        ;
}

void
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

int
box_wait_relay(void)
{
    int status = 0;
    wait_until("the relay ends", waitpid(box.relay, &status, WNOHANG) == box.relay);
    return status;
}

// Makes every IPv6 flow address local, like the spawner.
static bool
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

int
box_setup(void **state)
{
    (void)need_root(state);
    (void)signal(SIGPIPE, SIG_IGN);
    box.slot = BOX_SLOT;
    // both ends are in this process, and the relay has more
    const struct rlimit files = {box_files, box_files};
    box.many = setrlimit(RLIMIT_NOFILE, &files) == 0;
    box.sandbox_ns = box_netns();
    box.host_ns = box_netns();
    box.v6 = box_local_v6();
    box.names_fd =
        box_map(BPF_MAP_TYPE_HASH, sizeof(struct net_name_key), sizeof(struct net_name), 8192);
    box.flows_fd =
        box_map(BPF_MAP_TYPE_LRU_HASH, sizeof(struct net_flow_key), sizeof(struct net_flow), 8192);
    if (box.names_fd < 0 || box.flows_fd < 0)
        skip_program("no BPF map can be made here (%s)", strerror(errno));
    box_start_relay(BOX_DNS_PORT);
    return 0;
}

int
box_teardown(void **state)
{
    (void)state;
    (void)close(box.socket);
    return WIFEXITED(box_wait_relay()) ? 0 : -1;
}

void
box_prefix(struct relay_rule *r, uint32_t address, uint8_t bits, uint16_t port)
{
    *r = (struct relay_rule){.kind = RELAY_PREFIX, .prefix = (uint8_t)(96 + bits)};
    r->address[10] = r->address[11] = 0xff;
    uint32_t wire = htonl(address);
    memcpy(r->address + 12, &wire, sizeof wire);
    if (port != 0)
        r->ports[r->ports_n++] = (struct net_ports){.first = port, .last = port};
}

void
box_name(struct relay_rule *r, enum relay_rule_kind kind, const char *name)
{
    *r = (struct relay_rule){.kind = (uint8_t)kind};
    (void)snprintf(r->name, sizeof r->name, "%s", name);
}

struct box_policy
box_policy(uint32_t mode)
{
    return (struct box_policy){.mode = mode};
}

static void
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

// Number of our bytes that the relay has not read yet.
static int
box_unread(void)
{
    int unread = -1;
    assert_int_equal(ioctl(box.socket, SIOCOUTQ, &unread), 0);
    return unread;
}

void
box_change(const struct box_policy *p)
{
    box_send_policy(RELAY_POLICY, p, NULL, 0);
    size_t n = 0;
    struct relay_order *ping = box_order(RELAY_PING, 0, &n);
    box_send(ping, n, NULL, 0);
    free(ping);
    // Orders are read in sequence: after the relay has read the ping, the policy is in force.
    wait_until("the relay has read the ping behind the policy", box_unread() == 0);
}

// Makes the listeners like the spawner; also for IPv6, with every flow address local.
static void
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

void
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

void
box_close(void)
{
    size_t n = 0;
    struct relay_order *o = box_order(RELAY_CLOSE, 0, &n);
    box_send(o, n, NULL, 0);
    free(o);
    (void)box_await(RELAY_CLOSED);
}

unsigned
box_relay_fds(void)
{
    return process_fds(box.relay);
}
