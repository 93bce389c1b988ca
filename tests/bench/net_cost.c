// SPDX-License-Identifier: Apache-2.0
// The cost of the network programs with 10, 1,000 and 100,000 rules. The variants alternate within one run: nothing
// attached, our programs, and an nftables firewall with as many rules in a network namespace of its own (skipped
// without nft).
//
//   bench-net_cost [connect|udp|tcp|marks|load]...     as root; default: all
//
//   connect  connect(2) over loopback, to one of 64 destinations, and (ours) to one that has no flow yet
//   udp      64 bytes, to an address each time and from a connected socket
//   tcp      64 MiB over one connection
//   marks    connect(2) of UDP sockets, with events, and destinations that detection rules ask for: processor time of a connect
//   load     the rules themselves, written by the broker's code
//
// A policy of the API has at most 256 rules. Larger sets are made here of the same entries and written by the same
// code (server/policy/rule.c, network/sets.c). Packets go to a listener at the relay's address, without a relay;
// bench-relay measures the relay. Destinations are 93.0.0.0/8, local in each namespace.
#include "bench.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <uv.h>

#include "bpf/watch.h"
#include "server/policy/rule.h"
#include "server/network/sets.h"
#include "server/policy/network.h"
#include "tests/harness/net_rig.h"

enum {
    SIZES = 3,
    PORT = 7777,
    DESTINATIONS = 64,
    CONNECTS = 200,
    SENDS = 32,
    BATCHES = 60,
    SAMPLES = 256, // of one turn
    ROUNDS = 12,
    TCP_ROUNDS = 9,
    TCP_BYTES = 64 << 20,
    FIRST_PORT = 10000, // of destinations without a flow
};

static const unsigned sizes[SIZES] = {10, 1000, 100000};

enum kind { NOTHING, OURS, OURS_NEW, NFT_SET, NFT_RULES };

// A namespace with its two listeners.
struct place {
    int ns, tcp, udp;
};

static struct net_rig rig;
static struct place plain, relay, nft_set[SIZES], nft_rules[SIZES];
static struct network *policy[SIZES];
static double *shared; // results of a child: SAMPLES
static uint32_t fresh; // number of destinations without a flow, so far
static uint32_t watch; // enum watch_flag of the sandbox

// The i-th address that the rules name; host order.
static uint32_t
address_of(unsigned i)
{
    return 93U << 24 | (i * 0x9e3779b1U & 0xffffff);
}

// ---- namespaces

static int
ns_fd(void)
{
    return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
}

static struct place
place_new(uint16_t port)
{
    if (net_rig_namespace() < 0 || net_rig_command("ip route add local 93.0.0.0/8 dev lo") != 0)
        bench_die("a network namespace");
    struct place p = {ns_fd(), net_rig_listener(SOCK_STREAM, 0, port),
                      net_rig_listener(SOCK_DGRAM, 0, port)};
    if (p.ns < 0 || p.tcp < 0 || p.udp < 0)
        bench_die("listeners");
    return p;
}

static void
write_firewall(FILE *f, unsigned n, bool as_set)
{
    (void)fprintf(f, "table inet bench {\n");
    if (as_set) {
        (void)fprintf(f, "set allowed { type ipv4_addr; flags interval; elements = {\n");
        for (unsigned i = 0; i < n; i++) {
            uint32_t a = address_of(i);
            (void)fprintf(f, "93.%u.%u.%u,\n", a >> 16 & 255, a >> 8 & 255, a & 255);
        }
        (void)fprintf(f, "}\n}\n");
    }
    (void)fprintf(f, "chain out { type filter hook output priority 0; policy drop;\n");
    for (unsigned i = 0; i < n && !as_set; i++) {
        uint32_t a = address_of(i);
        (void)fprintf(f, "ip daddr 93.%u.%u.%u accept\n", a >> 16 & 255, a >> 8 & 255, a & 255);
    }
    (void)fprintf(f, "%s}\n}\n", as_set ? "ip daddr @allowed accept\n" : "");
}

// Without nft: ns -1, and its rows are skipped.
static struct place
place_firewall(unsigned n, bool as_set)
{
    char path[] = "/tmp/stockade-nft-XXXXXX";
    char command[100];
    struct place p = {-1, -1, -1};
    if (net_rig_command("command -v nft >/dev/null 2>&1") != 0)
        return p;
    p = place_new(PORT);
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL)
        bench_die("a file for nft");
    write_firewall(f, n, as_set);
    (void)fclose(f);
    (void)snprintf(command, sizeof command, "nft -f %s", path);
    if (net_rig_command(command) != 0)
        bench_die("nft");
    (void)unlink(path);
    return p;
}

// ---- rules, written like the broker's

static struct network *
policy_of(unsigned n)
{
    struct network *p = network_new();
    struct err e;
    p->mode = NET_ALLOWLIST;
    p->keys = calloc(n + 2, sizeof *p->keys);
    p->values = calloc(n + 2, sizeof *p->values);
    for (unsigned i = 0; i < n; i++) {
        struct relay_rule r = {0};
        const char *what = "";
        uint32_t one = 0;
        uint32_t a = address_of(i);
        char text[32];
        (void)snprintf(text, sizeof text, "93.%u.%u.%u", a >> 16 & 255, a >> 8 & 255, a & 255);
        if (!net_rule_cidr(text, &r, &what) ||
            net_rule_compile(&r, 1, &p->keys[i], &p->values[i], &one, &e) < 0)
            bench_die("%s", text);
        p->entries_n += one;
    }
    return p;
}

static void
load_policies(bool named)
{
    uv_loop_t *loop = uv_default_loop();
    struct net_sets *sets = net_sets_new(loop, bpf_map__fd(rig.bpf->maps.rules));
    struct err e;
    for (int k = 0; k < SIZES; k++) {
        char row[40];
        char more[60];
        policy[k] = policy_of(sizes[k]);
        double begun = bench_now();
        if (net_sets_take(sets, policy[k], &e) < 0)
            bench_die("%s", e.text);
        struct samples s = {.row = row};
        samples_add(&s, bench_now() - begun);
        (void)snprintf(row, sizeof row, "%u rules", sizes[k]);
        (void)snprintf(more, sizeof more, ",\"ns_each\":%.0f", s.us[0] * 1e3 / sizes[k]);
        if (named)
            samples_print(&s, "network load", more);
        free(s.us);
    }
}

// ---- the job's part

struct turn {
    enum kind kind;
    unsigned rules;
    const struct place *place;
    bool connected; // udp
    uint32_t fresh;
};

static struct sockaddr_in
destination(const struct turn *t, unsigned i)
{
    unsigned many = t->rules < DESTINATIONS ? t->rules : DESTINATIONS;
    bool is_new = t->kind == OURS_NEW;
    unsigned at = is_new ? t->fresh + i : i % many * (t->rules / many);
    uint16_t port = is_new ? (uint16_t)(FIRST_PORT + (t->fresh + i) % 50000) : PORT;
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(address_of(at % t->rules))};
}

static unsigned
do_connects(const struct turn *t)
{
    static const struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (unsigned i = 0; i < CONNECTS; i++) {
        struct sockaddr_in to = destination(t, i);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        double begun = bench_now();
        if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
            bench_die("connect: %s", strerror(errno));
        shared[i] = bench_now() - begun;
        (void)close(accept(t->place->tcp, NULL, NULL));
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        (void)close(fd);
    }
    return CONNECTS;
}

static unsigned
do_datagrams(const struct turn *t)
{
    char bytes[64] = "";
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = destination(t, 0);
    if (t->connected && connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
        bench_die("connect: %s", strerror(errno));
    for (unsigned b = 0; b < BATCHES; b++) {
        double begun = bench_now();
        for (unsigned i = 0; i < SENDS; i++) {
            to = destination(t, i);
            ssize_t n = t->connected ? send(fd, bytes, sizeof bytes, 0)
                                     : sendto(fd, bytes, sizeof bytes, 0,
                                              (const struct sockaddr *)&to, sizeof to);
            if (n != sizeof bytes)
                bench_die("send: %s", strerror(errno));
        }
        shared[b] = (bench_now() - begun) / SENDS;
        for (unsigned i = 0; i < SENDS; i++)
            if (recv(t->place->udp, bytes, sizeof bytes, 0) != sizeof bytes)
                bench_die("a datagram did not come");
    }
    return BATCHES;
}

static unsigned
do_transfer(const struct turn *t)
{
    static char block[1 << 17];
    struct sockaddr_in to = destination(t, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
        bench_die("connect: %s", strerror(errno));
    int peer = accept(t->place->tcp, NULL, NULL);
    double begun = bench_now();
    pid_t writer = fork();
    if (writer == 0) {
        for (size_t left = TCP_BYTES; left > 0;)
            left -= (size_t)send(fd, block, left < sizeof block ? left : sizeof block, 0);
        _exit(0);
    }
    for (size_t got = 0; got < TCP_BYTES;) {
        ssize_t n = recv(peer, block, sizeof block, 0);
        if (n <= 0)
            bench_die("recv: %s", strerror(errno));
        got += (size_t)n;
    }
    shared[0] = bench_now() - begun;
    (void)waitpid(writer, NULL, 0);
    (void)close(peer);
    (void)close(fd);
    return 1;
}

// ---- turns

static bool
is_ours(enum kind kind)
{
    return kind == OURS || kind == OURS_NEW;
}

static void
prepare(const struct turn *t)
{
    if (net_rig_attach(&rig, is_ours(t->kind)) < 0)
        bench_die("attach");
    for (int k = 0; k < SIZES && is_ours(t->kind); k++) {
        const struct bpf_sandbox entry = {.slot = 1,
                                          .generation = 1,
                                          .mode = NET_ALLOWLIST,
                                          .watch = watch,
                                          .rule_set = net_set_number(policy[k]->set)};
        if (sizes[k] == t->rules && net_rig_put(&rig, &entry) < 0)
            bench_die("entry");
    }
}

// Packets that the programs passed to the relay.
static uint64_t
packets_judged(void)
{
    struct net_counters n = {0};
    const uint32_t slot = 1;
    if (bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &n) < 0)
        bench_die("counters");
    return n.out_packets;
}

// In a process of the sandbox, and in the row's namespace.
static void
take_turn(struct samples *s, const struct turn *t, unsigned (*what)(const struct turn *t))
{
    prepare(t);
    uint64_t before = packets_judged();
    int status = -1;
    unsigned *n = (unsigned *)(void *)(shared + SAMPLES);
    pid_t child = fork();
    if (child == 0) {
        if (setns(t->place->ns, CLONE_NEWNET) < 0 || (is_ours(t->kind) && !net_rig_enter(&rig)))
            bench_die("enter: %s", strerror(errno));
        *n = what(t);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        bench_die("%s failed", s->row);
    if ((packets_judged() > before) != is_ours(t->kind))
        bench_die("%s: %s", s->row, is_ours(t->kind) ? "judged by nobody" : "judged by ours");
    for (unsigned i = 0; i < *n; i++)
        samples_add(s, shared[i]);
}

struct row {
    const char *name;
    enum kind kind;
    int size; // index in sizes
    bool connected;
};

static const struct place *
place_of(const struct row *r)
{
    switch ((int)r->kind) {
    case NOTHING:
        return &plain;
    case NFT_SET:
        return &nft_set[r->size];
    case NFT_RULES:
        return &nft_rules[r->size];
    default:
        return &relay;
    }
}

static void
print_row(struct samples *s, const char *bench, double none_us, double bytes)
{
    char more[200];
    samples_sort(s);
    double us = samples_at(s, 0.5);
    int n = snprintf(more, sizeof more, ",\"median_ns\":%.0f,\"over_none_ns\":%.0f,\"ratio\":%.3f",
                     us * 1e3, (us - none_us) * 1e3, us / none_us);
    if (bytes > 0)
        (void)snprintf(more + n, sizeof more - (size_t)n, ",\"mib_per_second\":%.0f",
                       bytes / (1 << 20) / (us / 1e6));
    samples_print(s, bench, more);
}

enum { ROWS_MAX = 16 };

// The other rows are compared with the first one; a row with `connected` has its own.
static void
measure(const char *bench, const struct row *rows, size_t n, unsigned rounds,
        unsigned (*what)(const struct turn *t))
{
    struct samples s[ROWS_MAX] = {{0}};
    double none_us[2] = {0, 0};
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t i = 0; i < n; i++) {
            const struct row *r = &rows[i];
            struct turn t = {r->kind, sizes[r->size], place_of(r), r->connected, fresh};
            s[i].row = r->name;
            if (t.place->ns < 0)
                continue;
            take_turn(&s[i], &t, what);
            fresh += r->kind == OURS_NEW ? CONNECTS : 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i].n == 0)
            continue;
        samples_sort(&s[i]);
        if (rows[i].kind == NOTHING)
            none_us[rows[i].connected] = samples_at(&s[i], 0.5);
        print_row(&s[i], bench, none_us[rows[i].connected], what == do_transfer ? TCP_BYTES : 0);
    }
}

// ---- destinations of detection rules

enum { MARKS_ROUNDS = 40, MARKS_CONNECTS = 2000 };
enum marks { MARKS_OFF, MARKS_NONE, MARKS_OTHERS, MARKS_THIS, MARKS_ROWS };

// Marks 10.N.0.0/16 and, if it is about this destination, all of 93.0.0.0/8.
static void
put_marks(enum marks what)
{
    int fd = bpf_map__fd(rig.bpf->maps.marks);
    for (uint32_t i = 0; i < NET_MARKS; i++) {
        struct net_mark_key key = {.prefixlen = i == 0 ? 104 : 112,
                                   .address = {[10] = 0xff, 0xff, 10, (uint8_t)i}};
        struct net_mark value = {.n = 1, .range = {{0, 65535, 0, NET_MARK_CONNECT, 0, (uint8_t)i}}};
        if (i == 0)
            key.address[12] = 93;
        const bool is = what == MARKS_THIS || (what == MARKS_OTHERS && i > 0);
        if (!is)
            (void)bpf_map_delete_elem(fd, &key);
        else if (bpf_map_update_elem(fd, &key, &value, BPF_ANY) < 0)
            bench_die("a mark");
    }
}

static double
cpu_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static unsigned
do_udp_connects(const struct turn *t)
{
    const struct sockaddr_in to = destination(t, 0);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const double begun = cpu_us();
    for (unsigned i = 0; i < MARKS_CONNECTS; i++)
        if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0)
            bench_die("connect: %s", strerror(errno));
    shared[0] = (cpu_us() - begun) / MARKS_CONNECTS;
    char bytes[64] = ""; // the rig wants to see that a packet is judged
    if (send(fd, bytes, sizeof bytes, 0) != sizeof bytes ||
        recv(t->place->udp, bytes, sizeof bytes, 0) != sizeof bytes)
        bench_die("a datagram did not come");
    return 1;
}

static void
measure_marks(void)
{
    static const char *const name[MARKS_ROWS] = {
        [MARKS_OFF] = "no events",
        [MARKS_NONE] = "events",
        [MARKS_OTHERS] = "events, 63 other destinations of rules",
        [MARKS_THIS] = "events, a rule is about it",
    };
    struct samples s[MARKS_ROWS] = {{0}};
    for (unsigned round = 0; round < MARKS_ROUNDS; round++)
        for (unsigned i = 0; i < MARKS_ROWS; i++) {
            struct turn t = {OURS, sizes[0], &relay, true, 0};
            s[i].row = name[i];
            watch = i == MARKS_OFF ? 0 : WATCH_EVENTS;
            put_marks(i);
            take_turn(&s[i], &t, do_udp_connects);
        }
    watch = 0;
    put_marks(MARKS_NONE);
    samples_sort(&s[0]);
    const double off_us = samples_at(&s[0], 0.5);
    for (unsigned i = 0; i < MARKS_ROWS; i++)
        print_row(&s[i], "network marks", off_us, 0);
}

static void
measure_connects(void)
{
    static const struct row rows[] = {
        {"nothing", NOTHING, 0, false},
        {"ours, 10 rules", OURS, 0, false},
        {"ours, 1,000 rules", OURS, 1, false},
        {"ours, 100,000 rules", OURS, 2, false},
        {"ours, 100,000 rules, new destinations", OURS_NEW, 2, false},
        {"nftables, a set of 10", NFT_SET, 0, false},
        {"nftables, a set of 1,000", NFT_SET, 1, false},
        {"nftables, a set of 100,000", NFT_SET, 2, false},
        {"nftables, 10 rules", NFT_RULES, 0, false},
        {"nftables, 1,000 rules", NFT_RULES, 1, false},
    };
    measure("network connect", rows, sizeof rows / sizeof rows[0], ROUNDS, do_connects);
}

static void
measure_datagrams(void)
{
    static const struct row rows[] = {
        {"sendto, nothing", NOTHING, 0, false},
        {"sendto, ours, 10 rules", OURS, 0, false},
        {"sendto, ours, 100,000 rules", OURS, 2, false},
        {"sendto, nftables, a set of 10", NFT_SET, 0, false},
        {"sendto, nftables, a set of 100,000", NFT_SET, 2, false},
        {"send, nothing", NOTHING, 0, true},
        {"send, ours, 10 rules", OURS, 0, true},
        {"send, ours, 100,000 rules", OURS, 2, true},
        {"send, nftables, a set of 10", NFT_SET, 0, true},
        {"send, nftables, a set of 100,000", NFT_SET, 2, true},
    };
    measure("network udp", rows, sizeof rows / sizeof rows[0], ROUNDS, do_datagrams);
}

static void
measure_transfers(void)
{
    static const struct row rows[] = {
        {"nothing", NOTHING, 0, false},
        {"ours, 10 rules", OURS, 0, false},
        {"ours, 100,000 rules", OURS, 2, false},
        {"nftables, a set of 10", NFT_SET, 0, false},
        {"nftables, a set of 100,000", NFT_SET, 2, false},
    };
    measure("network tcp", rows, sizeof rows / sizeof rows[0], TCP_ROUNDS, do_transfer);
}

static bool
is_wanted(int argc, char **argv, const char *name)
{
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++)
        wanted = wanted || strcmp(argv[i], name) == 0;
    return wanted;
}

static void
make_places(void)
{
    relay = place_new(NET_RELAY_PORT);
    plain = place_new(PORT);
    for (int k = 0; k < SIZES; k++) {
        nft_set[k] = place_firewall(sizes[k], true);
        nft_rules[k] = k < 2 ? place_firewall(sizes[k], false) : (struct place){-1, -1, -1};
    }
}

int
main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"connect", measure_connects},
                 {"udp", measure_datagrams},
                 {"tcp", measure_transfers},
                 {"marks", measure_marks}};
    void *state = net_rig_open(&rig);
    (void)net_rig_attach(&rig, false);
    shared = mmap(NULL, (SAMPLES + 1) * sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        bench_die("mmap");
    load_policies(is_wanted(argc, argv, "load"));
    make_places();
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (is_wanted(argc, argv, parts[i].name))
            parts[i].run();
    (void)net_rig_attach(&rig, false);
    return net_rig_close(&state);
}
