// SPDX-License-Identifier: Apache-2.0
// The objects of bpf/, how they are opened, and the maps that they share. For main.c alone.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <bpf/libbpf.h>

#include "../../proto/err.h"
#include "load.h"

// What is the same for every object.
struct place {
    uint32_t level;  // of a sandbox's cgroup
    uint64_t parent; // id of the cgroup that holds them
    int cgroup_fd;
    int relay_fd; // the relay's cgroup
};

struct object {
    const char *feature;
    uint32_t bit;  // enum spawn_bpf
    bool whole;    // of no use unless every program of it is attached
    bool of_relay; // attached to the relay's cgroup, not to that of the sandboxes
    const char *present;
    const char *absent; // what its absence means
    const char *needs;  // a function of the kernels that take it, NULL: all do
    struct bpf_object *(*open)(const struct place *p);
};

extern const struct object objects[];
extern const unsigned objects_n;

// Program of the object "watch" that is left unattached, for SPAWN_WATCH.
#define LOAD_SYSCALLS_PROGRAM "watch_sys_exit"

// Maps of all objects, by name. fd: owned.
struct shared_map {
    char name[32];
    int fd;
};
struct shared_maps {
    unsigned n;
    struct shared_map map[64];
};

// Before the load: maps that an earlier object made take the place of this one's.
int maps_reuse(const struct shared_maps *m, struct bpf_object *o, struct err *e);
// After it: keeps those that are new.
int maps_keep(struct shared_maps *m, const struct bpf_object *o, struct err *e);
// -1: no such map.
int maps_find(const struct shared_maps *m, const char *name);

// The name of each map that the spawner gets, by enum spawn_bpf_fd.
extern const char *const map_names[BPF_FDS];
