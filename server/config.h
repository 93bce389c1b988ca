// SPDX-License-Identifier: Apache-2.0
// The broker's configuration: one YAML file, read strictly, or none at all.
//
// A key that is not known, is there twice, is out of its bounds or of the wrong kind is an error with file, line and
// column; so are aliases, anchors, tags and a second document. deploy/stockaded.yaml has every key with its meaning.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/err.h"
#include "anomaly_rules.h"
#include "anomaly_sensitive.h"
#include "limits.h"
#include "log.h"
#include "network.h"
#include "relay_link.h"
#include "rpc.h"
#include "spawner/ops.h"

enum {
    CONFIG_FILE_MAX = 256 * 1024,
    CONFIG_LISTEN_MAX = 16,
    CONFIG_ADDRESS_MAX = 256,
    CONFIG_TEMPLATES_MAX = SPAWN_TEMPLATES_MAX,
    CONFIG_ENV_MAX = 64,
    CONFIG_LEARN_MAX = 1000000,
};

#define CONFIG_LISTEN_DEFAULT    "ipc:///run/stockade/stockade.sock"
#define CONFIG_FILE_DEFAULT      "/etc/stockade/stockaded.yaml" // read where nothing else is said
#define CONFIG_STATE_DIR_DEFAULT "/var/lib/stockade"

struct config_env {
    char name[256];
    char value[4096];
};

struct config_template {
    char name[64];
    char hostname[64];
    char paths[SPAWN_TEMPLATE_PATHS_MAX][SPAWN_PATH_MAX];
    uint32_t paths_n;
    char workdir[1024];
    struct config_env *env; // owned
    uint32_t env_n;
    struct limits limits;            // what a request gets that says nothing
    struct limits limits_max;        // the most that it may ask for
    struct network *network;         // the same of the network; owned, never NULL once finished
    struct network *network_max;     // owned
    struct anomaly_config anomalies; // complete once the file was read
    uint32_t pool;                   // ready sandboxes that are kept
    bool pool_said;                  // pool 0 was written, not left out
    bool count_syscalls;             // of every job, for its record
    char disabled[256];              // why it cannot be used; "": it can
};

struct config_telemetry {
    uint32_t syscalls;             // enum telemetry_syscalls
    char feed[CONFIG_ADDRESS_MAX]; // "": there is none
};

struct config_quotas {
    uint32_t sandboxes;            // in all, ready ones included
    uint32_t sandboxes_per_caller; // of one uid
    uint32_t jobs_per_sandbox;     // that run at one time
    uint32_t jobs_per_caller;
    uint32_t kept_per_caller;  // processes that ended and are still attachable
    uint32_t forks_per_second; // processes and threads that a sandbox begins; 0: no limit
    uint32_t queue;            // requests that wait for a sandbox
};

struct config {
    char listen[CONFIG_LISTEN_MAX][CONFIG_ADDRESS_MAX];
    uint32_t listen_n;
    uint32_t socket_mode;
    char socket_group[64]; // "": "stockade" if there is such a group, else the broker's own
    char state_dir[SPAWN_PATH_MAX];
    char cgroup[SPAWN_PATH_MAX];
    uint32_t log_level; // enum log_level
    bool log_json;
    uint32_t id_base, id_slots;
    uint32_t netns_pool;
    bool network_unenforced; // policies that cannot be enforced are taken all the same
    struct relay_servers
        dns; // where names of sandboxes are resolved; none: as /etc/resolv.conf says
    bool bpf_enabled;
    struct limits limits_default, limits_max;
    struct limits limits_held; // limits_max of the start: config_look()
    struct config_template template[CONFIG_TEMPLATES_MAX];
    uint32_t templates_n;
    uint32_t pool; // of a template that does not say
    struct anomaly_config anomalies;
    struct sensitive_config sensitive;
    struct config_quotas quotas;
    struct config_telemetry telemetry;
    struct rpc_limits rpc;
    uint64_t drain_ms;
    uint64_t keep_finished_ms;
    uint64_t ttl_default_ms, ttl_max_ms;
};

// What holds without a file. Owned: config_free(). NULL without memory.
struct config *config_default(void);
void config_free(struct config *c);

// Reads bytes over the defaults in *c. `name` is the file's name for messages. On failure *c is half changed: free it.
int config_parse(struct config *c, const char *name, const void *bytes, size_t n, struct err *e);

// Reads a file: regular, owned by root or the caller, not writable by others, at most CONFIG_FILE_MAX.
int config_load(struct config *c, const char *path, struct err *e);

// Looks at what the file names on this host, as root: a template with a path that is no folder is disabled, and says why.
void config_look(struct config *c);

// A template by name ("" is "default"). NULL: no such template.
const struct config_template *config_template(const struct config *c, const char *name);

// How many descriptors the broker has open when all connections and sandboxes are there that it allows, and a job in
// each or as many as one caller may have.
uint64_t config_files_needed(const struct config *c);

// What the spawner gets. guest_path is the static guest's.
void config_to_spawn(const struct config *c, const char *guest_path, uint32_t uid, uint32_t gid,
                     struct spawn_config *out);
