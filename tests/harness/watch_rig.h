// SPDX-License-Identifier: Apache-2.0
// Only the telemetry programs, on cgroups of the test: no broker, no spawner. The test itself fills the maps like the
// loader and the broker.
//
//   V2/stockade-rig-PID/in/      the container; sandboxes are two levels below the root
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

#include "bpf/emit.h"
#include "bpf/watch.h"
#include "tests/harness/wait.h"
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

// Makes a cgroup, which rig_stop() removes.
const struct rig_cgroup *rig_cgroup(struct rig *r, const char *parent, const char *name);
void rig_put(const struct bpf_map *map, const void *key, const void *value);

// Makes a sandbox: its cgroup, and the entry that the broker would write.
const struct rig_cgroup *rig_box(struct rig *r, const char *name, struct bpf_sandbox entry);
void rig_budget(struct rig *r, uint32_t class, uint32_t per_second, uint32_t burst);
const char *rig_v2(void);

// Makes the container and loads all programs, without attaching them.
void rig_start(struct rig *r);
void rig_attach(struct rig *r);
void rig_calls(struct rig *r, bool on);

// Starts a child in a cgroup. It runs `fn` and exits with its result. It should make calls only through syscall(2),
// so that the test knows their number.
pid_t rig_spawn(const struct rig_cgroup *c, int (*fn)(void *), void *arg);
int rig_wait(pid_t pid);
int rig_run(const struct rig_cgroup *c, int (*fn)(void *), void *arg);

// NULL: the kernel has not assigned one.
const struct watch_account *rig_account(const struct rig *r, const struct rig_cgroup *c);
uint64_t rig_lost(const struct rig *r, uint32_t slot, uint32_t class);
void rig_stop(struct rig *r);
