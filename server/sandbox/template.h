// SPDX-License-Identifier: Apache-2.0
// Templates of sandboxes, and the settings of this layer. config/ fills both from its file, and fills them again in
// place at a reload: addresses are valid for the whole run of the broker, values for one turn of the loop.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "limits.h"
#include "server/base/idtable.h"
#include "server/policy/network.h"
#include "server/spawner/ops.h"

enum {
    TEMPLATES_OF_FILE = 16,
    TEMPLATES_MAX = 2 * TEMPLATES_OF_FILE, // including removed ones that are still in use
    TEMPLATE_PATHS_MAX = 8,
    TEMPLATE_ENV_MAX = 64,
    TEMPLATE_IMPORTS_BYTES_MAX = 1024,
    TEMPLATE_HOSTS_MAX = SPAWN_HOSTS_OF_ROOT,
    TEMPLATE_VOLUMES_MAX = SPAWN_MOUNTS_OF_SANDBOX,
};

struct template_env {
    char name[256];
    char value[4096];
};

// A folder of the host that its sandboxes may have mounted, or (at is not "") always have.
struct template_host {
    char path[SPAWN_PATH_MAX];
    char at[SPAWN_AT_MAX];
    bool writable;
};

// A volume of the caller that its sandboxes always have.
struct template_volume {
    char name[65];
    char at[SPAWN_AT_MAX];
    bool writable;
};

struct template
{
    uint32_t number; // its index in sandbox_settings.template, which other layers use too
    char name[64];
    char hostname[64];
    char paths[TEMPLATE_PATHS_MAX][SPAWN_PATH_MAX];
    uint32_t paths_n;
    struct template_host host[TEMPLATE_HOSTS_MAX];
    uint32_t hosts_n;
    struct template_volume volume[TEMPLATE_VOLUMES_MAX];
    uint32_t volumes_n;
    char workdir[1024];
    bool user_root;           // jobs are root inside, with a few capabilities (spawner/ops.h)
    bool root_writable;       // /usr and paths as well; only with user_root
    bool on_disk;             // the files of its sandboxes are on disk instead of in memory
    struct template_env *env; // owned by config
    uint32_t env_n;
    struct limits limits;        // limits of a request that sets none
    struct limits limits_max;    // highest limits that a request may set
    struct network *network;     // policy of a request that sets none; owned by config, never NULL
    struct network *network_max; // the widest policy of a request; owned by config, never NULL
    uint32_t pool;               // number of ready sandboxes
    bool warm; // they have an interpreter (server/code/zygote.h), which has imported:
    char imports[TEMPLATE_IMPORTS_BYTES_MAX]; // modules, separated by a space
    uint32_t warm_version;                    // increases when a reload changes the two
    bool count_syscalls;                      // of every job, for the job's record
    uint64_t sleep_after_ms;                  // of a request that sets none; 0: never
    char disabled[256];                       // why it cannot be used; "": it can
    // While the broker runs (config/change.h). A sandbox keeps its template, so an index is reused only when no
    // sandbox has the removed template.
    bool removed;     // by a reload; sandboxes may still use it
    bool has_root;    // sandboxes can be made
    uint32_t root;    // the spawner's number of it
    uint64_t folders; // the folders that its paths led to when the root was made
};

// Those of all tenants together, and of one sandbox; rpc/quotas.h has those of a tenant.
struct sandbox_quotas {
    uint32_t sandboxes;        // in total, including ready ones
    uint32_t jobs_per_sandbox; // running jobs
    uint32_t forks_per_second; // processes and threads of one sandbox; 0: no limit
    uint32_t queue;            // requests that wait for a sandbox
    uint64_t warm_memory;      // bytes that warm sandboxes in the pools use, in total
};

struct sandbox_settings {
    struct template template[TEMPLATES_MAX];
    uint32_t templates_n;
    struct sandbox_quotas quotas;
    char node[ID_NODE_MAX + 1]; // in all ids; "": none
    uint64_t keep_finished_ms;
    uint32_t metrics_tenants; // that have a value of their own in metrics
    bool encryption_required; // nothing of a sandbox is written to a disk in clear
};
