// SPDX-License-Identifier: Apache-2.0
// The objects of bpf/, the functions that open them, and the maps that they share. Only for main.c.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <bpf/libbpf.h>

#include "proto/err.h"
#include "load.h"

// Common settings of all objects.
struct load_settings {
    uint32_t level;  // of a sandbox's cgroup
    uint64_t parent; // id of the cgroup that holds them
    int cgroup_fd;
    int relay_fd; // the relay's cgroup
};

struct object {
    const char *feature;
    uint32_t bit;  // enum spawn_bpf
    bool whole;    // useless unless every program of it is attached
    bool of_relay; // attached to the relay's cgroup, not to that of the sandboxes
    const char *present;
    const char *absent; // consequences of its absence
    const char *needs;  // a kernel function that exists if the kernel supports it; NULL: all do
    struct bpf_object *(*open)(const struct load_settings *p);
};

extern const struct object objects[];
extern const unsigned objects_n;

// The program of the object "watch" that the loader does not attach; the spawner attaches it for SPAWN_WATCH.
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

// Before the load: replaces the maps of this object by those of earlier objects with the same names.
int maps_reuse(const struct shared_maps *m, struct bpf_object *o, struct err *e);
// After the load: stores the new ones.
int maps_keep(struct shared_maps *m, const struct bpf_object *o, struct err *e);
// -1: not found.
int maps_find(const struct shared_maps *m, const char *name);

// The names of the maps for the spawner, by enum spawn_bpf_fd.
extern const char *const map_names[BPF_FDS];
