// SPDX-License-Identifier: Apache-2.0
// See watch_rig.h.
#include "tests/harness/watch_rig.h"

__attribute__((format(printf, 2, 3))) static void
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

const struct rig_cgroup *
rig_cgroup(struct rig *r, const char *parent, const char *name)
{
    rig_must(r->cgroups_n < RIG_CGROUPS, "too many cgroups");
    struct rig_cgroup *c = &r->cgroups[r->cgroups_n];
    char path[RIG_PATH]; // its parent is in the same array
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

void
rig_put(const struct bpf_map *map, const void *key, const void *value)
{
    rig_must(bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY) == 0, "write map %s",
             bpf_map__name(map));
}

const struct rig_cgroup *
rig_box(struct rig *r, const char *name, struct bpf_sandbox entry)
{
    const struct rig_cgroup *c = rig_cgroup(r, r->cgroups[1].path, name);
    rig_put(r->bpf->maps.sandboxes, &c->id, &entry);
    return c;
}

void
rig_budget(struct rig *r, uint32_t class, uint32_t per_second, uint32_t burst)
{
    struct budget_rate rate = {per_second, burst};
    rig_put(r->bpf->maps.budget_rates, &class, &rate);
}

static void *
rig_map(const struct bpf_map *map)
{
    size_t bytes = (size_t)bpf_map__max_entries(map) * ((bpf_map__value_size(map) + 7) / 8 * 8);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    rig_must(at != MAP_FAILED, "mmap %s", bpf_map__name(map));
    return at;
}

const char *
rig_v2(void)
{
    struct statfs s;
    const char *hybrid = "/sys/fs/cgroup/unified";
    return statfs(hybrid, &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC ? hybrid : "/sys/fs/cgroup";
}

static void
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

void
rig_start(struct rig *r)
{
    char name[60];
    memset(r, 0, sizeof *r);
    (void)snprintf(name, sizeof name, "stockade-rig-%d", (int)getpid());
    const struct rig_cgroup *top = rig_cgroup(r, rig_v2(), name);
    rig_cgroup(r, top->path, "in");
    rig_load(r);
}

void
rig_attach(struct rig *r)
{
    rig_must(watch_bpf__attach(r->bpf) == 0, "attach watch.bpf.o");
}

void
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

pid_t
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

int
rig_wait(pid_t pid)
{
    int status = -1;
    rig_must(waitpid(pid, &status, 0) == pid, "wait");
    return status;
}

int
rig_run(const struct rig_cgroup *c, int (*fn)(void *), void *arg)
{
    return rig_wait(rig_spawn(c, fn, arg));
}

const struct watch_account *
rig_account(const struct rig *r, const struct rig_cgroup *c)
{
    struct watch_cell cell;
    if (bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.cells), &c->id, &cell) < 0)
        return NULL;
    return &r->accounts[cell.account];
}

uint64_t
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
static void
rig_remove(struct rig_cgroup *c)
{
    if (c->fd < 0)
        return;
    (void)close(c->fd);
    c->fd = -1;
    wait_until(c->path, rmdir(c->path) == 0 || errno != EBUSY);
}

void
rig_stop(struct rig *r)
{
    rig_calls(r, false);
    watch_bpf__destroy(r->bpf);
    while (r->cgroups_n > 0)
        rig_remove(&r->cgroups[--r->cgroups_n]);
}
