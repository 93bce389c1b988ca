// SPDX-License-Identifier: Apache-2.0
// What is done after the keys are read: missing values get their defaults, and values that depend on each other are
// checked. Such an error has the position of the key that the file sets, as one of a single key has.
#include "private.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/quantity.h"
#include "server/rpc/listen.h"
#include "server/rpc/rpc.h"

enum { KEY_BYTES = 96 };

// ---- positions

static struct yaml_node *
child(struct yaml_node *map, const char *key, size_t n)
{
    if (map == NULL || map->kind != YAML_MAP)
        return NULL;
    for (struct yaml_node *it = map->child; it != NULL; it = it->next)
        if (strlen(it->key) == n && memcmp(it->key, key, n) == 0)
            return it;
    return NULL;
}

// The node of a key such as "limits_max.memory" below `from`. NULL: the file does not set it.
static struct yaml_node *
find(struct yaml_node *from, const char *key)
{
    while (from != NULL && *key != '\0') {
        size_t n = strcspn(key, ".");
        from = child(from, key, n);
        key += key[n] == '.' ? n + 1 : n;
    }
    return from;
}

// A location in the file: keys below `below`, of which the first that the file sets is where the error is. Without one it is
// at `below`.
struct location {
    const struct config_source *file;
    struct yaml_node *below;
    const char *keys[4];
};

static int refuse(const struct location *p, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
refuse(const struct location *p, struct err *e, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    struct yaml_node *at = NULL;
    for (size_t i = 0; i < sizeof p->keys / sizeof p->keys[0] && p->keys[i] != NULL; i++)
        if (at == NULL)
            at = find(p->below, p->keys[i]);
    if (at == NULL)
        at = p->below;
    if (at == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: %s", p->file->name, what);
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u:%u: %s", p->file->name, at->line, at->column,
                   what);
}

// ---- limits

static const char *
show(int limit, uint64_t v, char out[QUANTITY_TEXT])
{
    return quantity_write(v, limits_units(limit), out);
}

// The limit's keys in a section, by its name in the configuration and by that in the protocol.
struct limit_keys {
    char key[KEY_BYTES], name[KEY_BYTES];
};

static void
name_keys(const char *section, int limit, struct limit_keys *out)
{
    (void)snprintf(out->key, sizeof out->key, "%s.%s", section, limit_table[limit].key);
    (void)snprintf(out->name, sizeof out->name, "%s.%s", section, limit_table[limit].name);
}

static int
check_host_limits(const struct config *c, const struct config_source *file, struct err *e)
{
    for (int i = 0; i < LIMITS_N; i++) {
        const uint64_t usual = c->limits_default.v[i], most = c->limits_max.v[i];
        char a[QUANTITY_TEXT], b[QUANTITY_TEXT];
        struct limit_keys low, high;
        if (most == 0 || usual <= most)
            continue;
        name_keys("limits_default", i, &low);
        name_keys("limits_max", i, &high);
        return refuse(
            &(struct location){file, file->root, {low.key, low.name, high.key, high.name}}, e,
            "%s is %s, above %s of %s", low.key, show(i, usual, a), high.key, show(i, most, b));
    }
    return 0;
}

static int
check_template_limits(const struct config *c, const struct template *t,
                      const struct config_source *file, struct yaml_node *node, struct err *e)
{
    for (int i = 0; i < LIMITS_N; i++) {
        const uint64_t usual = t->limits.v[i], most = t->limits_max.v[i], host = c->limits_max.v[i];
        char a[QUANTITY_TEXT], b[QUANTITY_TEXT];
        struct limit_keys low, high;
        name_keys("limits", i, &low);
        name_keys("limits_max", i, &high);
        if (host != 0 && most > host)
            return refuse(&(struct location){file, node, {high.key, high.name}}, e,
                          "template \"%s\": %s is %s, above the host's %s of %s", t->name, high.key,
                          show(i, most, a), high.key, show(i, host, b));
        if (most != 0 && usual > most)
            return refuse(&(struct location){file, node, {low.key, low.name}}, e,
                          "template \"%s\": %s is %s, above its %s of %s", t->name, low.key,
                          show(i, usual, a), high.key, show(i, most, b));
    }
    return 0;
}

// ---- templates

// The default: no network, and a request may allow all public addresses. If a template sets `network`, that is also the
// maximum, unless network_max is set.
static int
finish_network(struct template *t, const struct config_source *file, struct yaml_node *node,
               struct err *e)
{
    struct err why;
    if (t->network_max == NULL)
        t->network_max = t->network != NULL ? network_ref(t->network) : network_everything();
    if (t->network == NULL)
        t->network = network_new();
    if (t->network == NULL || t->network_max == NULL)
        return err_sys(e, ENOMEM, "keep the configuration");
    int r = network_narrow(t->network, t->network_max, "network", &why);
    if (r == 0 && t->network->keys == NULL)
        r = network_compile(t->network, &why);
    if (r < 0)
        (void)refuse(&(struct location){file, node, {"network", "network_max"}}, e,
                     "template \"%s\": %s", t->name, why.text);
    return r;
}

// Sets the missing values of a template from the host's. A default above a lowered maximum is lowered too; a value in
// the file is refused instead.
static int
finish_template(struct config *c, uint32_t number, const struct config_source *file,
                struct yaml_node *node, struct err *e)
{
    struct template *t = &c->sandbox.template[number];
    t->number = number;
    for (int i = 0; i < LIMITS_N; i++) {
        if (t->limits_max.v[i] == 0)
            t->limits_max.v[i] = c->limits_max.v[i];
        uint64_t usual = c->limits_default.v[i], most = t->limits_max.v[i];
        if (t->limits.v[i] == 0)
            t->limits.v[i] = most != 0 && (usual == 0 || usual > most) ? most : usual;
    }
    anomaly_config_inherit(&c->anomaly.of_template[number], &c->anomaly.host);
    if (t->pool == CONFIG_POOL_UNSAID)
        t->pool = c->pool;
    if (t->hostname[0] == '\0')
        (void)snprintf(t->hostname, sizeof t->hostname, "sandbox");
    if (t->workdir[0] == '\0')
        (void)snprintf(t->workdir, sizeof t->workdir, t->user_root ? "/root" : "/home/agent");
    if (t->root_writable && !t->user_root)
        return refuse(&(struct location){file, node, {"root"}}, e,
                      "template \"%s\": root: writable needs user: root, because files of /usr and "
                      "/etc belong to root inside",
                      t->name);
    int r = finish_network(t, file, node, e);
    return r < 0 ? r : check_template_limits(c, t, file, node, e);
}

// The templates of the file come first, in its order.
static int
finish_templates(struct config *c, const struct config_source *file, struct err *e)
{
    struct yaml_node *list = find(file->root, "templates");
    if (config_template(c, "default") == NULL) {
        if (c->sandbox.templates_n == TEMPLATES_OF_FILE)
            return refuse(&(struct location){file, list, {NULL}}, e,
                          "templates: one of the %d must have the name \"default\"",
                          TEMPLATES_OF_FILE);
        struct template *t = &c->sandbox.template[c->sandbox.templates_n++];
        (void)snprintf(t->name, sizeof t->name, "default");
        t->pool = CONFIG_POOL_UNSAID;
    }
    struct yaml_node *node = list != NULL ? list->child : NULL;
    int r = 0;
    for (uint32_t i = 0; i < c->sandbox.templates_n && r == 0; i++) {
        r = finish_template(c, i, file, node != NULL ? node : file->root, e);
        node = node != NULL ? node->next : NULL;
    }
    return r;
}

// ---- the rest

static int
check_quotas(const struct config *c, const struct config_source *file, struct err *e)
{
    const uint32_t most = c->sandbox.quotas.sandboxes;
    uint64_t pools = 0;
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++)
        pools += c->sandbox.template[i].pool;
    if (most > c->id_slots)
        return refuse(&(struct location){file, file->root, {"quotas.sandboxes", "ids.slots"}}, e,
                      "quotas.sandboxes is %u, above ids.slots of %u: each sandbox takes one slot",
                      most, c->id_slots);
    if (pools > most)
        return refuse(
            &(struct location){file, file->root, {"quotas.sandboxes", "pool", "templates"}}, e,
            "the pools keep %" PRIu64 " sandboxes ready, above quotas.sandboxes of %u", pools,
            most);
    return 0;
}

// The first range is for the accounts of the broker and the relay; one for each slot follows.
static int
check_ids(const struct config *c, const struct config_source *file, struct err *e)
{
    const uint64_t end = c->id_base + (c->id_slots + UINT64_C(1)) * SPAWN_IDS_PER_SANDBOX;
    if (end <= UINT64_C(1) << 31)
        return 0;
    return refuse(&(struct location){file, file->root, {"ids.base", "ids.slots"}}, e,
                  "ids.base is %u: ids.slots + 1 = %u ranges of %d ids must end below 2^31, so it "
                  "may be at most %" PRIu64,
                  c->id_base, c->id_slots + 1, SPAWN_IDS_PER_SANDBOX,
                  (UINT64_C(1) << 31) - (end - c->id_base));
}

static int
check_times(const struct config *c, const struct config_source *file, struct err *e)
{
    char a[QUANTITY_TEXT], b[QUANTITY_TEXT];
    if (c->ttl_default_ms <= c->ttl_max_ms)
        return 0;
    return refuse(&(struct location){file, file->root, {"ttl.default", "ttl.max"}}, e,
                  "ttl.default is %s, above ttl.max of %s",
                  quantity_write(c->ttl_default_ms, quantity_time_ms, a),
                  quantity_write(c->ttl_max_ms, quantity_time_ms, b));
}

// Port 0 is another port each time.
static bool
is_twice(const struct config *c, uint32_t number)
{
    const char *address = c->listen[number];
    const char *port = strrchr(address, ':');
    for (uint32_t i = 0; i < number; i++)
        if (strcmp(c->listen[i], address) == 0)
            return strcmp(port, ":0") != 0;
    return false;
}

static int
check_addresses(const struct config *c, const struct config_source *file, struct err *e)
{
    const struct transport_address feed = {.url = c->telemetry.feed};
    struct err why;
    struct yaml_node *list = find(file->root, "listen");
    struct yaml_node *node = list != NULL ? list->child : NULL;
    for (uint32_t i = 0; i < c->listen_n; i++) {
        if (rpc_check_address(&c->rpc, c->listen[i], &why) < 0)
            return refuse(&(struct location){file, node, {NULL}}, e, "listen: %s", why.text);
        if (is_twice(c, i))
            return refuse(&(struct location){file, node, {NULL}}, e,
                          "listen: the address %s is in the list twice", c->listen[i]);
        node = node != NULL ? node->next : NULL;
    }
    if (feed.url[0] != '\0' && listen_check(&feed, &why) < 0)
        return refuse(&(struct location){file, file->root, {"telemetry.feed"}}, e,
                      "telemetry.feed: %s", why.text);
    return 0;
}

static int
check_rpc(const struct config *c, const struct config_source *file, struct err *e)
{
    char a[QUANTITY_TEXT], b[QUANTITY_TEXT];
    if (c->rpc.queue_bytes_pause <= c->rpc.queue_bytes_kill)
        return 0;
    return refuse(&(struct location){file, file->root, {"rpc.queue_pause", "rpc.queue_kill"}}, e,
                  "rpc.queue_pause is %s, above rpc.queue_kill of %s",
                  quantity_write(c->rpc.queue_bytes_pause, quantity_bytes, a),
                  quantity_write(c->rpc.queue_bytes_kill, quantity_bytes, b));
}

static int
check_encryption(const struct config *c, const struct config_source *file, struct err *e)
{
    const struct location p = {file, file->root, {"encryption.credential"}};
    const struct location required = {file, file->root, {"encryption.required"}};
    const bool by_file = c->vault.key_file[0] != '\0', by_name = c->vault.credential[0] != '\0';
    if (by_file && by_name)
        return refuse(&p, e, "encryption has a key_file already: set one of them");
    if (!c->sandbox.encryption_required)
        return 0;
    if (!by_file && !by_name)
        return refuse(&required, e,
                      "encryption is required, and has no key: set key_file or credential");
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        if (c->sandbox.template[i].on_disk)
            return refuse(&required, e,
                          "encryption is required, and template \"%s\" has storage: disk, whose "
                          "files are on the disk in clear: take storage: memory",
                          c->sandbox.template[i].name);
    }
    return 0;
}

int
config_finish(struct config *c, const struct config_source *file, struct err *e)
{
    static int (*const checks[])(const struct config *, const struct config_source *,
                                 struct err *) = {
        check_quotas, check_ids, check_times, check_rpc, check_addresses, check_encryption,
    };
    int r = check_host_limits(c, file, e);
    if (r == 0)
        r = finish_templates(c, file, e);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && r == 0; i++)
        r = checks[i](c, file, e);
    return r;
}
