// SPDX-License-Identifier: Apache-2.0
// The network programs alone, on a cgroup of the test's own, in a network namespace with nothing but loopback: no broker,
// no relay. What the loader and the broker do with the maps, the test does; a listener at NET_RELAY_PORT stands for the
// relay.
//
//   V2/stockade-net-PID/box/     the container, and a sandbox in it: two below the top
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "net.skel.h"
#include "bpf/emit.h"
#include "bpf/net.h"

struct net_rig {
    struct net_bpf *bpf;
    char parent[128], box[160];
    uint64_t id;        // of the sandbox's cgroup
    uint32_t flows_max; // room in map "flows"; 0: as it is
    bool attached;
};

int net_rig_command(const char *line);

// Attaches all programs to the container, or detaches them. 0 or a negative errno.
int net_rig_attach(struct net_rig *r, bool on);

// Makes the cgroups, loads the programs and attaches them, and returns r. Where that cannot be it ends the program: as
// skipped, or as failed on a kernel that must have it.
struct net_rig *net_rig_open(struct net_rig *r);

// A teardown of cmocka's groups, whose state is a rig. It fails if a cgroup is left.
int net_rig_close(void **state);

// The sandbox's entry; NULL: none.
int net_rig_put(const struct net_rig *r, const struct bpf_sandbox *b);

// This process belongs to the sandbox from now on, and the sockets that it makes.
bool net_rig_enter(const struct net_rig *r);

// A namespace of this process' own, where flow addresses are local as the spawner makes them.
int net_rig_namespace(void);

// A listener of both families, -1: none. Datagrams: bound.
int net_rig_listener(int type, int protocol, uint16_t port);

// One of the host's own addresses; host: "host" means it.
int net_rig_own(const struct net_rig *r, const char *address, bool host);

// A rule for one address: every port of a range.
int net_rig_allow(const struct net_rig *r, uint32_t rule_set, const char *address, uint16_t first,
                  uint16_t last);
