// SPDX-License-Identifier: Apache-2.0
// stockade-spawner: the only process of Stockade that stays root. It makes and removes sandboxes for the broker, and
// parses no input: the broker sends structs of fixed size (ops.h), whose fields are all checked, and guests send
// nothing.
//
//   broker (root, about to drop) --fork, exec--> spawner, its socket on descriptor 3
//     config ->                                  checks it; own session, signals blocked
//                                                container of cgroups, locked; leftovers removed
//                                                filters compiled; tree prepared (own mount namespace); guest sealed
//     <- features
//     requests ->                                one thread, one epoll; nothing waits for a child
//     end of file                                kills and removes every sandbox, and ends
//
// Signals do not end it: at a terminal's ^C or systemd's SIGTERM the broker drains first, and its end is ours. When
// the spawner itself is killed, guests die by PDEATHSIG, and the next start removes their cgroups.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/leak.h"
#include "proto/now.h"
#include "cgroup_leaf.h"
#include "config.h"
#include "disk_process.h"
#include "feature.h"
#include "ids.h"
#include "io.h"
#include "fetcher_process.h"
#include "keeper_process.h"
#include "programs.h"
#include "reader_process.h"
#include "relay_process.h"
#include "spawner.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x10U // Linux 6.3
#endif

enum {
    QUIET_MS = 2,
    EVENTS_PER_TURN = 64,
    GUEST_BYTES_MAX = 64 * 1024 * 1024,
    SIGNALS_MAX = 64,
    FDS_PER_SANDBOX = 8 // three of them for the leaf of v1 controllers
};

bool
event_add(const struct spawner *s, int fd, enum event_kind kind, uint32_t slot, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)kind << 32 | slot};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

// Reads the first packet. It blocks, because nothing can be done without it.
static int
read_config(struct spawn_config *config, struct err *e)
{
    ssize_t n = recv(SPAWN_SOCKET_FD, config, sizeof *config, MSG_TRUNC);
    if (n < 0)
        return err_sys(e, errno, "read the configuration");
    if (n != (ssize_t)sizeof *config)
        return err_set(e, ERR_INVALID_ARGUMENT, "the configuration has %zd bytes instead of %zu", n,
                       sizeof *config);
    return config_check(config, e);
}

// Leaves the session and groups, and blocks signals; occupies descriptors 0 to 15, so that a child can use these
// numbers.
static int
become_daemon(struct err *e)
{
    (void)setsid(); // it fails for a group leader, which is harmless
    (void)umask(022);
    sigset_t all;
    (void)sigfillset(&all);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
        return err_sys(e, errno, "block signals");
    if (setgroups(0, NULL) < 0)
        return err_sys(e, errno, "drop supplementary groups");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(e, errno, "be non-dumpable");
    int fd = -1;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return err_sys(e, errno, "open /dev/null");
    } while (fd < FD_CHILD_MAX);
    (void)close(fd);
    return 0;
}

// exec(3) keeps them ignored, and no job may find them so. Only the children of sandboxes change them, which would otherwise ask
// for each.
static uint64_t
find_ignored(void)
{
    uint64_t found = 0;
    for (int i = 1; i <= SIGNALS_MAX; i++) {
        struct sigaction now;
        if (sigaction(i, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            found |= UINT64_C(1) << (i - 1);
    }
    return found;
}

// Raises the limit by the descriptors that each sandbox needs.
static void
raise_descriptors(const struct spawn_config *c, struct spawn_features *f)
{
    rlim_t need = FD_KEEP_MIN + (rlim_t)c->slots * FDS_PER_SANDBOX + CONFIG_NETNS_POOL_MAX;
    struct rlimit l = {0, 0};
    (void)getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    if (l.rlim_max < need) {
        struct rlimit more = {need, need};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            l = more;
    }
    (void)setrlimit(RLIMIT_NOFILE, &l);
    bool enough = l.rlim_cur >= need;
    feature_add(f, "descriptors", enough, false, "%llu, %llu are needed for %u sandboxes",
                (unsigned long long)l.rlim_cur, (unsigned long long)need, c->slots);
}

// Copies the guest to a sealed memfd that its own user can execute but not read: nobody can change it, and the kernel
// makes processes that run it non-dumpable (would_dump).
static int
seal_guest(const char *path, int *out, struct err *e)
{
    int auto_close file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (file < 0 || fstat(file, &st) < 0)
        return err_sys(e, errno, "open the guest %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > GUEST_BYTES_MAX)
        return err_set(e, ERR_FAILED_PRECONDITION, "the guest %s is not a program", path);
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int auto_close fd = memfd_create("stockade-guest", flags | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) {
        int old = memfd_create("stockade-guest", flags);
        fd = old;
    }
    if (fd < 0)
        return err_sys(e, errno, "make a memfd for the guest");
    for (off_t left = st.st_size; left > 0;) {
        ssize_t n = sendfile(fd, file, NULL, (size_t)left);
        if (n <= 0)
            return err_sys(e, n < 0 ? errno : EIO, "copy the guest %s", path);
        left -= n;
    }
    if (fchmod(fd, 0111) < 0)
        return err_sys(e, errno, "make the guest executable");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_sys(e, errno, "seal the guest");
    // Opened again read-only, because exec fails with ETXTBSY while a writable descriptor exists.
    char self[48];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    *out = open(self, O_PATH | O_CLOEXEC);
    return *out < 0 ? err_sys(e, errno, "open the sealed guest") : 0;
}

// One time namespace for all sandboxes, whose clocks start now, so the host's uptime stays hidden. Children of this
// process are created in it, at no extra cost. The spawner joins it itself, because before Linux 6.3 a process whose
// children use another time namespace cannot share its memory with a child (EINVAL for the holder of a cgroup
// namespace).
static void
begin_time(const struct spawner *s, struct spawn_features *f)
{
    struct err e = {.code = ERR_OK};
    char text[96];
    (void)snprintf(text, sizeof text, "monotonic -%lld 0\nboottime -%lld 0\n",
                   (long long)(now_ns(CLOCK_MONOTONIC) / 1000000000),
                   (long long)(now_ns(CLOCK_BOOTTIME) / 1000000000));
    bool yes = unshare(CLONE_NEWTIME) == 0 &&
               io_write_at(s->proc_fd, "self/timens_offsets", text, &e) == 0;
    int auto_close fd = openat(s->proc_fd, "self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
    yes = fd >= 0 && setns(fd, CLONE_NEWTIME) == 0 && yes;
    feature_add(f, "time-namespace", yes, true, "%s",
                yes ? "clocks of sandboxes start at the broker's start"
                    : "sandboxes see the host's uptime");
}

static int
open_basics(struct spawner *s, struct err *e)
{
    s->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    s->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s->net_home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    s->ipc_home_fd = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    s->mount_home_fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    s->time_home_fd = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->mount_home_fd < 0 || s->null_fd < 0 || s->proc_fd < 0 || s->net_home_fd < 0 ||
        s->ipc_home_fd < 0 || s->epoll_fd < 0)
        return err_sys(e, errno, "open /dev/null, /proc and an epoll");
    char pattern[2] = "";
    (void)io_read_at(s->proc_fd, "sys/kernel/core_pattern", pattern, sizeof pattern);
    s->cores_piped = pattern[0] == '|';
    return 0;
}

// Data that the steps of the start share.
struct start {
    struct spawner *s;
    struct spawn_config *config;
    struct spawn_features *features;
};

static int
step_root(struct start *st, struct err *e)
{
    (void)st;
    return geteuid() == 0 ? 0 : err_set(e, ERR_PERMISSION_DENIED, "the spawner must be root");
}

static int
step_config(struct start *st, struct err *e)
{
    int r = read_config(st->config, e);
    if (r == 0)
        st->s->config = st->config;
    return r;
}

static int
step_daemon(struct start *st, struct err *e)
{
    int r = become_daemon(e);
    st->s->ignored = find_ignored();
    if (r == 0)
        raise_descriptors(st->config, st->features);
    return r;
}

static int
step_state_dir(struct start *st, struct err *e)
{
    const char *dir = st->config->state_dir;
    return mkdir(dir, 0755) == 0 || errno == EEXIST
               ? 0
               : err_sys(e, errno, "make the state directory %s", dir);
}

static int
step_basics(struct start *st, struct err *e)
{
    return open_basics(st->s, e);
}

static int
step_guest(struct start *st, struct err *e)
{
    return seal_guest(st->config->guest_path, &st->s->exe_fd, e);
}

static int
step_cgroups(struct start *st, struct err *e)
{
    return cgroup_open(st->config->cgroup, &st->s->cgroups, &st->features->leftovers_cleared, e);
}

// A missing part is a missing feature, not a failed start.
static int
step_features(struct start *st, struct err *e)
{
    (void)e;
    feature_probe(st->features, &st->s->cgroups, st->s->proc_fd);
    ids_open(st->s, st->features);
    programs_load(st->s, st->features);
    return 0;
}

static int
step_filters(struct start *st, struct err *e)
{
    struct filter job = {NULL, 0};
    int r = filter_compile(&st->s->guest_filter, &job, &st->s->job_filter_fd, e);
    free(job.code);
    return r;
}

static int
step_tree(struct start *st, struct err *e)
{
    int below_fd = -1;
    int r = tree_prepare(st->config, st->s->cgroups.fd, &below_fd, &st->s->tree, st->features, e);
    if (r < 0)
        return r;
    (void)close(st->s->cgroups.fd);
    st->s->cgroups.fd = below_fd;
    return 0;
}

static int
step_time(struct start *st, struct err *e)
{
    (void)e;
    begin_time(st->s, st->features);
    return 0;
}

static int
step_slots(struct start *st, struct err *e)
{
    // frees the memory of compiling the filters, whose page tables every child would copy
    (void)malloc_trim(0);
    return slots_init(st->s) ? 0 : err_sys(e, ENOMEM, "make the table of sandboxes");
}

static int
step_disks(struct start *st, struct err *e)
{
    for (int i = 0; i < SPAWN_DISK_RUNS_MAX; i++)
        st->s->disk_run[i].socket_fd = -1;
    st->s->disks = disks_new();
    if (st->s->disks == NULL)
        return err_sys(e, ENOMEM, "make the table of disks");
    disk_process_probe(st->s, st->features);
    return 0;
}

// Without the relay the broker runs, and refuses requests that need it.
static int
step_relay(struct start *st, struct err *e)
{
    int fd = relay_process_start(st->s, e);
    st->s->programs.map[BPF_FD_RELAY] = fd < 0 ? -1 : fd;
    relay_process_feature(st->features, fd >= 0, e);
    return 0;
}

static int
step_broker(struct start *st, struct err *e)
{
    st->s->reading = true;
    return event_add(st->s, SPAWN_SOCKET_FD, EVENT_BROKER, 0, EPOLLIN)
               ? 0
               : err_sys(e, errno, "watch the broker's socket");
}

// The order: the configuration first, because all other steps need it. Programs and cgroups are opened by path before
// the tree step hides these paths. The time namespace is made before the first child.
static int (*const steps[])(struct start *, struct err *) = {
    step_root,  step_config,  step_daemon,   step_state_dir, step_basics,
    step_guest, step_cgroups, step_features, step_filters,   step_tree,
    step_time,  step_slots,   step_disks,    step_relay,     step_broker,
};

static int
start(struct start *st, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && r == 0; i++)
        r = steps[i](st, e);
    return r;
}

// The reverse of the start, as far as it came: the relay, unneeded replies, sandboxes and their cgroups.
static int
take_down(struct spawner *s, struct err *e)
{
    relay_process_stop(s);
    answers_drop(s);
    slots_drop(s);
    disk_process_stop(s);
    disks_free(s->disks);
    tree_free(s->tree);
    free(s->guest_filter.code);
    return s->cgroups.fd < 0 ? 0 : cgroup_close(&s->cgroups, e);
}

static bool
answer_failed(const struct err *e)
{
    const struct spawn_reply r = {.op = SPAWN_CONFIGURE, .err = *e};
    return send(SPAWN_SOCKET_FD, &r, sizeof r, MSG_NOSIGNAL) > 0;
}

// Replies to the configuration: the features, and the descriptors that they list. The spawner keeps those that a
// relay needs.
static bool
answer_config(struct spawner *s, struct spawn_features *f)
{
    static struct spawn_configured answer = {.reply = {.op = SPAWN_CONFIGURE, .ok = 1}};
    int fds[BPF_FDS];
    unsigned n = 0;
    for (int i = 0; i < BPF_FDS; i++) {
        if (s->programs.map[i] < 0)
            continue;
        f->bpf_fds |= 1u << i;
        fds[n++] = s->programs.map[i];
    }
    answer.features = *f;
    const struct fdpass m = {&answer, sizeof answer, fds, n};
    bool sent = fdpass_send(SPAWN_SOCKET_FD, &m, 0) == 0;
    for (int i = 0; i < BPF_FDS; i++) {
        if (i != BPF_FD_NAMES)
            io_close(&s->programs.map[i]);
    }
    return sent;
}

// Handles one event. False: the broker has ended.
static bool
handle(struct spawner *s, const struct epoll_event *ev)
{
    enum event_kind kind = (enum event_kind)(ev->data.u64 >> 32);
    if (kind == EVENT_BROKER) {
        if (!s->reading)
            answers_flush(s);
        return !s->reading || request_read(s);
    }
    static void (*const others[])(struct spawner *) = {
        [EVENT_ATTACHER] = programs_attached,
        [EVENT_RELAY] = relay_process_ended,
        [EVENT_READER] = reader_process_ended,
        [EVENT_READER_ASKS] = reader_process_asks,
    };
    if (kind == EVENT_DISK) {
        disk_process_heard(s, (uint32_t)ev->data.u64);
        return true;
    }
    static void (*const reaped[])(struct spawner *, int pid_fd) = {
        [EVENT_HELPER] = swap_helper_ended,
        [EVENT_KEEPER] = keeper_process_ended,
        [EVENT_FETCHER] = fetcher_process_ended,
    };
    if (kind == EVENT_HELPER || kind == EVENT_KEEPER || kind == EVENT_FETCHER) {
        reaped[kind](s, (int)(uint32_t)ev->data.u64);
        return true;
    }
    if (kind >= EVENT_ATTACHER) {
        others[kind](s);
        return true;
    }
    struct slot *slot = &s->slots[(uint32_t)ev->data.u64];
    if (kind == EVENT_CHANNEL) {
        birth_heard(s, slot);
        return true;
    }
    if (slot->state == SLOT_BORN)
        birth_ended(s, slot);
    process_ended(s, slot);
    return true;
}

// -1: never.
static int
sooner(int a_ms, int b_ms)
{
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void
serve(struct spawner *s)
{
    struct epoll_event events[EVENTS_PER_TURN];
    for (;;) {
        int timeout_ms = polled_look(s);
        births_start(s);
        int leaves_ms = cgroup_leaf_tidy(&s->cgroups);
        timeout_ms = sooner(timeout_ms, leaves_ms);
        timeout_ms = sooner(timeout_ms, fetcher_process_look(s));
        timeout_ms = sooner(timeout_ms, scratch_look(s));
        // Network namespaces are made in advance while the spawner is idle; under load, children make their own, in
        // parallel.
        bool fill = s->births == 0 && s->net_n < s->config->netns_pool &&
                    (timeout_ms < 0 || timeout_ms > QUIET_MS);
        int n = epoll_wait(s->epoll_fd, events, EVENTS_PER_TURN, fill ? QUIET_MS : timeout_ms);
        if (n == 0 && fill && !netns_fill(s))
            n = epoll_wait(s->epoll_fd, events, EVENTS_PER_TURN, timeout_ms);
        for (int i = 0; i < n; i++) {
            if (!handle(s, &events[i]))
                return;
        }
    }
}

int
main(void)
{
    static struct spawner s;
    static struct spawn_config config;
    static struct spawn_features features;
    struct err e = {.code = ERR_OK};
    s.cgroups.fd = s.cgroups.lock_fd = s.cgroups.relay_fd = -1;
    s.programs = (struct programs){.flows_fd = -1,
                                   .syscalls_fd = -1,
                                   .syscalls_link_fd = -1,
                                   .attacher_fd = -1,
                                   .said_fd = -1,
                                   .say_fd = -1};
    memset(s.programs.map, 0xff, sizeof s.programs.map); // sets each to -1
    s.relay_fd = s.reader_fd = s.reader_asks_fd = s.fetcher_fd = s.ids_fd = -1;
    struct start st = {&s, &config, &features};
    int status = 0;
    if (start(&st, &e) < 0) {
        (void)answer_failed(&e);
        status = 1;
    } else if (answer_config(&s, &features)) {
        serve(&s);
    }
    if (take_down(&s, &e) < 0) {
        (void)fprintf(stderr, "stockade-spawner: clean up: %s\n", e.text);
        status = 1;
    }
    leak_judge();
    return status;
}
