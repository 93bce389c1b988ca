// SPDX-License-Identifier: Apache-2.0
// See objects.h. Skeletons come from the build (bpf/CMakeLists.txt): each holds its object's bytes.
#include "objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "bpf/emit.h"

// Defines the function that opens an object. It sets the constants before the object is loaded.
#define OPEN(name)                                                                                 \
    static struct bpf_object *open_##name(const struct load_settings *p)                           \
    {                                                                                              \
        static struct name##_bpf *skeleton; /* never freed: the process exits soon */              \
        skeleton = name##_bpf__open();                                                             \
        if (!skeleton)                                                                             \
            return NULL;                                                                           \
        skeleton->rodata->sandbox_level = p->level;                                                \
        skeleton->rodata->sandbox_parent = p->parent;                                              \
        return skeleton->obj;                                                                      \
    }

#ifdef STOCKADE_BPF_net
#include "net.skel.h"
OPEN(net)
#endif
#ifdef STOCKADE_BPF_net_unix
#include "net_unix.skel.h"
OPEN(net_unix)

// Attach types of Linux 6.7 (linux/bpf.h). libbpf has section names for them only since 1.3.
enum { UNIX_CONNECT = 49, UNIX_SENDMSG = 50 };

static struct bpf_object *
open_unix(const struct load_settings *p)
{
    struct bpf_object *o = open_net_unix(p);
    struct bpf_program *program = NULL;
    if (!o)
        return NULL;
    bpf_object__for_each_program(program, o)
    {
        bool connects = strcmp(bpf_program__name(program), "net_unix_connect") == 0;
        (void)bpf_program__set_expected_attach_type(
            program, (enum bpf_attach_type)(connects ? UNIX_CONNECT : UNIX_SENDMSG));
    }
    return o;
}
#endif
#ifdef STOCKADE_BPF_net_relay
#include "net_relay.skel.h"

static struct bpf_object *
open_relay(const struct load_settings *p)
{
    (void)p;
    static const struct net_relay_bpf *skeleton; // never freed: see above
    skeleton = net_relay_bpf__open();
    return skeleton ? skeleton->obj : NULL;
}
#endif
#ifdef STOCKADE_BPF_watch
#include "watch.skel.h"
OPEN(watch)
#endif

const struct object objects[] = {
#ifdef STOCKADE_BPF_net
    {"bpf-net", BPF_HAS_NET, true, false, "sockets, packets and devices of sandboxes are checked",
     "sandboxes have no network: \"allowlist\" and \"open\" are refused", NULL, open_net},
#endif
#ifdef STOCKADE_BPF_net_relay
    {"bpf-relay", BPF_HAS_GUARD, true, true,
     "the relay reaches special addresses only if a rule names them", "the relay is not available",
     NULL, open_relay},
#endif
#ifdef STOCKADE_BPF_net_unix
    {"bpf-unix", BPF_HAS_UNIX, true, false, "unix sockets of sandboxes are checked",
     "only namespaces isolate unix sockets (Linux 6.7 can check them)",
     "bpf_sock_addr_set_sun_path", open_unix},
#endif
#ifdef STOCKADE_BPF_watch
    {"bpf-watch", BPF_HAS_WATCH, false, false,
     "exec, fork, exit and similar events are counted and reported",
     "telemetry has only the counters of cgroups", NULL, open_watch},
#endif
};
const unsigned objects_n = sizeof objects / sizeof objects[0];

const char *const map_names[BPF_FDS] = {
    [BPF_FD_SANDBOXES] = "sandboxes",
    [BPF_FD_RULES] = "rules",
    [BPF_FD_NAMES] = "names",
    [BPF_FD_FLOWS] = "flows",
    [BPF_FD_NET_COUNTERS] = "net_counters",
    [BPF_FD_ALERTS] = "alerts",
    [BPF_FD_EVENTS] = "events",
    [BPF_FD_BUDGET_RATES] = "budget_rates",
    [BPF_FD_LOST] = "lost",
    [BPF_FD_CELLS] = "cells",
    [BPF_FD_ACCOUNTS] = "accounts",
    [BPF_FD_ACCOUNTS_FREE] = "accounts_free",
    [BPF_FD_EXES] = "exes",
    [BPF_FD_PROFILES] = "profiles",
    [BPF_FD_PROFILE_STATES] = "profile_states",
    [BPF_FD_SENSITIVE] = "sensitive",
    [BPF_FD_OWN] = "own",
    [BPF_FD_SENSITIVE_HINTS] = "sensitive_hints",
    [BPF_FD_NAMED] = "named",
    [BPF_FD_MARKS] = "marks",
    [BPF_FD_CALLS] = ".data.calls",
};

// Data of a program is for that program alone, unless the broker writes it.
static bool
is_private(const struct bpf_map *map)
{
    return bpf_map__is_internal(map) && strcmp(bpf_map__name(map), map_names[BPF_FD_CALLS]) != 0;
}

int
maps_find(const struct shared_maps *m, const char *name)
{
    for (unsigned i = 0; i < m->n; i++) {
        if (strcmp(m->map[i].name, name) == 0)
            return m->map[i].fd;
    }
    return -1;
}

int
maps_reuse(const struct shared_maps *m, struct bpf_object *o, struct err *e)
{
    struct bpf_map *map = NULL;
    bpf_object__for_each_map(map, o)
    {
        const char *name = bpf_map__name(map);
        int fd = is_private(map) ? -1 : maps_find(m, name);
        int r = 0;
        if (fd >= 0)
            r = bpf_map__reuse_fd(map, fd);
        else if (strcmp(name, map_names[BPF_FD_LOST]) == 0)
            r = bpf_map__set_max_entries(map, LOST_PER_CPU * (uint32_t)libbpf_num_possible_cpus());
        if (r < 0)
            return err_sys(e, -r, "share map \"%s\"", name);
    }
    return 0;
}

int
maps_keep(struct shared_maps *m, const struct bpf_object *o, struct err *e)
{
    struct bpf_map *map = NULL;
    bpf_object__for_each_map(map, o)
    {
        const char *name = bpf_map__name(map);
        if (is_private(map) || maps_find(m, name) >= 0)
            continue;
        if (m->n == sizeof m->map / sizeof m->map[0])
            return err_sys(e, E2BIG, "keep map \"%s\"", name);
        struct shared_map *kept = &m->map[m->n];
        (void)snprintf(kept->name, sizeof kept->name, "%s", name);
        kept->fd = fcntl(bpf_map__fd(map), F_DUPFD_CLOEXEC, LOAD_RELAY_FD + 1);
        if (kept->fd < 0)
            return err_sys(e, errno, "keep map \"%s\"", name);
        m->n++;
    }
    return 0;
}
