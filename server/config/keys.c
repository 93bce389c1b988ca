// SPDX-License-Identifier: Apache-2.0
// The keys of the configuration file, as tables, and the readers that store a value in a field of struct config.
#include "private.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host_port.h"
#include "proto/config_read.h"
#include "server/base/metrics.h"
#include "server/telemetry/telemetry.h"

// Three or four octal digits, as for chmod(1).
static int
read_mode(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    size_t len = n->kind == YAML_TEXT ? strlen(n->text) : 0;
    if (len < 3 || len > 4 || strspn(n->text, "01234567") != len)
        return config_fail(r, n, "must be three or four octal digits");
    unsigned long mode = strtoul(n->text, NULL, 8);
    if (mode > 0777)
        return config_fail(r, n, "must be at most 0777");
    config_store(k, to, mode);
    return 0;
}

static int
read_node(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    if (n->kind != YAML_TEXT || n->text[0] == '\0' || !id_node_is_valid(n->text))
        return config_fail(r, n, "must be 1 to %d lower-case letters and digits", ID_NODE_MAX);
    (void)snprintf((char *)to + k->offset, ID_NODE_MAX + 1, "%s", n->text);
    return 0;
}

static int
read_cgroup(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    if (n->kind != YAML_TEXT || !config_cgroup_ok(n->text))
        return config_fail(r, n, CONFIG_CGROUP_FORM);
    return config_read_text(r, k, n, to);
}

static int
read_level(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char *const levels[] = {"debug", "info", "warning", "error", NULL};
    return config_read_word(r, k, n, to, levels, 0);
}

static int
read_format(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    static const char *const json[] = {"text", "json", NULL};
    return config_read_word(r, k, n, to, json, 0);
}

static int
read_syscalls(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    static const char *const words[] = {[SYSCALLS_ON_DEMAND] = "on-demand",
                                        [SYSCALLS_OFF] = "off",
                                        [SYSCALLS_ALWAYS] = "always",
                                        NULL};
    return config_read_word(r, k, n, to, words, 0);
}

// network.unenforced: whether policies that cannot be enforced are accepted.
static int
read_unenforced(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                void *to)
{
    static const char *const allow[] = {"refuse", "allow", NULL};
    return config_read_word(r, k, n, to, allow, 0);
}

// Only the form; the address is checked when the broker listens on it.
static bool
is_address(const char *text)
{
    static const char *const schemes[] = {"ipc:///", "tcp://", "tls+tcp://", "ws://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncmp(text, schemes[i], strlen(schemes[i])) == 0)
            return text[strlen(schemes[i])] != '\0';
    return false;
}

static int
read_feed(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    if (n->kind != YAML_TEXT || (n->text[0] != '\0' && !is_address(n->text)))
        return config_fail(r, n, "must be an address to listen on, or empty");
    return config_read_text(r, k, n, to);
}

static int
read_listen(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct config *c = to;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of addresses");
    c->listen_n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (it->kind != YAML_TEXT || !is_address(it->text))
            return config_fail(r, it,
                               "must be an address to listen on, such as " CONFIG_LISTEN_DEFAULT);
        if (c->listen_n == CONFIG_LISTEN_MAX)
            return config_fail(r, it, "more than %d addresses", CONFIG_LISTEN_MAX);
        if (strlen(it->text) >= CONFIG_ADDRESS_MAX)
            return config_fail(r, it, "longer than %d bytes", CONFIG_ADDRESS_MAX - 1);
        memcpy(c->listen[c->listen_n++], it->text, strlen(it->text) + 1);
    }
    return c->listen_n > 0 ? 0 : config_fail(r, n, "must have at least one address");
}

// IPv4 as v4-mapped.
static bool
address_of(const char *text, uint8_t address[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(address, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, address + sizeof mapped) == 1 ||
           inet_pton(AF_INET6, text, address) == 1;
}

// "192.0.2.1", "192.0.2.1:53", "2001:db8::1" or "[2001:db8::1]:53".
static bool
server_of(const char *text, uint8_t address[16], uint16_t *port)
{
    struct host_port h;
    *port = NET_DNS_PORT;
    if (!host_port_split(text, &h) || !address_of(h.host, address))
        return false;
    return h.port == NULL || (host_port_number(h.port, port) && *port != 0);
}

static int
read_servers(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    struct relay_servers *s = config_field(k, to);
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of name servers");
    s->n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (s->n == RELAY_SERVERS)
            return config_fail(r, it, "more than %d name servers", RELAY_SERVERS);
        if (it->kind != YAML_TEXT ||
            !server_of(it->text, s->server[s->n].address, &s->server[s->n].port))
            return config_fail(r, it,
                               "must be an address, such as 192.0.2.1:53 or [2001:db8::1]:53");
        s->n++;
    }
    return 0;
}

// A limit by its key, or by its field in stockade.v1.Limits, the key of earlier versions. There a number without a unit
// meant milliseconds, and with the new key it means seconds, so the old key requires a unit.
static int
read_limit(const struct config_reader *r, const struct yaml_node *n, struct limits *l)
{
    for (int i = 0; i < LIMITS_N; i++) {
        const struct limit_row *row = &limit_table[i];
        bool old = strcmp(row->key, n->key) != 0;
        if (old && strcmp(row->name, n->key) != 0)
            continue;
        if (old && row->unit == LIMIT_UNIT_MS && n->kind == YAML_TEXT &&
            strspn(n->text, "0123456789.") == strlen(n->text))
            return config_fail(r, n, "a number without a unit is in seconds: write %s: %.20sms",
                               row->key, n->text);
        if (l->v[i] != 0)
            return config_fail(r, n, "the limit is set twice, as %s and as %s", row->key,
                               row->name);
        return config_number(r, n,
                             old && row->unit == LIMIT_UNIT_CPUS ? quantity_count : limits_units(i),
                             row->min, row->max, &l->v[i]);
    }
    const char *names[LIMITS_N];
    for (int i = 0; i < LIMITS_N; i++)
        names[i] = limit_table[i].key;
    return config_no_such(r, n, "limit", names, LIMITS_N);
}

static int
read_limits(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
            void *to)
{
    struct limits *l = config_field(k, to);
    struct limits said = {0};
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of limits to values");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        int err = read_limit(r, it, &said);
        if (err < 0)
            return err;
    }
    for (int i = 0; i < LIMITS_N; i++)
        if (said.v[i] != 0)
            l->v[i] = said.v[i];
    return 0;
}

static int
read_paths(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    struct template *t = to;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of absolute paths");
    t->paths_n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        struct config_key one = {.size = sizeof t->paths[0]};
        if (t->paths_n == TEMPLATE_PATHS_MAX)
            return config_fail(r, it, "more than %d paths", TEMPLATE_PATHS_MAX);
        int err = config_read_path(r, &one, it, t->paths[t->paths_n]);
        if (err < 0)
            return err;
        t->paths_n++;
    }
    return 0;
}

// A list of files and folders.
static int
read_policies(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
              void *to)
{
    struct policy_paths *p = config_field(k, to);
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of files and folders");
    p->said = true;
    p->n = 0;
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        const struct config_key one = {.size = sizeof p->path[0]};
        if (p->n == CONFIG_POLICIES_MAX)
            return config_fail(r, it, "more than %d files and folders", CONFIG_POLICIES_MAX);
        int err = config_read_path(r, &one, it, p->path[p->n]);
        if (err < 0)
            return err;
        p->n++;
    }
    return 0;
}

static bool
is_env_name(const char *s)
{
    if (*s == '\0' || (*s >= '0' && *s <= '9'))
        return false;
    return s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static int
read_env(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    struct template *t = to;
    (void)k;
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of names to values");
    t->env = calloc(TEMPLATE_ENV_MAX, sizeof *t->env);
    if (t->env == NULL)
        return config_fail(r, n, "no memory");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (t->env_n == TEMPLATE_ENV_MAX)
            return config_fail(r, it, "more than %d variables", TEMPLATE_ENV_MAX);
        struct template_env *v = &t->env[t->env_n];
        if (!is_env_name(it->key) || strlen(it->key) >= sizeof v->name)
            return config_fail(r, it, "not the name of an environment variable");
        struct config_key value = {.offset = offsetof(struct template_env, value),
                                   .size = sizeof v->value};
        int err = config_read_text(r, &value, it, v);
        if (err < 0)
            return err;
        memcpy(v->name, it->key, strlen(it->key) + 1);
        t->env_n++;
    }
    return 0;
}

static int
read_user(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char *const words[] = {"agent", "root", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static int
read_root(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char *const words[] = {"read-only", "writable", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static int
read_storage(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    static const char *const words[] = {"memory", "disk", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static int
read_sleep_after(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                 void *to)
{
    int err = config_read_ms(r, k, n, to);
    const uint64_t *ms = config_field(k, to);
    if (err == 0 && *ms != 0 && *ms < 1000)
        return config_fail(r, n, "must be 0 (never), or at least 1s");
    return err;
}

// A section of a template that another layer keeps: read_templates() reads it.
static int
read_later(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    (void)r;
    (void)k;
    (void)n;
    (void)to;
    return 0;
}

static int
read_template_anomalies(const struct config_reader *r, struct yaml_node *template,
                        struct anomaly_config *out)
{
    for (struct yaml_node *n = template->child; n != NULL; n = n->next)
        if (strcmp(n->key, "anomalies") == 0)
            return config_read_map(r, config_anomaly_keys, n, out);
    return 0;
}

static const struct config_key template_keys[] = {
    {"name", config_read_name, AT(template, name), 0, 0, NULL},
    {"hostname", config_read_name, AT(template, hostname), 0, 0, NULL},
    {"paths", read_paths, 0, 0, 0, 0, NULL},
    {"mounts", config_read_hosts, 0, 0, 0, 0, NULL},
    {"volumes", config_read_volumes, 0, 0, 0, 0, NULL},
    {"workdir", config_read_path, AT(template, workdir), 0, 0, NULL},
    {"env", read_env, 0, 0, 0, 0, NULL},
    {"user", read_user, AT(template, user_root), 0, 0, NULL},
    {"root", read_root, AT(template, root_writable), 0, 0, NULL},
    {"storage", read_storage, AT(template, on_disk), 0, 0, NULL},
    {"limits", read_limits, AT(template, limits), 0, 0, NULL},
    {"limits_max", read_limits, AT(template, limits_max), 0, 0, NULL},
    {"anomalies", read_later, 0, 0, 0, 0, NULL},
    {"policy", read_later, 0, 0, 0, 0, NULL}, // policy_read() reads it
    // NOLINTBEGIN(bugprone-sizeof-expression): the field is a pointer
    {"network", config_read_network, AT(template, network), 0, 0, NULL},
    {"network_max", config_read_network, AT(template, network_max), 0, 0, NULL},
    // NOLINTEND(bugprone-sizeof-expression)
    {"pool", config_read_count, AT(template, pool), 0, 1024, NULL},
    {"warm", config_read_warm, 0, 0, 0, 0, NULL},
    {"count_syscalls", config_read_bool, AT(template, count_syscalls), 0, 0, NULL},
    {"sleep_after", read_sleep_after, AT(template, sleep_after_ms), 0, 2592000000, NULL},
    {0},
};

static int
read_templates(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
               void *to)
{
    struct config *c = to;
    (void)k;
    if (n->kind != YAML_LIST)
        return config_fail(r, n, "must be a list of templates");
    for (struct yaml_node *it = n->child; it != NULL; it = it->next) {
        if (c->sandbox.templates_n == TEMPLATES_OF_FILE)
            return config_fail(r, it, "more than %d templates", TEMPLATES_OF_FILE);
        uint32_t number = c->sandbox.templates_n++;
        struct template *t = &c->sandbox.template[number];
        t->pool = CONFIG_POOL_UNSAID;
        int err = config_read_map(r, template_keys, it, t);
        if (err == 0)
            err = read_template_anomalies(r, it, &c->anomaly.of_template[number]);
        if (err < 0)
            return err;
        if (t->name[0] == '\0')
            return config_fail(r, it, "a template must have a name");
        for (uint32_t i = 0; i + 1 < c->sandbox.templates_n; i++)
            if (strcmp(c->sandbox.template[i].name, t->name) == 0)
                return config_fail(r, it, "a second template with the name \"%s\"", t->name);
    }
    return 0;
}

static const struct config_key socket_keys[] = {
    {"mode", read_mode, AT(config, socket_mode), 0, 0, NULL},
    {"group", config_read_text, AT(config, socket_group), 0, 0, NULL},
    {0},
};
static const struct config_key log_keys[] = {
    {"level", read_level, AT(config, log_level), 0, 0, NULL},
    {"format", read_format, AT(config, log_json), 0, 0, NULL},
    {0},
};
static const struct config_key ids_keys[] = {
    {"base", config_read_count, AT(config, id_base), 65536, 0x7ffe0000, NULL},
    {"slots", config_read_count, AT(config, id_slots), 2, SPAWN_SLOTS_MAX, NULL},
    {0},
};
static const struct config_key bpf_keys[] = {
    {"enabled", config_read_bool, AT(config, bpf_enabled), 0, 0, NULL},
    {0},
};
static const struct config_key telemetry_keys[] = {
    {"syscalls", read_syscalls, AT(config, telemetry.syscalls), 0, 0, NULL},
    {"feed", read_feed, AT(config, telemetry.feed), 0, 0, NULL},
    {0},
};
static const struct config_key metrics_keys[] = {
    {"tenants", config_read_count, AT(config, sandbox.metrics_tenants), 0, METRIC_VALUES_TENANT - 1,
     NULL},
    {"reader", config_read_text, AT(config, metrics_reader), 0, 0, NULL},
    {0},
};
// The bounds are those of quota_table.
#define OF_TENANT(name, quota)                                                                     \
    {                                                                                              \
        name, config_read_quota, AT(config, tenant_quotas.usual[QUOTA_##quota]), 0, 0, NULL        \
    }
static const struct config_key quota_keys[] = {
    {"sandboxes", config_read_count, AT(config, sandbox.quotas.sandboxes), 1, SPAWN_SLOTS_MAX,
     NULL},
    {"jobs_per_sandbox", config_read_count, AT(config, sandbox.quotas.jobs_per_sandbox), 1, 1024,
     NULL},
    {"queue", config_read_count, AT(config, sandbox.quotas.queue), 0, 100000, NULL},
    {"warm_memory", config_read_size, AT(config, sandbox.quotas.warm_memory), 0, UINT64_C(1) << 40,
     NULL},
    {"forks_per_second", config_read_count, AT(config, sandbox.quotas.forks_per_second), 0, 1000000,
     NULL},
    OF_TENANT("sandboxes_per_caller", SANDBOXES),
    OF_TENANT("jobs_per_caller", JOBS),
    OF_TENANT("jobs_per_minute_per_caller", JOBS_PER_MINUTE),
    OF_TENANT("cpus_per_caller", CPU_MILLIS),
    OF_TENANT("memory_per_caller", MEMORY_BYTES),
    OF_TENANT("disk_per_caller", DISK_BYTES),
    OF_TENANT("kept_per_caller", KEPT_JOBS),
    OF_TENANT("kept_bytes_per_caller", KEPT_BYTES),
    OF_TENANT("volumes_per_caller", VOLUMES),
    OF_TENANT("volume_bytes_per_caller", VOLUME_BYTES),
    {"tenants", config_read_tenant_quotas, AT(config, tenant_quotas), 0, 0, NULL},
    {0},
};
static const struct config_key rpc_keys[] = {
    {"connections", config_read_count, AT(config, rpc.connections_max), 1, 10000000, NULL},
    {"connections_per_uid", config_read_count, AT(config, rpc.connections_per_uid_max), 1, 10000000,
     NULL},
    {"calls", config_read_count, AT(config, rpc.calls_max), 1, 65536, NULL},
    {"streams", config_read_count, AT(config, rpc.streams_max), 1, 65536, NULL},
    {"calls_per_uid", config_read_count, AT(config, rpc.calls_per_uid_max), 1, 10000000, NULL},
    {"bytes_per_uid", config_read_size, AT(config, rpc.bytes_per_uid_max), 1 << 20,
     UINT64_C(1) << 40, NULL},
    {"handshake", config_read_ms, AT(config, rpc.handshake_ms), 10, 60000, NULL},
    {"queue_pause", config_read_size, AT(config, rpc.queue_bytes_pause), 65536, 1 << 30, NULL},
    {"queue_kill", config_read_size, AT(config, rpc.queue_bytes_kill), 65536, 1 << 30, NULL},
    {"write_stall", config_read_ms, AT(config, rpc.write_stall_ms), 100, 3600000, NULL},
    {"keepalive_idle", config_read_ms, AT(config, rpc.keepalive_idle_ms), 0, 86400000, NULL},
    {"idempotency", config_read_ms, AT(config, rpc.idempotency_ms), 1000, 86400000, NULL},
    {"idempotency_keys", config_read_count, AT(config, rpc.idempotency_keys_max), 1, 10000000,
     NULL},
    {"shared_cpu", config_read_count, AT(config, rpc.shared_cpu), 0, 100, NULL},
    {"websocket", config_read_bool, AT(config, rpc.websocket), 0, 0, NULL},
    {"anonymous", config_read_bool, AT(config, access.anonymous), 0, 0, NULL},
    {"idempotency_bytes", config_read_size, AT(config, rpc.idempotency_bytes_max), 65536, 1 << 30,
     NULL},
    {0},
};
static const struct config_key network_keys[] = {
    {"dns", read_servers, AT(config, network.dns), 0, 0, NULL},
    {"unenforced", read_unenforced, AT(config, network.unenforced), 0, 0, NULL},
    {0},
};
static const struct config_key ttl_keys[] = {
    {"default", config_read_ms, AT(config, ttl_default_ms), 100, 2592000000, NULL},
    {"max", config_read_ms, AT(config, ttl_max_ms), 100, 2592000000, NULL},
    {0},
};

static const struct config_key access_keys[] = {
    {"audience", config_read_name, AT(config, access.audience), 0, 0, NULL},
    {"failures_per_minute", config_read_count, AT(config, access.failures_per_minute), 1, 1000000,
     NULL},
    {0},
};

static int
read_sync(const struct config_reader *r, const struct config_key *k, struct yaml_node *n, void *to)
{
    static const char *const words[] = {[AUDIT_SYNC_NONE] = "none",
                                        [AUDIT_SYNC_INTERVAL] = "interval",
                                        [AUDIT_SYNC_ALWAYS] = "always",
                                        NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static int
read_on_full(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
             void *to)
{
    static const char *const words[] = {
        [AUDIT_FULL_REFUSE] = "refuse", [AUDIT_FULL_CONTINUE] = "continue", NULL};
    return config_read_word(r, k, n, to, words, 0);
}

static const struct config_key audit_keys[] = {
    {"enabled", config_read_bool, AT(config, audit.enabled), 0, 0, NULL},
    {"folder", config_read_path, AT(config, audit.folder), 0, 0, NULL},
    {"key", config_read_path, AT(config, audit.key), 0, 0, NULL},
    {"sync", read_sync, AT(config, audit.sync), 0, 0, NULL},
    {"sync_interval", config_read_ms, AT(config, audit.sync_ms), 10, 3600000, NULL},
    {"checkpoint_records", config_read_count, AT(config, audit.records), 1, AUDIT_RECORDS_MAX,
     NULL},
    {"checkpoint_interval", config_read_ms, AT(config, audit.checkpoint_ms), 10, 86400000, NULL},
    {"rotate", config_read_size, AT(config, audit.rotate_bytes), 4096, UINT64_C(1) << 34, NULL},
    {"keep", config_read_count, AT(config, audit.keep), 0, 1000000, NULL},
    {"on_full", read_on_full, AT(config, audit.on_full), 0, 0, NULL},
    {0},
};

static const struct config_key encryption_keys[] = {
    {"key_file", config_read_path, AT(config, vault.key_file), 0, 0, NULL},
    {"credential", config_read_name, AT(config, vault.credential), 0, 0, NULL},
    {"required", config_read_bool, AT(config, sandbox.encryption_required), 0, 0, NULL},
    {0},
};

static const struct config_key top_keys[] = {
    {"listen", read_listen, 0, 0, 0, 0, NULL},
    SECTION("socket", socket_keys),
    {"node", read_node, AT(config, sandbox.node), 0, 0, NULL},
    {"state_dir", config_read_path, AT(config, state_dir), 0, 0, NULL},
    {"cgroup", read_cgroup, AT(config, cgroup), 0, 0, NULL},
    SECTION("log", log_keys),
    SECTION("ids", ids_keys),
    {"limits_default", read_limits, AT(config, limits_default), 0, 0, NULL},
    {"limits_max", read_limits, AT(config, limits_max), 0, 0, NULL},
    {"pool", config_read_count, AT(config, pool), 0, 1024, NULL},
    {"netns_pool", config_read_count, AT(config, netns_pool), 0, 256, NULL},
    SECTION("bpf", bpf_keys),
    {"templates", read_templates, 0, 0, 0, 0, NULL},
    SECTION("anomalies", config_host_anomaly_keys),
    SECTION("telemetry", telemetry_keys),
    SECTION("metrics", metrics_keys),
    SECTION("quotas", quota_keys),
    SECTION("rpc", rpc_keys),
    SECTION("access", access_keys),
    {"policy_files", read_policies, AT(config, policy_files), 0, 0, NULL},
    {"rules_files", read_policies, AT(config, rules_files), 0, 0, NULL},
    SECTION("audit", audit_keys),
    SECTION("encryption", encryption_keys),
    {"principals", config_read_principals, AT(config, access.principals), 0, 0, NULL},
    {"issuers", config_read_issuers, AT(config, access.issuers), 0, 0, NULL},
    SECTION("network", network_keys),
    {"tls", config_read_tls, 0, 0, 0, 0, NULL},
    SECTION("ttl", ttl_keys),
    {"drain", config_read_ms, AT(config, drain_ms), 0, 600000, NULL},
    {"keep_finished", config_read_ms, AT(config, sandbox.keep_finished_ms), 0, 3600000, NULL},
    {0},
};

int
config_read_keys(struct config *c, const struct config_source *file, struct err *e)
{
    const struct config_reader reader = {.name = file->name, .e = e};
    struct yaml_node *root = file->root;
    if (root == NULL || (root->kind == YAML_TEXT && root->text[0] == '\0'))
        return 0;
    return config_read_map(&reader, top_keys, root, c);
}
