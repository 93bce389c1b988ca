// SPDX-License-Identifier: Apache-2.0
// The broker's configuration: one YAML file, read strictly, or none.
//
// An unknown key, a duplicate key, a value out of range or of the wrong type is an error with file, line and column; so
// are aliases, anchors, tags and a second document. deploy/stockaded.yaml describes every key.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/config_read.h"
#include "proto/err.h"
#include "server/access/access.h"
#include "server/access/policy.h"
#include "server/anomaly/settings.h"
#include "server/audit/audit.h"
#include "server/base/log.h"
#include "server/network/net.h"
#include "server/rpc/quotas.h"
#include "server/rpc/rpc.h"
#include "server/rpc/tls.h"
#include "server/sandbox/template.h"
#include "server/spawner/ops.h"
#include "server/telemetry/telemetry.h"
#include "server/vault/vault.h"

enum {
    CONFIG_LISTEN_MAX = 16,
    CONFIG_ADDRESS_MAX = 256,
    CONFIG_LEARN_MAX = 1000000,
    CONFIG_POLICIES_MAX = 16,        // files and folders
    CONFIG_POOL_UNSAID = UINT16_MAX, // a template's, until the file was read
};

#define CONFIG_LISTEN_DEFAULT    "ipc:///run/stockade/stockade.sock"
#define CONFIG_FILE_DEFAULT      "/etc/stockade/stockaded.yaml" // the default of --config
#define CONFIG_POLICY_DEFAULT    "/etc/stockade/policy.d"       // if it exists
#define CONFIG_RULES_DEFAULT     "/etc/stockade/rules.d"        // if it exists
#define CONFIG_RULES_SHIPPED     "/usr/share/stockade/rules"    // before those, if it exists
#define CONFIG_STATE_DIR_DEFAULT "/var/lib/stockade"

// Files and folders of policies, or of detection rules.
struct policy_paths {
    bool said; // also if there is none in the list
    uint32_t n;
    char path[CONFIG_POLICIES_MAX][SPAWN_PATH_MAX];
};

struct config {
    char listen[CONFIG_LISTEN_MAX][CONFIG_ADDRESS_MAX];
    uint32_t listen_n;
    uint32_t socket_mode;
    // "": "stockade" if there is such a group, otherwise the broker's own group
    char socket_group[64];
    char metrics_reader[64]; // account; "": READER_ACCOUNT, if it exists
    char state_dir[SPAWN_PATH_MAX];
    char cgroup[SPAWN_PATH_MAX];
    uint32_t log_level; // enum log_level
    bool log_json;
    uint32_t id_base, id_slots;
    uint32_t netns_pool;
    bool bpf_enabled;
    struct limits limits_default, limits_max;
    struct limits limits_held; // limits_max at the start, which the spawner enforces
    uint32_t pool;             // default of the templates
    // The settings of each layer, which keeps a pointer to its own part only.
    struct rpc_limits rpc;
    struct access_settings access;
    struct policy_paths policy_files;
    struct policy_paths rules_files;
    struct policy *policy; // owned; NULL: none. Set by who has read the files
    char *text;            // of the file, if templates in it have policies; owned; otherwise NULL
    char text_name[SPAWN_PATH_MAX];
    struct audit_settings audit;
    struct vault_settings vault;
    struct tls_files tls;
    struct quotas tenant_quotas;
    struct sandbox_settings sandbox;
    struct network_settings network;
    struct telemetry_settings telemetry;
    struct anomaly_settings anomaly;
    uint64_t drain_ms;
    uint64_t ttl_default_ms, ttl_max_ms;
};

// The default configuration. Free it with config_free(). NULL: out of memory.
struct config *config_default(void);
void config_free(struct config *c);

// Reads a file's bytes over the values in *c. `name` is the file's name for messages. On failure *c is incomplete: free
// it.
int config_parse(struct config *c, const char *name, const void *bytes, size_t n, struct err *e);

// Whether it is "/name": one folder below the root of cgroup v2, of letters, digits, '.', '_' and '-'.
bool config_cgroup_ok(const char *path);
#define CONFIG_CGROUP_FORM "must be / and one name of letters, digits, '.', '_' and '-'"

// Examines on this host, as root, what the file names. A template whose path is missing, not a folder or not
// permitted is disabled, with the reason.
void config_look(struct config *c);

// An existing template by name ("" means "default"), also a disabled one. NULL: not found.
const struct template *config_template(const struct config *c, const char *name);

// Reads the files of policies and of detection rules, as this process sees them, in the order of the configuration, those of a folder by name, and
// last, as a policy, the configuration itself if its templates have some; they are
// allocated in an arena of at least CONFIG_POLICY_ARENA and not parsed. INVALID_ARGUMENT: a file is too large or not UTF-8;
// PERMISSION_DENIED: others may write it.
enum { CONFIG_POLICY_ARENA = 16 * 1024 * 1024 };
int config_policy_files(const struct config *c, struct arena *a, Stockade__V1__PolicyFiles *out,
                        struct err *e);

// Reads the detection rules among them into c->anomaly.rules, and the settings of tripwires into those of the host and of the
// templates that have not changed them. INVALID_ARGUMENT names file, line and column.
struct detect;
int config_use_rules(struct config *c, struct detect *rules, struct err *e); // the second half
int config_read_rules(struct config *c, const Stockade__V1__PolicyFiles *files, struct err *e);

// Number of descriptors that the broker needs with all permitted connections and sandboxes, and as many jobs as
// permitted.
uint64_t config_files_needed(const struct config *c);

// The part for the spawner. guest_path is the path of the guest program.
void config_to_spawn(const struct config *c, const char *guest_path, uint32_t uid, uint32_t gid,
                     struct spawn_config *out);
