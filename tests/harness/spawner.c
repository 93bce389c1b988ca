// SPDX-License-Identifier: Apache-2.0
// See spawner.h.
#include "tests/harness/spawner.h"
#include "tests/harness/folder.h"

#include <sched.h>
#include <sys/syscall.h>

#include "proto/fdpass.h"

const struct spawn_limits small_limits = {
    .memory_bytes = 64 << 20,
    .disk_bytes = 16 << 20,
    .inodes = 2000,
    .cpu_millis = 500,
    .cpu_weight = 200,
    .pids = 32,
};

// Above the ranges of a broker with the default configuration, which may run beside the test.
enum { TEST_ID_BASE = (int)(SPAWN_ID_BASE_DEFAULT + 2100 * SPAWN_IDS_PER_SANDBOX) };

static void
set_config_file(struct broker *b)
{
    (void)snprintf(b->config.config_file, sizeof b->config.config_file, "%.200s/stockaded.yaml",
                   b->config.state_dir);
}

void
broker_config(struct broker *b, const char *suffix)
{
    const char *build = getenv("STOCKADE_BUILD");
    memset(b, 0, sizeof *b);
    b->fd = -1;
    b->config = (struct spawn_config){
        .version = SPAWN_VERSION,
        .id_base = TEST_ID_BASE,
        .slots = 1200,
        .netns_pool = 4,
        .limits_max = {1ull << 34, 1ull << 34, 1u << 20, 8000, 10000, 4096},
    };
    (void)snprintf(b->config.cgroup, sizeof b->config.cgroup, "/stockade-test-%d%s", (int)getpid(),
                   suffix);
    (void)snprintf(b->config.state_dir, sizeof b->config.state_dir, "%s/stockade-test-%d%s",
                   test_folder(), (int)getpid(), suffix);
    (void)snprintf(b->config.guest_path, sizeof b->config.guest_path,
                   "%.200s/server/stockade-guest", build ? build : ".");
    (void)snprintf(b->config.reader_path, sizeof b->config.reader_path,
                   "%.200s/server/stockade-reader", build ? build : ".");
    (void)snprintf(b->config.disk_path, sizeof b->config.disk_path, "%.200s/server/stockade-disk",
                   build ? build : ".");
    (void)snprintf(b->config.keeper_path, sizeof b->config.keeper_path,
                   "%.200s/server/stockade-keeper", build ? build : ".");
    (void)snprintf(b->config.fetcher_path, sizeof b->config.fetcher_path,
                   "%.200s/server/stockade-fetcher", build ? build : ".");
    set_config_file(b);
}

void
broker_config_bpf(struct broker *b)
{
    const char *build = getenv("STOCKADE_BUILD");
    struct spawn_config *c = &b->config;
    (void)snprintf(c->loader_path, sizeof c->loader_path, "%.200s/server/stockade-loader",
                   build ? build : ".");
    (void)snprintf(c->relay_path, sizeof c->relay_path, "%.200s/server/stockade-relay",
                   build ? build : ".");
    c->relay_uid = c->relay_gid = TEST_ID_BASE + 1;
    if (access(c->relay_path, X_OK) < 0)
        c->relay_path[0] = '\0';
}

const struct spawn_feature *
broker_feature(const struct broker *b, const char *name)
{
    for (uint32_t i = 0; i < b->features.n; i++) {
        if (strcmp(b->features.feature[i].name, name) == 0)
            return &b->features.feature[i];
    }
    fail_msg("no feature %s", name);
    return NULL;
}

// Starts the spawner and sends the configuration.
static void
broker_spawn(struct broker *b)
{
    int pair[2];
    char binary[300];
    const char *build = getenv("STOCKADE_BUILD");
    (void)snprintf(binary, sizeof binary, "%.200s/server/stockade-spawner", build ? build : ".");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    set_config_file(b); // a test may have chosen another state directory
    b->pid = fork();
    assert_true(b->pid >= 0);
    if (b->pid == 0) {
        int high = fcntl(pair[1], F_DUPFD, 64);
        (void)dup2(high, SPAWN_SOCKET_FD);
        if (b->before_exec)
            b->before_exec();
        (void)close_range(SPAWN_SOCKET_FD + 1, ~0u, 0);
        (void)execl(binary, "stockade-spawner", (char *)NULL);
        _exit(71);
    }
    (void)close(pair[1]);
    b->fd = pair[0];
    assert_int_equal(send(b->fd, &b->config, sizeof b->config, 0), sizeof b->config);
}

bool
readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

bool
broker_read(struct broker *b, struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    struct spawn_configured answer;
    int got[BPF_FDS];
    struct fdpass m = {&answer, sizeof answer, got, BPF_FDS};
    assert_true(readable(b->fd, BROKER_WAIT_MS));
    if (fdpass_receive(b->fd, &m, 0) <= 0)
        return false;
    assert_true(m.n >= sizeof *r);
    *r = answer.reply;
    if (m.n == sizeof answer)
        b->features = answer.features;
    size_t got_n = m.fds_n;
    size_t used = 0;
    if (r->op == SPAWN_CONFIGURE) {
        for (unsigned i = 0; i < BPF_FDS; i++)
            b->bpf_fds[i] = b->features.bpf_fds & 1u << i ? got[used++] : -1;
        assert_int_equal(used, got_n);
        used = got_n = 0;
    }
    assert_int_equal(__builtin_popcount(r->fds), got_n);
    for (unsigned i = 0; i < SPAWN_FDS_MAX; i++)
        fds[i] = r->fds & 1u << i ? got[used++] : -1;
    return true;
}

bool
broker_try_start(struct broker *b, struct spawn_reply *r)
{
    int fds[SPAWN_FDS_MAX];
    broker_spawn(b);
    assert_true(broker_read(b, r, fds));
    assert_int_equal(r->op, SPAWN_CONFIGURE);
    if (!r->ok) {
        assert_int_equal(waitpid(b->pid, NULL, 0), b->pid);
        (void)close(b->fd);
        b->fd = -1;
    }
    return r->ok;
}

uint32_t
broker_send(struct broker *b, struct spawn_request *q)
{
    q->seq = ++b->seq;
    assert_int_equal(send(b->fd, q, sizeof *q, MSG_NOSIGNAL), sizeof *q);
    return q->seq;
}

struct spawn_reply
broker_ask(struct broker *b, struct spawn_request *q, int fds[SPAWN_FDS_MAX])
{
    struct spawn_reply r = {0};
    int none[SPAWN_FDS_MAX];
    uint32_t seq = broker_send(b, q);
    assert_true(broker_read(b, &r, fds ? fds : none));
    assert_int_equal(r.seq, seq);
    assert_int_equal(r.op, q->op);
    return r;
}

void
broker_write_config(const struct broker *b, const char *text)
{
    int fd = open(b->config.config_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

void
broker_root(struct broker *b)
{
    struct spawn_request q = {.op = SPAWN_READ};
    int fds[SPAWN_FDS_MAX];
    struct err e = {.text = ""};
    broker_write_config(b, "templates: [{name: default}]\n");
    struct spawn_reply r = broker_ask(b, &q, fds);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    if (reader_root(fds[0], &e) != 0)
        fail_msg("%s", e.text);
}

void
broker_start(struct broker *b)
{
    struct spawn_reply r;
    if (!broker_try_start(b, &r))
        fail_msg("%s", r.err.text);
    broker_root(b);
}

struct spawn_request
create_request(uint32_t n)
{
    struct spawn_request q = {.op = SPAWN_CREATE, .limits = small_limits};
    memcpy(q.id, &n, sizeof n);
    q.id[15] = 0x5a;
    return q;
}

void
spawned_from(struct spawned *x, const struct spawn_reply *r, uint32_t n)
{
    const struct spawn_request q = create_request(n);
    x->slot = r->slot;
    x->generation = r->generation;
    x->uid = r->uid;
    for (size_t i = 0; i < sizeof q.id; i++)
        (void)snprintf(x->name + 2 * i, 3, "%02x", q.id[i]);
}

void
spawned_wait_ready(const struct spawned *x)
{
    char packet[64];
    assert_true(readable(x->fds[SPAWN_FD_GUEST], BROKER_WAIT_MS));
    assert_true(recv(x->fds[SPAWN_FD_GUEST], packet, sizeof packet, 0) >= 2);
    assert_int_equal(packet[0], 1 << 3 | 2);
}

void
spawned_create(struct broker *b, struct spawned *x, uint32_t n)
{
    struct spawn_request q = create_request(n);
    struct spawn_reply r = broker_ask(b, &q, x->fds);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    spawned_from(x, &r, n);
    spawned_wait_ready(x);
}

void
spawned_close_fds(struct spawned *x)
{
    for (int i = 0; i < SPAWN_FDS_MAX; i++) {
        if (x->fds[i] >= 0)
            (void)close(x->fds[i]);
        x->fds[i] = -1;
    }
}

struct spawn_request
request_for(const struct spawned *x, enum spawn_op op, uint32_t arg)
{
    return (struct spawn_request){
        .op = op, .slot = x->slot, .generation = x->generation, .arg = arg};
}

void
spawned_destroy(struct broker *b, struct spawned *x)
{
    struct spawn_request q = request_for(x, SPAWN_DESTROY, 0);
    struct spawn_reply r = broker_ask(b, &q, NULL);
    if (!r.ok)
        fail_msg("%s", r.err.text);
    spawned_close_fds(x);
}

const char *
v2_mount(void)
{
    return access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "/sys/fs/cgroup"
                                                                  : "/sys/fs/cgroup/unified";
}

const char *
guest_procs(int sandbox_fd)
{
    static const char apart[] = "guest/cgroup.procs";
    return faccessat(sandbox_fd, apart, F_OK, 0) == 0 ? apart : "cgroup.procs";
}

void
spawned_enter_network(const struct spawned *x)
{
    char text[16] = "";
    int dir = x->fds[SPAWN_FD_CGROUP];
    int fd = openat(dir, guest_procs(dir), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    int pid_fd = (int)syscall(SYS_pidfd_open, strtol(text, NULL, 10), 0);
    assert_true(pid_fd >= 0);
    assert_int_equal(setns(pid_fd, CLONE_NEWNET), 0);
}

const char *
container_path(const struct broker *b)
{
    static char path[400];
    (void)snprintf(path, sizeof path, "%s%s", v2_mount(), b->config.cgroup);
    return path;
}

unsigned
folders_under(const struct broker *b, const char *controller)
{
    char path[400];
    unsigned n = 0;
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s%s", controller, b->config.cgroup);
    DIR *d = opendir(path);
    const struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL)
        n += entry->d_type == DT_DIR && entry->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

bool
containers_gone(const struct broker *b)
{
    static const char *const mounts[] = {"",         "/unified", "/memory", "/cpu",
                                         "/cpuacct", "/pids",    "/blkio"};
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        char path[400];
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s%s", mounts[i], b->config.cgroup);
        if (access(path, F_OK) == 0)
            return false;
    }
    return true;
}

static int
remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

void
remove_state(const struct broker *b)
{
    (void)nftw(b->config.state_dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    assert_int_equal(access(b->config.state_dir, F_OK), -1);
}

void
broker_stop(struct broker *b)
{
    int status = 0;
    (void)close(b->fd);
    b->fd = -1;
    assert_int_equal(waitpid(b->pid, &status, 0), b->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(containers_gone(b));
    remove_state(b);
}
