// SPDX-License-Identifier: Apache-2.0
// See reload.h. Everything is compared before anything is changed.
#include "reload.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int
takes_restart(struct err *e, const char *key, const char *why)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s takes a restart", key, why);
    err_detail(e, "RESTART_NEEDED", key, "systemctl restart stockade");
    return r;
}

// Fields that are set up once, by their key. Each has no padding.
#define FIXED(key, member)                                                                         \
    {                                                                                              \
        key, offsetof(struct config, member), sizeof(((struct config *)0)->member)                 \
    }
static const struct fixed {
    const char *key;
    size_t offset, size;
} fixed[] = {
    FIXED("socket.mode", socket_mode),
    FIXED("socket.group", socket_group),
    FIXED("state_dir", state_dir),
    FIXED("cgroup", cgroup),
    FIXED("log.level", log_level),
    FIXED("log.format", log_json),
    FIXED("ids.base", id_base),
    FIXED("ids.slots", id_slots),
    FIXED("netns_pool", netns_pool),
    FIXED("bpf.enabled", bpf_enabled),
    FIXED("network.unenforced", network_unenforced),
    FIXED("network.dns", dns),
    FIXED("telemetry.syscalls", telemetry.syscalls),
    FIXED("telemetry.feed", telemetry.feed),
    FIXED("rpc.connections", rpc.connections_max),
    FIXED("rpc.connections_per_uid", rpc.connections_per_uid_max),
    FIXED("rpc.calls", rpc.calls_max),
    FIXED("rpc.streams", rpc.streams_max),
    FIXED("rpc.calls_per_uid", rpc.calls_per_uid_max),
    FIXED("rpc.bytes_per_uid", rpc.bytes_per_uid_max),
    FIXED("rpc.handshake", rpc.handshake_ms),
    FIXED("rpc.queue_pause", rpc.queue_bytes_pause),
    FIXED("rpc.queue_kill", rpc.queue_bytes_kill),
    FIXED("rpc.write_stall", rpc.write_stall_ms),
    FIXED("rpc.keepalive_idle", rpc.keepalive_idle_ms),
    FIXED("rpc.idempotency", rpc.idempotency_ms),
    FIXED("rpc.idempotency_keys", rpc.idempotency_keys_max),
    FIXED("rpc.idempotency_bytes", rpc.idempotency_bytes_max),
    FIXED("rpc.websocket", rpc.websocket),
};

static int
check_fixed(const struct config *now, const struct config *next, struct err *e)
{
    bool same = now->listen_n == next->listen_n;
    for (uint32_t i = 0; same && i < now->listen_n; i++)
        same = strcmp(now->listen[i], next->listen[i]) == 0;
    if (!same)
        return takes_restart(e, "listen", "a change of it");
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        const struct fixed *f = &fixed[i];
        if (memcmp((const char *)now + f->offset, (const char *)next + f->offset, f->size) != 0)
            return takes_restart(e, f->key, "a change of it");
    }
    return 0;
}

// The spawner checks what it is asked for against the maximum of the start.
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

static struct config_template *
find(struct config *c, const char *name)
{
    for (uint32_t i = 0; i < c->templates_n; i++)
        if (strcmp(c->template[i].name, name) == 0)
            return &c->template[i];
    return NULL;
}

static int
check_template(const struct config_template *t, const struct config_template *next, struct err *e)
{
    char key[128];
    (void)snprintf(key, sizeof key, "template %s", t->name);
    if (next == NULL)
        return takes_restart(e, key, "removing it");
    if (strcmp(t->hostname, next->hostname) != 0)
        return takes_restart(e, key, "another hostname");
    bool same = t->paths_n == next->paths_n;
    for (uint32_t i = 0; same && i < t->paths_n; i++)
        same = strcmp(t->paths[i], next->paths[i]) == 0;
    if (!same)
        return takes_restart(e, key, "a change of its paths");
    if (t->anomalies.learn != next->anomalies.learn)
        return takes_restart(e, key, "a change of anomalies.learn");
    if (t->anomalies.rule[RULE_UNSEEN_SEQUENCE].threshold !=
        next->anomalies.rule[RULE_UNSEEN_SEQUENCE].threshold)
        return takes_restart(e, key, "another threshold of unseen-sequence");
    if (t->anomalies.syscalls != next->anomalies.syscalls)
        return takes_restart(e, key, "a change of anomalies.syscalls");
    return 0;
}

static int
check_templates(struct config *now, struct config *next, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < now->templates_n && r == 0; i++)
        r = check_template(&now->template[i], find(next, now->template[i].name), e);
    for (uint32_t i = 0; i < next->templates_n && r == 0; i++) {
        char key[128];
        (void)snprintf(key, sizeof key, "template %s", next->template[i].name);
        if (find(now, next->template[i].name) == NULL)
            r = takes_restart(e, key, "adding it");
    }
    return r;
}

// Gives each the other's; whoever frees `next` frees what was ours.
#define SWAP(a, b)                                                                                 \
    do {                                                                                           \
        __typeof__(a) held = (a);                                                                  \
        (a) = (b);                                                                                 \
        (b) = held;                                                                                \
    } while (0)

static void
take_template(struct config_template *t, struct config_template *next)
{
    t->limits = next->limits;
    t->limits_max = next->limits_max;
    memcpy(t->workdir, next->workdir, sizeof t->workdir);
    t->anomalies = next->anomalies;
    t->pool = t->disabled[0] == '\0' ? next->pool : 0;
    t->count_syscalls = next->count_syscalls;
    SWAP(t->env, next->env);
    SWAP(t->env_n, next->env_n);
    SWAP(t->network, next->network);
    SWAP(t->network_max, next->network_max);
}

int
reload_apply(struct config *now, struct config *next, struct err *e)
{
    int r = check_fixed(now, next, e);
    if (r == 0)
        r = check_limits(now, next, e);
    if (r == 0)
        r = check_templates(now, next, e);
    if (r < 0)
        return r;
    now->limits_default = next->limits_default;
    now->limits_max = next->limits_max;
    now->pool = next->pool;
    now->anomalies = next->anomalies;
    now->quotas = next->quotas;
    now->drain_ms = next->drain_ms;
    now->keep_finished_ms = next->keep_finished_ms;
    now->ttl_default_ms = next->ttl_default_ms;
    now->ttl_max_ms = next->ttl_max_ms;
    for (uint32_t i = 0; i < now->templates_n; i++)
        take_template(&now->template[i], find(next, now->template[i].name));
    return 0;
}
