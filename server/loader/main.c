// SPDX-License-Identifier: Apache-2.0
// stockade-loader: loads the BPF programs, attaches them to the cgroup that holds the sandboxes and to the relay's,
// passes the descriptors to the spawner and exits. See load.h.
//
//   order -> each object: open, share maps, load, attach -> fill maps that must not be empty -> report
//
// An object that does not load or attach is reported as a missing feature. If it is useless unless complete, its
// attached programs are detached again. This process fails only if it cannot communicate with the spawner.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "bpf/emit.h"
#include "bpf/watch.h"
#include "proto/fdpass.h"
#include "load.h"
#include "objects.h"

struct loader {
    struct load_settings settings;
    struct shared_maps maps;
    struct btf *kernel;
    int syscalls_fd;
    // never freed, like the objects: the process exits soon
    struct bpf_link *links[LOAD_LINKS_MAX];
    struct bpf_object *objects[LOAD_FEATURES_MAX];
    struct load_report report;
};

static struct loader loader = {.syscalls_fd = -1};

// Keeps libbpf's warnings, including the verifier's log, as far as there is room. Its less important messages are
// ignored.
static __attribute__((format(printf, 2, 0))) int
on_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
    char *log = loader.report.log;
    size_t n = strlen(log);
    if (level != LIBBPF_WARN || n + 1 >= sizeof loader.report.log)
        return 0;
    return vsnprintf(log + n, sizeof loader.report.log - n, fmt, ap);
}

static void
add_feature(const char *name, bool available, bool weaker, const char *detail, const char *why)
{
    struct load_report *r = &loader.report;
    if (r->features_n == LOAD_FEATURES_MAX)
        return;
    struct spawn_feature *f = &r->feature[r->features_n++];
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    (void)snprintf(f->detail, sizeof f->detail, "%s%s%s", detail, why[0] ? ": " : "", why);
    f->available = available;
    f->degraded = weaker;
}

// Removes the programs from the object whose tracepoint this kernel was built without. "": none.
static void
leave_out(struct bpf_object *o, char *left, size_t left_n)
{
    struct bpf_program *p = NULL;
    left[0] = '\0';
    bpf_object__for_each_program(p, o)
    {
        const char *section = bpf_program__section_name(p);
        char type[96];
        if (strncmp(section, "tp_btf/", 7) != 0)
            continue;
        (void)snprintf(type, sizeof type, "btf_trace_%s", section + 7);
        if (!loader.kernel || btf__find_by_name_kind(loader.kernel, type, BTF_KIND_TYPEDEF) >= 0)
            continue;
        (void)bpf_program__set_autoload(p, false);
        size_t n = strlen(left);
        (void)snprintf(left + n, left_n - n, "%s%s", n ? ", " : "", section + 7);
    }
}

static bool
is_cgroup_program(const struct bpf_program *p)
{
    switch ((int)bpf_program__type(p)) {
    case BPF_PROG_TYPE_CGROUP_SKB:
    case BPF_PROG_TYPE_CGROUP_SOCK:
    case BPF_PROG_TYPE_CGROUP_SOCK_ADDR:
    case BPF_PROG_TYPE_CGROUP_SOCKOPT:
    case BPF_PROG_TYPE_CGROUP_DEVICE:
    case BPF_PROG_TYPE_SOCK_OPS:
        return true;
    default:
        return false;
    }
}

// Attaches one program by a link. A hook can have many links (always with BPF_F_ALLOW_MULTI semantics), and all
// programs must allow.
static int
attach_one(const struct bpf_program *p, int cgroup_fd, struct err *e)
{
    struct load_report *r = &loader.report;
    if (r->links_n == LOAD_LINKS_MAX)
        return err_sys(e, E2BIG, "attach %s", bpf_program__name(p));
    struct bpf_link *link =
        is_cgroup_program(p) ? bpf_program__attach_cgroup(p, cgroup_fd) : bpf_program__attach(p);
    if (!link)
        return err_sys(e, errno, "attach %s", bpf_program__name(p));
    loader.links[r->links_n++] = link;
    return 0;
}

// Attaches all programs of an object. If the object is useful in parts, a failure does not detach the others.
static int
attach_all(const struct object *row, struct bpf_object *o, struct err *e)
{
    unsigned before = loader.report.links_n;
    int cgroup_fd = row->of_relay ? loader.settings.relay_fd : loader.settings.cgroup_fd;
    struct bpf_program *p = NULL;
    int r = 0;
    bpf_object__for_each_program(p, o)
    {
        struct err why;
        if (!bpf_program__autoload(p))
            continue;
        if (strcmp(bpf_program__name(p), LOAD_SYSCALLS_PROGRAM) == 0) {
            loader.syscalls_fd = bpf_program__fd(p);
            continue;
        }
        if (attach_one(p, cgroup_fd, &why) == 0)
            continue;
        if (r == 0)
            *e = why;
        r = err_errno(&why);
        if (row->whole)
            break;
    }
    while (r < 0 && row->whole && loader.report.links_n > before)
        (void)bpf_link__destroy(loader.links[--loader.report.links_n]);
    return r;
}

static bool
kernel_takes(const struct object *row)
{
    return row->needs == NULL || !loader.kernel ||
           btf__find_by_name_kind(loader.kernel, row->needs, BTF_KIND_FUNC) >= 0;
}

static void
load_one(const struct object *row)
{
    struct err e = {.code = ERR_OK};
    char left[128] = "";
    if (!kernel_takes(row)) { // the kernel is too old for it, which is not an error
        add_feature(row->feature, false, false, row->absent, "");
        return;
    }
    struct bpf_object *o = row->open(&loader.settings);
    loader.objects[row - objects] = o;
    int r = o ? 0 : err_sys(&e, errno, "open");
    if (r == 0) {
        leave_out(o, left, sizeof left);
        r = maps_reuse(&loader.maps, o, &e);
    }
    if (r == 0) {
        r = bpf_object__load(o);
        if (r < 0)
            (void)err_sys(&e, -r, "load");
    }
    if (r == 0)
        r = maps_keep(&loader.maps, o, &e);
    if (r < 0) {
        add_feature(row->feature, false, true, row->absent, e.text);
        return;
    }
    r = attach_all(row, o, &e);
    bool usable = r == 0 || !row->whole;
    if (usable)
        loader.report.bpf |= row->bit;
    if (r < 0)
        add_feature(row->feature, usable, true, usable ? row->present : row->absent, e.text);
    else
        add_feature(row->feature, true, false, row->present, left[0] ? "without " : "");
    if (r == 0 && left[0]) {
        struct spawn_feature *f = &loader.report.feature[loader.report.features_n - 1];
        size_t n = strlen(f->detail);
        (void)snprintf(f->detail + n, sizeof f->detail - n, "%s", left);
    }
}

// The budget of each class in a sandbox until the broker changes it.
static const struct budget_rate rates[EVENT_CLASSES] = {
    [CLASS_DENIAL] = {50, 200}, [CLASS_ALARM] = {50, 200},     [CLASS_PROCESS] = {500, 2000},
    [CLASS_FILE] = {100, 500},  [CLASS_NETWORK] = {200, 1000}, [CLASS_SIGNAL] = {50, 200},
    [CLASS_EXIT] = {500, 2000}, [CLASS_NEW] = {50, 200},
};

static void
fill_maps(void)
{
    int rates_fd = maps_find(&loader.maps, "budget_rates");
    int free_fd = maps_find(&loader.maps, "accounts_free");
    for (uint32_t i = 0; rates_fd >= 0 && i < EVENT_CLASSES; i++)
        (void)bpf_map_update_elem(rates_fd, &i, &rates[i], BPF_ANY);
    for (uint32_t i = 0; free_fd >= 0 && i < WATCH_ACCOUNTS; i++)
        (void)bpf_map_update_elem(free_fd, NULL, &i, BPF_ANY);
}

// A second, read-only descriptor of "flows", for the relay.
static int
open_flows(void)
{
    struct bpf_map_info info = {0};
    uint32_t n = sizeof info;
    int fd = maps_find(&loader.maps, "flows");
    LIBBPF_OPTS(bpf_get_fd_by_id_opts, options, .open_flags = BPF_F_RDONLY);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &n) < 0)
        return -1;
    return bpf_map_get_fd_by_id_opts(info.id, &options);
}

// Sorts the descriptors into the order of load.h.
static unsigned
gather(int fds[LOAD_FDS_MAX])
{
    struct load_report *r = &loader.report;
    unsigned n = 0;
    for (int i = 0; i < BPF_FDS; i++) {
        int fd = map_names[i] ? maps_find(&loader.maps, map_names[i]) : -1;
        if (fd < 0)
            continue;
        r->maps |= 1u << i;
        fds[n++] = fd;
    }
    int flows = open_flows();
    if (flows >= 0) {
        r->flows = 1;
        fds[n++] = flows;
    }
    if (loader.syscalls_fd >= 0) {
        r->syscalls = 1;
        r->bpf |= BPF_HAS_SYSCALLS;
        fds[n++] = loader.syscalls_fd;
    }
    for (unsigned i = 0; i < r->links_n; i++)
        fds[n++] = bpf_link__fd(loader.links[i]);
    return n;
}

int
main(void)
{
    struct load_order order;
    struct stat st;
    int fds[LOAD_FDS_MAX];
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (recv(LOAD_SOCKET_FD, &order, sizeof order, 0) != (ssize_t)sizeof order ||
        fstat(LOAD_CGROUP_FD, &st) < 0)
        return 70;
    loader.settings =
        (struct load_settings){order.sandbox_level, st.st_ino, LOAD_CGROUP_FD, LOAD_RELAY_FD};
    (void)libbpf_set_print(on_print);
    loader.kernel = btf__load_vmlinux_btf();
    for (unsigned i = 0; i < objects_n; i++)
        load_one(&objects[i]);
    bool syscalls = loader.syscalls_fd >= 0;
    add_feature("bpf-syscalls", syscalls, !syscalls,
                syscalls ? "system calls are counted on request" : "system calls are not counted",
                "");
    fill_maps();
    const struct fdpass m = {&loader.report, sizeof loader.report, fds, gather(fds)};
    return fdpass_send(LOAD_SOCKET_FD, &m, 0) == 0 ? 0 : 1;
}
