// SPDX-License-Identifier: Apache-2.0
// Only the network programs, on a cgroup of the test, in a network namespace with only a loopback interface: no
// broker, no relay. The test itself fills the maps like the loader and the broker; a listener at NET_RELAY_PORT
// replaces the relay.
//
//   V2/stockade-net-PID/box/     the container with a sandbox, two levels below the root
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
    uint32_t flows_max; // entries of map "flows"; 0: unchanged
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

// Writes the sandbox's entry; NULL: none.
int net_rig_put(const struct net_rig *r, const struct bpf_sandbox *b);

// Moves this process into the sandbox's cgroup, and with it the sockets that it makes.
bool net_rig_enter(const struct net_rig *r);

// Makes a namespace for this process, in which flow addresses are local, as in a sandbox.
int net_rig_namespace(void);

// Opens a listener of both families; -1: failed. Datagrams: a bound socket.
int net_rig_listener(int type, int protocol, uint16_t port);

// Adds one of the host's own addresses; host: "host" includes it.
int net_rig_own(const struct net_rig *r, const char *address, bool host);

// Adds a rule for one address: every port of a range.
int net_rig_allow(const struct net_rig *r, uint32_t rule_set, const char *address, uint16_t first,
                  uint16_t last);
