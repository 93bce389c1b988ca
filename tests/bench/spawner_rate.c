// SPDX-License-Identifier: Apache-2.0
// How many sandboxes per second the spawner alone makes and removes, and the processor time of each: without broker
// and jobs. `spawner_rate SPAWNER GUEST [COUNT [CONCURRENT [NETNS_POOL [ALIVE]]]]`, as root.
//
//   ALIVE sandboxes that stay, and the memory of each
//   then per sandbox: create -> the guest sends Ready -> destroy
//
// LOADER in the environment is stockade-loader's path: with the BPF programs attached. VERBOSE: prints the features
// found at start. OFF: network namespaces are used again, as after sandboxes with `network: off`.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/times.h>
#include <unistd.h>
#include <uv.h>

#include "server/sandbox/spawn.h"
#include "tests/harness/reader.h"

enum { CONCURRENT_MAX = 1000, ALIVE_MAX = 3000 };

struct one {
    uint32_t slot;
    uint32_t generation;
    int guest_fd;
    bool stays;
    uint64_t started_ns;
    uv_poll_t poll;
};

static struct spawn *spawn;
static uint32_t left;
static uint32_t alive;
static uint32_t running;
static uint64_t create_ns;
static uint64_t ready_ns;
static uint64_t destroy_ns;
static uint32_t done_n;

static void start_one(struct one *o);
static void ask_for(struct one *o);

static void
fail(const char *what, const struct err *e)
{
    (void)fprintf(stderr, "%s: %s\n", what, e->text);
    exit(1);
}

static void
on_destroyed(void *cookie, const struct spawn_reply *r,
             int fds[SPAWN_FDS_MAX]) // NOLINT(readability-non-const-parameter): spawn_done
{
    (void)fds;
    if (!r->ok)
        fail("destroy", &r->err);
    destroy_ns += r->duration_ns;
    done_n++;
    running--;
    start_one(cookie);
}

static void
on_poll_closed(uv_handle_t *h)
{
    struct one *o = h->data;
    struct err e;
    if (o->stays) { // its descriptor stays open as long as the sandbox
        if (--left == 0)
            uv_stop(uv_default_loop());
        return;
    }
    const bool off = getenv("OFF") != NULL;
    (void)close(o->guest_fd);
    if (spawn_destroy(spawn, o->slot, o->generation, off, on_destroyed, o, &e) < 0)
        fail("destroy", &e);
}

static void
on_ready(uv_poll_t *h, int status, int events)
{
    struct one *o = h->data;
    char packet[256];
    (void)events;
    if (status < 0 || recv(o->guest_fd, packet, sizeof packet, 0) <= 0) {
        (void)fprintf(stderr, "the guest ended before it was ready\n");
        exit(1);
    }
    ready_ns += uv_hrtime() - o->started_ns;
    uv_close((uv_handle_t *)h, on_poll_closed);
}

static void
on_created(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    struct one *o = cookie;
    if (!r->ok)
        fail("create", &r->err);
    create_ns += r->duration_ns;
    o->slot = r->slot;
    o->generation = r->generation;
    o->guest_fd = fds[SPAWN_FD_GUEST];
    for (int i = SPAWN_FD_CGROUP; i < SPAWN_FDS_MAX; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
    (void)uv_poll_init(uv_default_loop(), &o->poll, o->guest_fd);
    o->poll.data = o;
    (void)uv_poll_start(&o->poll, UV_READABLE, on_ready);
}

static void
ask_for(struct one *o)
{
    static const struct spawn_limits limits = {
        .memory_bytes = 256 << 20,
        .disk_bytes = 64 << 20,
        .inodes = 10000,
        .cpu_millis = 1000,
        .cpu_weight = 100,
        .pids = 64,
    };
    uint8_t id[16];
    struct err e;
    (void)!getrandom(id, sizeof id, 0);
    o->started_ns = uv_hrtime();
    if (spawn_create(spawn, id, 0, &limits, on_created, o, &e) < 0)
        fail("create", &e);
}

static void
start_one(struct one *o)
{
    if (left == 0) {
        if (running == 0)
            uv_stop(uv_default_loop());
        return;
    }
    left--;
    running++;
    ask_for(o);
}

static unsigned long
available_kib(void)
{
    unsigned long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtoul(line + 13, NULL, 10);
    }
    if (f)
        (void)fclose(f);
    return kib;
}

// Makes the sandboxes that exist while others are measured.
static void
fill(void)
{
    static struct one stay[ALIVE_MAX];
    if (alive == 0)
        return;
    unsigned long before = available_kib();
    left = alive;
    for (uint32_t i = 0; i < alive; i++) {
        stay[i].stays = true;
        ask_for(&stay[i]);
    }
    (void)uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    (void)printf("%u alive: %.0f KiB of memory each\n", alive,
                 (double)((long)before - (long)available_kib()) / alive);
    create_ns = ready_ns = 0;
}

static void
on_gone(void *cookie)
{
    (void)cookie;
    (void)fprintf(stderr, "the spawner is gone\n");
    exit(1);
}

// All of the machine's processors: user, nice, system, irq, softirq; in ticks.
static unsigned long
busy_ticks(void)
{
    unsigned long v[8] = {0};
    FILE *f = fopen("/proc/stat", "re");
    if (f) {
        (void)!fscanf(f, "cpu %lu %lu %lu %lu %lu %lu %lu", &v[0], &v[1], &v[2], &v[3], &v[4],
                      &v[5], &v[6]);
        (void)fclose(f);
    }
    return v[0] + v[1] + v[2] + v[5] + v[6];
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_reader(void *cookie, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    if (!r->ok)
        fail("read", &r->err);
    *(int *)cookie = fds[0];
}

static void
make_root(const struct spawn_config *config)
{
    int fd = -1;
    struct err e;
    FILE *f = fopen(config->config_file, "we");
    if (!f || fputs("templates: [{name: default}]\n", f) < 0 || fclose(f) != 0 ||
        spawn_read(spawn, on_reader, &fd, &e) < 0) {
        (void)fprintf(stderr, "cannot begin to read %s\n", config->config_file);
        exit(1);
    }
    while (fd < 0)
        (void)uv_run(uv_default_loop(), UV_RUN_ONCE);
    if (reader_root(fd, &e) != 0)
        fail("root", &e);
}

int
main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s SPAWNER GUEST [COUNT [CONCURRENT [NETNS_POOL [ALIVE]]]]\n",
                      argv[0]);
        return 2;
    }
    static struct spawn_config config = {
        .version = SPAWN_VERSION,
        .id_base = SPAWN_ID_BASE_DEFAULT,
        .slots = SPAWN_SLOTS_MAX,
        .limits_max = {1ull << 40, 1ull << 40, 1u << 30, 64000, 10000, 100000},
    };
    static struct spawn_features features;
    int bpf_fds[BPF_FDS];
    static struct one ones[CONCURRENT_MAX];
    struct err e;
    uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1000;
    uint32_t concurrent = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 4;
    config.netns_pool = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 32;
    (void)snprintf(config.cgroup, sizeof config.cgroup, "/stockade-rate-%d", (int)getpid());
    (void)snprintf(config.state_dir, sizeof config.state_dir, "/run/stockade-rate-%d",
                   (int)getpid());
    (void)snprintf(config.guest_path, sizeof config.guest_path, "%s", argv[2]);
    (void)snprintf(config.reader_path, sizeof config.reader_path, "%.*s/stockade-reader",
                   (int)(strrchr(argv[1], '/') - argv[1]), argv[1]);
    (void)snprintf(config.config_file, sizeof config.config_file, "%.200s/stockaded.yaml",
                   config.state_dir);
    const char *loader = getenv("LOADER");
    if (loader)
        (void)snprintf(config.loader_path, sizeof config.loader_path, "%s", loader);
    uint64_t start_ns = uv_hrtime();
    if (spawn_start(argv[1], &config, &features, bpf_fds, &spawn, &e) < 0)
        fail("start", &e);
    (void)printf("started in %.1f ms%s\n", (double)(uv_hrtime() - start_ns) / 1e6,
                 features.bpf & BPF_HAS_NET ? ", BPF attached" : "");
    for (uint32_t i = 0; i < features.n && getenv("VERBOSE"); i++)
        (void)printf("%-24s %s%s %s\n", features.feature[i].name,
                     features.feature[i].available ? "yes" : "no",
                     features.feature[i].degraded ? " degraded" : "", features.feature[i].detail);
    if (spawn_attach(spawn, uv_default_loop(), on_gone, NULL, &e) < 0)
        fail("attach", &e);
    make_root(&config);
    if (concurrent > CONCURRENT_MAX)
        concurrent = CONCURRENT_MAX;
    alive = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 0;
    if (alive > ALIVE_MAX)
        alive = ALIVE_MAX;
    fill();
    left = count;
    unsigned long busy = busy_ticks();
    uint64_t began_ns = uv_hrtime();
    for (uint32_t i = 0; i < concurrent; i++)
        start_one(&ones[i]);
    (void)uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    double s = (double)(uv_hrtime() - began_ns) / 1e9;
    double cpu_s = (double)(busy_ticks() - busy) / (double)sysconf(_SC_CLK_TCK);
    bool clean = spawn_close(spawn, 10000);
    struct rusage u;
    (void)getrusage(RUSAGE_CHILDREN, &u);
    double own_us = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
                    (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    (void)printf(
        "%u sandboxes, %u at once: %.0f/s, machine busy %.0f us each (spawner and guests %.0f), "
        "create %.0f us, ready %.0f us, destroy %.0f us, %s\n",
        done_n, concurrent, done_n / s, cpu_s / done_n * 1e6, own_us / done_n,
        (double)create_ns / done_n / 1e3, (double)ready_ns / done_n / 1e3,
        (double)destroy_ns / done_n / 1e3, clean ? "clean" : "NOT CLEAN");
    return clean ? 0 : 1;
}
