// SPDX-License-Identifier: Apache-2.0
// The telemetry programs alone, on cgroups of the test's own: no broker, no spawner. What the loader and the broker do with
// the maps, the test does.
//
//   V2/stockade-rig-PID/in/      the container; sandboxes are two below the top
//       NAME/                    a sandbox: rig_box()
//           guest, job-1, ...    rig_cgroup()
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../../bpf/emit.h"
#include "../../bpf/watch.h"
#include "watch.skel.h"

enum { RIG_PATH = 400, RIG_CGROUPS = 128, RIG_SANDBOX_LEVEL = 3 };

struct rig_cgroup {
    char path[RIG_PATH];
    uint64_t id;
    int fd; // of the directory
};

struct rig {
    struct watch_bpf *bpf;
    struct bpf_link *calls; // of watch_sys_exit, while it is attached
    const struct watch_account *accounts;
    struct watch_profile_state *profile_states;
    struct watch_profile *profiles;
    struct rig_cgroup cgroups[RIG_CGROUPS];
    size_t cgroups_n;
};

__attribute__((format(printf, 2, 3))) static inline void
rig_must(bool fine, const char *fmt, ...)
{
    if (fine)
        return;
    int e = errno;
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    va_end(ap);
    (void)fprintf(stderr, ": %s\n", strerror(e));
    abort();
}

// A cgroup, gone again with rig_stop().
static inline const struct rig_cgroup *
rig_cgroup(struct rig *r, const char *parent, const char *name)
{
    rig_must(r->cgroups_n < RIG_CGROUPS, "too many cgroups");
    struct rig_cgroup *c = &r->cgroups[r->cgroups_n];
    char path[RIG_PATH]; // the parent's is in the same array
    struct stat s = {0};
    (void)snprintf(path, sizeof path, "%.300s/%.60s", parent, name);
    memcpy(c->path, path, sizeof path);
    rig_must(mkdir(c->path, 0755) == 0, "mkdir %s", c->path);
    r->cgroups_n++;
    c->fd = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rig_must(c->fd >= 0 && fstat(c->fd, &s) == 0, "open %s", c->path);
    c->id = s.st_ino;
    return c;
}

static inline void
rig_put(const struct bpf_map *map, const void *key, const void *value)
{
    rig_must(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY) == 0, "write map %s",
             bpf_map__name(map));
}

// A sandbox: its cgroup, and the entry that the broker would write.
static inline const struct rig_cgroup *
rig_box(struct rig *r, const char *name, struct bpf_sandbox entry)
{
    const struct rig_cgroup *c = rig_cgroup(r, r->cgroups[1].path, name);
    rig_put(r->bpf->maps.sandboxes, &c->id, &entry);
    return c;
}

static inline void
rig_budget(struct rig *r, uint32_t class, uint32_t per_second, uint32_t burst)
{
    struct budget_rate rate = {per_second, burst};
    rig_put(r->bpf->maps.budget_rates, &class, &rate);
}

static inline void *
rig_map(const struct bpf_map *map)
{
    size_t bytes = (size_t)bpf_map__max_entries(map) * ((bpf_map__value_size(map) + 7) / 8 * 8);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    rig_must(at != MAP_FAILED, "mmap %s", bpf_map__name(map));
    return at;
}

static inline const char *
rig_v2(void)
{
    struct statfs s;
    const char *hybrid = "/sys/fs/cgroup/unified";
    return statfs(hybrid, &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC ? hybrid : "/sys/fs/cgroup";
}

static inline void
rig_load(struct rig *r)
{
    r->bpf = watch_bpf__open();
    rig_must(r->bpf != NULL, "open watch.bpf.o");
    r->bpf->rodata->sandbox_level = RIG_SANDBOX_LEVEL;
    r->bpf->rodata->sandbox_parent = r->cgroups[1].id;
    bpf_program__set_autoattach(r->bpf->progs.watch_sys_exit, false);
    rig_must(bpf_map__set_max_entries(r->bpf->maps.lost,
                                      LOST_PER_CPU * (uint32_t)libbpf_num_possible_cpus()) == 0,
             "room for each CPU");
    rig_must(watch_bpf__load(r->bpf) == 0, "load watch.bpf.o");
    for (uint32_t i = 0; i < WATCH_ACCOUNTS; i++)
        rig_put(r->bpf->maps.accounts_free, NULL, &i);
    r->accounts = rig_map(r->bpf->maps.accounts);
    r->profile_states = rig_map(r->bpf->maps.profile_states);
    r->profiles = rig_map(r->bpf->maps.profiles);
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        rig_budget(r, class, 1000, 1000);
}

// Makes the container, loads everything, attaches nothing.
static inline void
rig_start(struct rig *r)
{
    char name[60];
    memset(r, 0, sizeof *r);
    (void)snprintf(name, sizeof name, "stockade-rig-%d", (int)getpid());
    const struct rig_cgroup *top = rig_cgroup(r, rig_v2(), name);
    rig_cgroup(r, top->path, "in");
    rig_load(r);
}

static inline void
rig_attach(struct rig *r)
{
    rig_must(watch_bpf__attach(r->bpf) == 0, "attach watch.bpf.o");
}

static inline void
rig_calls(struct rig *r, bool on)
{
    if (on && !r->calls) {
        r->calls = bpf_program__attach(r->bpf->progs.watch_sys_exit);
        rig_must(r->calls != NULL, "attach watch_sys_exit");
    } else if (!on) {
        (void)bpf_link__destroy(r->calls);
        r->calls = NULL;
    }
}

// A child that is born in a cgroup. It runs `fn` and ends with what that returns; it should make no call but through
// syscall(2), so that the test knows how many there are.
static inline pid_t
rig_spawn(const struct rig_cgroup *c, int (*fn)(void *), void *arg)
{
    struct clone_args a = {.exit_signal = SIGCHLD, .cgroup = (__u64)(unsigned int)c->fd};
    a.flags = CLONE_INTO_CGROUP;
    pid_t pid = (pid_t)syscall(SYS_clone3, &a, sizeof a);
    rig_must(pid >= 0, "clone3 into %s", c->path);
    if (pid == 0) {
        int code = fn(arg);
        (void)syscall(SYS_exit_group, code);
    }
    return pid;
}

static inline int
rig_wait(pid_t pid)
{
    int status = -1;
    rig_must(waitpid(pid, &status, 0) == pid, "wait");
    return status;
}

static inline int
rig_run(const struct rig_cgroup *c, int (*fn)(void *), void *arg)
{
    return rig_wait(rig_spawn(c, fn, arg));
}

// NULL: the kernel has given it none.
static inline const struct watch_account *
rig_account(const struct rig *r, const struct rig_cgroup *c)
{
    struct watch_cell cell;
    if (bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.cells), &c->id, &cell) < 0)
        return NULL;
    return &r->accounts[cell.account];
}

static inline uint64_t
rig_lost(const struct rig *r, uint32_t slot, uint32_t class)
{
    uint32_t cpus = (uint32_t)libbpf_num_possible_cpus();
    uint64_t sum = 0;
    for (uint32_t cpu = 0; cpu < cpus; cpu++) {
        uint32_t at = lost_at(cpu, slot, class);
        uint64_t n = 0;
        rig_must(bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.lost), &at, &n) == 0, "read lost");
        sum += n;
    }
    return sum;
}

// Removes a cgroup as soon as the last process has left it.
static inline void
rig_remove(struct rig_cgroup *c)
{
    if (c->fd < 0)
        return;
    (void)close(c->fd);
    c->fd = -1;
    for (int i = 0; rmdir(c->path) != 0 && errno == EBUSY && i < 2000; i++)
        (void)usleep(5000);
}

static inline void
rig_stop(struct rig *r)
{
    rig_calls(r, false);
    watch_bpf__destroy(r->bpf);
    while (r->cgroups_n > 0)
        rig_remove(&r->cgroups[--r->cgroups_n]);
}
