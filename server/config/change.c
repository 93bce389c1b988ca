// SPDX-License-Identifier: Apache-2.0
// See change.h. Everything is compared before anything changes.
#include "change.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/detect.h"
static int
takes_restart(struct err *e, const char *key, const char *why)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s requires a restart", key, why);
    err_detail(e, "RESTART_NEEDED", key, "systemctl restart stockade");
    return r;
}

// Fields by their key. Each has no padding.
#define KEY(key, member)                                                                           \
    {                                                                                              \
        key, offsetof(struct config, member), sizeof(((struct config *)0)->member)                 \
    }
struct key_row {
    const char *key;
    size_t offset, size;
};

static bool
differs(const struct config *a, const struct config *b, const struct key_row *k)
{
    return memcmp((const char *)a + k->offset, (const char *)b + k->offset, k->size) != 0;
}

// Set up once, at the start.
static const struct key_row fixed[] = {
    KEY("socket.mode", socket_mode),
    KEY("socket.group", socket_group),
    KEY("metrics.reader", metrics_reader),
    KEY("node", sandbox.node),
    KEY("state_dir", state_dir),
    KEY("cgroup", cgroup),
    KEY("log.level", log_level),
    KEY("log.format", log_json),
    KEY("ids.base", id_base),
    KEY("ids.slots", id_slots),
    KEY("netns_pool", netns_pool),
    KEY("bpf.enabled", bpf_enabled),
    KEY("audit.enabled", audit.enabled),
    KEY("audit.folder", audit.folder),
    KEY("audit.key", audit.key),
    KEY("audit.sync", audit.sync),
    KEY("audit.sync_interval", audit.sync_ms),
    KEY("audit.checkpoint_records", audit.records),
    KEY("audit.checkpoint_interval", audit.checkpoint_ms),
    KEY("audit.rotate", audit.rotate_bytes),
    KEY("audit.keep", audit.keep),
    KEY("audit.on_full", audit.on_full),
    KEY("encryption.key_file", vault.key_file),
    KEY("encryption.credential", vault.credential),
    KEY("encryption.required", sandbox.encryption_required),
    KEY("network.unenforced", network.unenforced),
    KEY("network.dns", network.dns),
    KEY("anomalies.sensitive_paths", anomaly.sensitive.own),
    KEY("anomalies.not_sensitive_paths", anomaly.sensitive.without),
    KEY("telemetry.syscalls", telemetry.syscalls),
    KEY("telemetry.feed", telemetry.feed),
    KEY("rpc.connections", rpc.connections_max),
    KEY("rpc.connections_per_uid", rpc.connections_per_uid_max),
    KEY("rpc.calls", rpc.calls_max),
    KEY("rpc.streams", rpc.streams_max),
    KEY("rpc.calls_per_uid", rpc.calls_per_uid_max),
    KEY("rpc.bytes_per_uid", rpc.bytes_per_uid_max),
    KEY("rpc.handshake", rpc.handshake_ms),
    KEY("rpc.queue_pause", rpc.queue_bytes_pause),
    KEY("rpc.queue_kill", rpc.queue_bytes_kill),
    KEY("rpc.write_stall", rpc.write_stall_ms),
    KEY("rpc.keepalive_idle", rpc.keepalive_idle_ms),
    KEY("rpc.idempotency", rpc.idempotency_ms),
    KEY("rpc.idempotency_keys", rpc.idempotency_keys_max),
    KEY("rpc.idempotency_bytes", rpc.idempotency_bytes_max),
    KEY("rpc.shared_cpu", rpc.shared_cpu),
    KEY("rpc.websocket", rpc.websocket),
};

static int
check_fixed(const struct config *now, const struct config *next, struct err *e)
{
    bool same = now->listen_n == next->listen_n;
    for (uint32_t i = 0; same && i < now->listen_n; i++)
        same = strcmp(now->listen[i], next->listen[i]) == 0;
    if (!same)
        return takes_restart(e, "listen", "a change of this key");
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (differs(now, next, &fixed[i]))
            return takes_restart(e, fixed[i].key, "a change of this key");
    return 0;
}

// The spawner checks requests against the maximum from the start.
static int
check_limits(const struct config *now, const struct config *next, struct err *e)
{
    for (int i = 0; i < LIMITS_N; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "limits_max.%s", limit_table[i].key);
        if (limit_table[i].owner == LIMIT_OF_SANDBOX &&
            next->limits_max.v[i] > now->limits_held.v[i])
            return takes_restart(e, key, "more than the broker was started with");
    }
    return 0;
}

static int
check_anomalies(const char *template, const struct anomaly_config *now,
                const struct anomaly_config *next, struct err *e)
{
    char key[128];
    (void)snprintf(key, sizeof key, "template %s", template);
    if (now->learn != next->learn)
        return takes_restart(e, key, "a change of anomalies.learn");
    if (now->rule[RULE_UNSEEN_SEQUENCE].threshold != next->rule[RULE_UNSEEN_SEQUENCE].threshold)
        return takes_restart(e, key, "a change of the threshold of unseen-sequence");
    if (now->syscalls != next->syscalls)
        return takes_restart(e, key, "a change of anomalies.syscalls");
    return 0;
}

// ---- indices of templates

// Includes removed templates that are still in use: if one is added again, it continues.
static uint32_t
find(const struct config *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->sandbox.templates_n && strcmp(c->sandbox.template[i].name, name) != 0)
        i++;
    return i < c->sandbox.templates_n ? i : TEMPLATES_MAX;
}

static bool
is_free(const struct config *now, const struct config_users *users, uint32_t index)
{
    return index >= now->sandbox.templates_n ||
           (now->sandbox.template[index].removed && !users->any(users->cookie, index));
}

// Templates that stay keep their index; each new one gets the first free one.
static int
find_indexes(const struct config *now, const struct config *next, const struct config_users *users,
             struct config_change *out, struct err *e)
{
    bool taken[TEMPLATES_MAX + 1] = {false};
    for (uint32_t i = 0; i < next->sandbox.templates_n; i++) {
        out->at[i] = find(now, next->sandbox.template[i].name);
        taken[out->at[i]] = true;
    }
    for (uint32_t i = 0, p = 0; i < next->sandbox.templates_n; i++) {
        out->is_new[i] = out->at[i] == TEMPLATES_MAX;
        if (!out->is_new[i])
            continue;
        while (p < TEMPLATES_MAX && (taken[p] || !is_free(now, users, p)))
            p++;
        if (p == TEMPLATES_MAX)
            return err_set(e, ERR_RESOURCE_EXHAUSTED,
                           "templates: %d are in use, those that were removed and still have "
                           "sandboxes included",
                           TEMPLATES_MAX);
        taken[out->at[i] = p] = true;
    }
    return 0;
}

static bool
same_paths(const struct template *a, const struct template *b)
{
    bool same = a->paths_n == b->paths_n;
    for (uint32_t i = 0; same && i < a->paths_n; i++)
        same = strcmp(a->paths[i], b->paths[i]) == 0;
    return same;
}

static bool
same_hosts(const struct template *a, const struct template *b)
{
    bool same = a->hosts_n == b->hosts_n;
    for (uint32_t i = 0; same && i < a->hosts_n; i++)
        same = strcmp(a->host[i].path, b->host[i].path) == 0 &&
               strcmp(a->host[i].at, b->host[i].at) == 0 &&
               a->host[i].writable == b->host[i].writable;
    return same;
}

static bool
same_volumes(const struct template *a, const struct template *b)
{
    bool same = a->volumes_n == b->volumes_n;
    for (uint32_t i = 0; same && i < a->volumes_n; i++)
        same = strcmp(a->volume[i].name, b->volume[i].name) == 0 &&
               strcmp(a->volume[i].at, b->volume[i].at) == 0 &&
               a->volume[i].writable == b->volume[i].writable;
    return same;
}

static bool
needs_root(const struct template *t, const struct template *next)
{
    return next->disabled[0] == '\0' &&
           (!t->has_root || strcmp(t->hostname, next->hostname) != 0 ||
            t->user_root != next->user_root || t->root_writable != next->root_writable ||
            t->on_disk != next->on_disk || !same_paths(t, next) || !same_hosts(t, next) ||
            t->folders != next->folders);
}

int
config_change_plan(const struct config *now, const struct config *next,
                   const struct config_users *users, struct config_change *out, struct err *e)
{
    *out = (struct config_change){0};
    int r = check_fixed(now, next, e);
    if (r == 0)
        r = check_limits(now, next, e);
    if (r == 0)
        r = find_indexes(now, next, users, out, e);
    for (uint32_t i = 0; i < next->sandbox.templates_n && r == 0; i++) {
        const struct template *t = &now->sandbox.template[out->at[i]];
        if (!out->is_new[i])
            r = check_anomalies(t->name, &now->anomaly.of_template[out->at[i]],
                                &next->anomaly.of_template[i], e);
        if (next->sandbox.template[i].disabled[0] == '\0' &&
            (out->is_new[i] || needs_root(t, &next->sandbox.template[i])))
            out->roots |= UINT32_C(1) << i;
    }
    return r;
}

// ---- the differences, in words

struct words {
    char *text;
    size_t n;
};

static void
add_word(struct words *w, bool is_different, const char *word)
{
    static const char more[] = ", and more";
    size_t used = strlen(w->text);
    if (!is_different || (used > sizeof more && strcmp(w->text + used - strlen(more), more) == 0))
        return;
    if (used + strlen(word) + 2 + sizeof more > w->n)
        word = more + 2;
    (void)snprintf(w->text + used, w->n - used, "%s%s", used > 0 ? ", " : "", word);
}

// "limits.memory" for each limit that is different.
static void
add_limits(struct words *w, const struct limits *a, const struct limits *b, const char *section)
{
    for (int i = 0; i < LIMITS_N; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "%s.%s", section, limit_table[i].key);
        add_word(w, a->v[i] != b->v[i], key);
    }
}

static void
add_rules(struct words *w, const struct anomaly_config *a, const struct anomaly_config *b)
{
    for (int i = 0; i < ANOMALY_RULES; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "anomalies.rules.%s", anomaly_rule_table[i].name);
        add_word(w, memcmp(&a->rule[i], &b->rule[i], sizeof a->rule[i]) != 0, key);
    }
}

static bool
same_network(const struct network *a, const struct network *b)
{
    return a->mode == b->mode && a->rules_n == b->rules_n && a->inbound_n == b->inbound_n &&
           memcmp(a->limit, b->limit, sizeof a->limit) == 0 &&
           memcmp(a->inbound, b->inbound, sizeof a->inbound) == 0 &&
           (a->rules_n == 0 || memcmp(a->rules, b->rules, a->rules_n * sizeof *a->rules) == 0);
}

static bool
same_warm(const struct template *a, const struct template *b)
{
    return a->warm == b->warm && strcmp(a->imports, b->imports) == 0;
}

static void
compare_templates(const struct template *a, const struct template *b, struct words *w)
{
    add_word(w, strcmp(a->hostname, b->hostname) != 0, "hostname");
    add_word(w, !same_paths(a, b), "paths");
    add_word(w, !same_hosts(a, b), "mounts");
    add_word(w, !same_volumes(a, b), "volumes");
    add_word(w, a->user_root != b->user_root, "user");
    add_word(w, a->root_writable != b->root_writable, "root");
    add_word(w, a->on_disk != b->on_disk, "storage");
    add_word(w,
             same_paths(a, b) && same_hosts(a, b) && a->has_root && b->disabled[0] == '\0' &&
                 a->folders != b->folders,
             "another folder at one of its paths, or another owner");
    add_word(w, strcmp(a->workdir, b->workdir) != 0, "workdir");
    add_word(w,
             a->env_n != b->env_n ||
                 (a->env_n > 0 && memcmp(a->env, b->env, a->env_n * sizeof *a->env) != 0),
             "env");
    add_limits(w, &a->limits, &b->limits, "limits");
    add_limits(w, &a->limits_max, &b->limits_max, "limits_max");
    add_word(w, !same_network(a->network, b->network), "network");
    add_word(w, !same_network(a->network_max, b->network_max), "network_max");
    add_word(w, a->pool != b->pool && a->disabled[0] == '\0' && b->disabled[0] == '\0', "pool");
    add_word(w, !same_warm(a, b), "warm");
    add_word(w, a->count_syscalls != b->count_syscalls, "count_syscalls");
    add_word(w, a->sleep_after_ms != b->sleep_after_ms, "sleep_after");
    add_word(w, a->disabled[0] != '\0' && b->disabled[0] == '\0', "no longer disabled");
    add_word(w, strcmp(a->disabled, b->disabled) != 0 && b->disabled[0] != '\0', "disabled");
}

static bool
same_principals(const struct principal_map *a, const struct principal_map *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = a->row[i].group == b->row[i].group && a->row[i].id == b->row[i].id &&
               a->row[i].scopes == b->row[i].scopes &&
               strcmp(a->row[i].tenant, b->row[i].tenant) == 0;
    return same;
}

static bool
same_policy(const struct config *a, const struct config *b)
{
    struct policy_view of_a, of_b;
    policy_view(a->policy, &of_a);
    policy_view(b->policy, &of_b);
    return memcmp(of_a.digest, of_b.digest, sizeof of_a.digest) == 0;
}

static bool
same_detection(const struct config *a, const struct config *b)
{
    uint8_t of_a[DETECT_DIGEST], of_b[DETECT_DIGEST];
    detect_digest(a->anomaly.rules, of_a);
    detect_digest(b->anomaly.rules, of_b);
    return memcmp(of_a, of_b, sizeof of_a) == 0;
}

// As bytes: the reader sets them to 0 with their padding.
static bool
same_issuers(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct issuer_settings)) == 0;
}

static void
add_quotas(struct words *w, const struct quotas *a, const struct quotas *b)
{
    for (int i = 0; i < QUOTAS_N; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "quotas.%s", quota_table[i].key_of_all);
        add_word(w, a->usual[i] != b->usual[i], key);
    }
    add_word(w, a->n != b->n || memcmp(a->row, b->row, sizeof a->row) != 0, "quotas.tenants");
}

static void
compare_hosts(const struct config *a, const struct config *b, struct words *w)
{
    static const struct key_row keys[] = {
        KEY("pool", pool),
        KEY("quotas.sandboxes", sandbox.quotas.sandboxes),
        KEY("quotas.jobs_per_sandbox", sandbox.quotas.jobs_per_sandbox),
        KEY("quotas.queue", sandbox.quotas.queue),
        KEY("quotas.warm_memory", sandbox.quotas.warm_memory),
        KEY("quotas.forks_per_second", sandbox.quotas.forks_per_second),
        KEY("metrics.tenants", sandbox.metrics_tenants),
        KEY("ttl.default", ttl_default_ms),
        KEY("ttl.max", ttl_max_ms),
        KEY("rpc.anonymous", access.anonymous),
        KEY("access.audience", access.audience),
        KEY("access.failures_per_minute", access.failures_per_minute),
        KEY("drain", drain_ms),
        KEY("keep_finished", sandbox.keep_finished_ms),
    };
    add_word(w, !same_principals(&a->access.principals, &b->access.principals), "principals");
    add_word(w, !same_issuers(&a->access.issuers, &b->access.issuers), "issuers");
    add_word(w, !same_policy(a, b), "policy");
    add_word(w, !same_detection(a, b), "rules");
    add_limits(w, &a->limits_default, &b->limits_default, "limits_default");
    add_limits(w, &a->limits_max, &b->limits_max, "limits_max");
    add_rules(w, &a->anomaly.host, &b->anomaly.host);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        add_word(w, differs(a, b, &keys[i]), keys[i].key);
    add_quotas(w, &a->tenant_quotas, &b->tenant_quotas);
}

// ---- applying it

// Exchanges the two values, so freeing `next` frees the old ones.
#define SWAP(a, b)                                                                                 \
    do {                                                                                           \
        __typeof__(a) held = (a);                                                                  \
        (a) = (b);                                                                                 \
        (b) = held;                                                                                \
    } while (0)

static void
take_template(struct template *t, struct template *next)
{
    memcpy(t->name, next->name, sizeof t->name);
    memcpy(t->hostname, next->hostname, sizeof t->hostname);
    memcpy(t->paths, next->paths, sizeof t->paths);
    t->paths_n = next->paths_n;
    memcpy(t->host, next->host, sizeof t->host);
    t->hosts_n = next->hosts_n;
    memcpy(t->volume, next->volume, sizeof t->volume);
    t->volumes_n = next->volumes_n;
    t->user_root = next->user_root;
    t->root_writable = next->root_writable;
    t->on_disk = next->on_disk;
    memcpy(t->workdir, next->workdir, sizeof t->workdir);
    memcpy(t->disabled, next->disabled, sizeof t->disabled);
    t->folders = next->folders;
    t->limits = next->limits;
    t->limits_max = next->limits_max;
    t->pool = t->disabled[0] == '\0' ? next->pool : 0;
    t->warm_version += !same_warm(t, next);
    t->warm = next->warm;
    memcpy(t->imports, next->imports, sizeof t->imports);
    t->count_syscalls = next->count_syscalls;
    t->sleep_after_ms = next->sleep_after_ms;
    SWAP(t->env, next->env);
    SWAP(t->env_n, next->env_n);
    SWAP(t->network, next->network);
    SWAP(t->network_max, next->network_max);
}

static void
give_up_root(struct template *t, struct config_change *c)
{
    if (t->has_root)
        c->given_up[c->given_up_n++] = t->root;
    t->has_root = false;
}

static void
apply_template(struct config *now, struct config *next, uint32_t i, const uint32_t *root,
               struct config_change *c)
{
    struct template *t = &now->sandbox.template[c->at[i]];
    struct words w = {c->what[c->at[i]], sizeof c->what[0]};
    bool is_there = !c->is_new[i] && !t->removed;
    struct anomaly_config *anomalies = &now->anomaly.of_template[c->at[i]];
    if (is_there)
        compare_templates(t, &next->sandbox.template[i], &w);
    else
        add_word(&w, true, "added");
    if (is_there)
        add_rules(&w, anomalies, &next->anomaly.of_template[i]);
    *anomalies = next->anomaly.of_template[i];
    t->number = c->at[i];
    take_template(t, &next->sandbox.template[i]);
    t->removed = false;
    bool fresh = (c->roots >> i & 1) != 0;
    if (fresh || t->disabled[0] != '\0')
        give_up_root(t, c);
    if (!fresh)
        return;
    t->has_root = true;
    t->root = root[i];
}

static void
remove_template(struct config *now, uint32_t index, struct config_change *c)
{
    struct template *t = &now->sandbox.template[index];
    struct words w = {c->what[index], sizeof c->what[0]};
    add_word(&w, true, "removed");
    give_up_root(t, c);
    t->removed = true;
    t->pool = 0;
}

// The caller frees the old one with `next`.
static void
swap_policies(struct config *now, struct config *next)
{
    struct policy *old = now->policy;
    now->policy = next->policy;
    next->policy = old;
}

// Rules that have not changed go on counting.
static void
swap_detection(struct config *now, struct config *next)
{
    struct detect *old = now->anomaly.rules;
    if (old != NULL && same_detection(now, next))
        return;
    now->anomaly.rules = next->anomaly.rules;
    next->anomaly.rules = old;
}

void
config_change_apply(struct config *now, struct config *next, const uint32_t *root,
                    struct config_change *c)
{
    bool stays[TEMPLATES_MAX] = {false};
    struct words w = {c->host, sizeof c->host};
    compare_hosts(now, next, &w);
    now->limits_default = next->limits_default;
    now->limits_max = next->limits_max;
    now->pool = next->pool;
    now->anomaly.host = next->anomaly.host;
    now->sandbox.quotas = next->sandbox.quotas;
    now->tenant_quotas = next->tenant_quotas;
    now->access = next->access;
    now->policy_files = next->policy_files;
    now->rules_files = next->rules_files;
    swap_policies(now, next);
    swap_detection(now, next);
    now->drain_ms = next->drain_ms;
    now->sandbox.keep_finished_ms = next->sandbox.keep_finished_ms;
    now->sandbox.metrics_tenants = next->sandbox.metrics_tenants;
    now->ttl_default_ms = next->ttl_default_ms;
    now->ttl_max_ms = next->ttl_max_ms;
    now->tls = next->tls;
    for (uint32_t i = 0; i < next->sandbox.templates_n; i++) {
        apply_template(now, next, i, root, c);
        stays[c->at[i]] = true;
        if (c->at[i] >= now->sandbox.templates_n)
            now->sandbox.templates_n = c->at[i] + 1;
    }
    for (uint32_t i = 0; i < now->sandbox.templates_n; i++)
        if (!stays[i] && !now->sandbox.template[i].removed)
            remove_template(now, i, c);
}
