// SPDX-License-Identifier: Apache-2.0
// See config.h. A table lists the keys and their fields; yaml_tree.c first turns the file into a checked tree.
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/auto.h"
#include "private.h"
#include "server/sandbox/forward.h"
#include "server/rpc/listen.h"

static const struct sandbox_quotas quotas_default = {
    .sandboxes = 1200,
    .sandboxes_per_caller = 1000,
    .jobs_per_sandbox = 64,
    .jobs_per_caller = 2000,
    .kept_per_caller = 256,
    .forks_per_second = 2000,
    .queue = 2000,
};

struct config *
config_default(void)
{
    struct config *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->listen_n = 1;
    (void)snprintf(c->listen[0], sizeof c->listen[0], "%s", CONFIG_LISTEN_DEFAULT);
    c->socket_mode = 0660;
    (void)snprintf(c->state_dir, sizeof c->state_dir, "%s", CONFIG_STATE_DIR_DEFAULT);
    c->log_level = LOG_INFO;
    c->id_base = SPAWN_ID_BASE_DEFAULT;
    c->id_slots = 2048;
    c->netns_pool = 16;
    c->bpf_enabled = true;
    c->pool = 8;
    anomaly_config_usual(&c->anomaly.host);
    limits_usual(&c->limits_default);
    limits_most(&c->limits_max);
    c->sandbox.quotas = quotas_default;
    rpc_limits_default(&c->rpc);
    c->drain_ms = 30000;
    c->sandbox.keep_finished_ms = 30000;
    c->ttl_default_ms = 300000;
    c->ttl_max_ms = UINT64_C(2592000000);
    struct err e;
    if (config_finish(c, &e) < 0)
        abort();
    return c;
}

static void
template_free(struct template *t)
{
    free(t->env);
    network_unref(t->network);
    network_unref(t->network_max);
}

void
config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++)
        template_free(&c->sandbox.template[i]);
    free(c);
}

static int
check_limits(const struct limits *usual, const struct limits *most, const struct limits *above,
             const char *where, struct err *e)
{
    for (int i = 0; i < LIMITS_N; i++) {
        const char *name = limit_table[i].key;
        if (above != NULL && above->v[i] != 0 && most->v[i] > above->v[i])
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "%s: limits_max.%s is %" PRIu64 ", above the host's %" PRIu64, where,
                           name, most->v[i], above->v[i]);
        if (most->v[i] != 0 && usual->v[i] > most->v[i])
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "%s: %s is %" PRIu64 ", above its maximum of %" PRIu64, where, name,
                           usual->v[i], most->v[i]);
    }
    return 0;
}

// The default: no network, and a request may allow all public addresses. If a template sets `network`, that is also the
// maximum, unless network_max is set.
static int
finish_network(struct template *t, const char *where, struct err *e)
{
    if (t->network_max == NULL)
        t->network_max = t->network != NULL ? network_ref(t->network) : network_everything();
    if (t->network == NULL)
        t->network = network_new();
    if (t->network == NULL || t->network_max == NULL)
        return err_sys(e, ENOMEM, "keep the configuration");
    int r = network_narrow(t->network, t->network_max, "network", e);
    if (r == 0 && t->network->keys == NULL)
        r = network_compile(t->network, e);
    if (r < 0)
        (void)err_set(e, ERR_INVALID_ARGUMENT, "%s: %s", where, e->text);
    return r;
}

// Sets the missing values of a template from the host's. A default above a lowered maximum is lowered too; a value in
// the file is refused instead.
static int
finish_template(struct config *c, uint32_t number, struct err *e)
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
        (void)snprintf(t->workdir, sizeof t->workdir, "/home/agent");
    char where[96];
    (void)snprintf(where, sizeof where, "template \"%s\"", t->name);
    int r = finish_network(t, where, e);
    return r < 0 ? r : check_limits(&t->limits, &t->limits_max, &c->limits_max, where, e);
}

static int
check_quotas(const struct config *c, struct err *e)
{
    uint64_t pools = 0;
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++)
        pools += c->sandbox.template[i].pool;
    if (c->sandbox.quotas.sandboxes >= c->id_slots)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "quotas.sandboxes is %u, but ids.slots has room for %u only",
                       c->sandbox.quotas.sandboxes, c->id_slots - 1);
    if (pools > c->sandbox.quotas.sandboxes)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the pools keep %" PRIu64 " sandboxes, above quotas.sandboxes (%u)", pools,
                       c->sandbox.quotas.sandboxes);
    if (c->ttl_default_ms > c->ttl_max_ms)
        return err_set(e, ERR_INVALID_ARGUMENT, "ttl.default is above ttl.max");
    return 0;
}

static int
check_rpc(const struct config *c, struct err *e)
{
    if (c->rpc.queue_bytes_pause > c->rpc.queue_bytes_kill)
        return err_set(e, ERR_INVALID_ARGUMENT, "rpc.queue_pause is above rpc.queue_kill");
    for (uint32_t i = 0; i < c->listen_n; i++)
        if (rpc_check_address(&c->rpc, c->listen[i], e) < 0)
            return err_wrap(e, "listen");
    const struct transport_address feed = {.url = c->telemetry.feed};
    if (feed.url[0] != '\0' && listen_check(&feed, e) < 0)
        return err_wrap(e, "telemetry.feed");
    return 0;
}

int
config_finish(struct config *c, struct err *e)
{
    if (config_template(c, "default") == NULL) {
        if (c->sandbox.templates_n == TEMPLATES_OF_FILE)
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "templates: %d of them and none is called \"default\"",
                           TEMPLATES_OF_FILE);
        struct template *t = &c->sandbox.template[c->sandbox.templates_n++];
        (void)snprintf(t->name, sizeof t->name, "default");
        t->pool = CONFIG_POOL_UNSAID;
    }
    int r = check_limits(&c->limits_default, &c->limits_max, NULL, "limits_default", e);
    for (uint32_t i = 0; i < c->sandbox.templates_n && r == 0; i++)
        r = finish_template(c, i, e);
    if (r == 0)
        r = check_quotas(c, e);
    return r == 0 ? check_rpc(c, e) : r;
}

int
config_parse(struct config *c, const char *name, const void *bytes, size_t n, struct err *e)
{
    if (n > CONFIG_FILE_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", name, CONFIG_FILE_MAX);
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        template_free(&c->sandbox.template[i]);
        c->sandbox.template[i] = (struct template){0};
        c->anomaly.of_template[i] = (struct anomaly_config){0};
    }
    c->sandbox.templates_n = 0;
    int r = config_read_keys(c, name, bytes, n, e);
    if (r < 0)
        return r;
    return config_finish(c, e) < 0 ? err_wrap(e, "%s", name) : 0;
}

static int
check_file(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "read %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not a regular file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return err_set(e, ERR_PERMISSION_DENIED, "%s: owned by uid %u, must belong to root", path,
                       st.st_uid);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return err_set(e, ERR_PERMISSION_DENIED,
                       "%s: must be writable only by its owner (chmod go-w)", path);
    return 0;
}

int
config_file(const char *path, char **out, size_t *out_n, struct err *e)
{
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    int r = check_file(fd, path, e);
    if (r < 0)
        return r;
    char *auto_free bytes = malloc(CONFIG_FILE_MAX + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "read %s", path);
    size_t n = 0;
    while (n <= CONFIG_FILE_MAX) {
        ssize_t got = read(fd, bytes + n, CONFIG_FILE_MAX + 1 - n);
        if (got < 0)
            return err_sys(e, errno, "read %s", path);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out = take_ptr(bytes);
    *out_n = n;
    return 0;
}

// Paths that each sandbox has for itself.
static bool
is_sandboxs_own(const char *path)
{
    static const char *const own[] = {"/etc", "/proc", "/sys", "/dev", "/tmp", "/run"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        size_t n = strlen(own[i]);
        if (strncmp(path, own[i], n) == 0 && (path[n] == '\0' || path[n] == '/'))
            return true;
    }
    return false;
}

static const char *
look_at(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return strerror(errno);
    if (!S_ISDIR(st.st_mode))
        return strerror(ENOTDIR);
    return is_sandboxs_own(path) ? "sandboxes have a folder of their own there" : NULL;
}

void
config_look(struct config *c)
{
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++) {
        struct template *t = &c->sandbox.template[i];
        for (uint32_t k = 0; k < t->paths_n && t->disabled[0] == '\0'; k++) {
            const char *why = look_at(t->paths[k]);
            if (why == NULL)
                continue;
            (void)snprintf(t->disabled, sizeof t->disabled, "%.150s: %s", t->paths[k], why);
        }
    }
}

const struct template *
config_template(const struct config *c, const char *name)
{
    if (name[0] == '\0')
        name = "default";
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++)
        if (!c->sandbox.template[i].removed && strcmp(c->sandbox.template[i].name, name) == 0)
            return &c->sandbox.template[i];
    return NULL;
}

uint64_t
config_files_needed(const struct config *c)
{
    enum { OWN = 64 + BPF_FDS, OF_JOB = 3 }; // the loop, nng, the log and maps; pipes
    const struct sandbox_quotas *q = &c->sandbox.quotas;
    uint64_t jobs = q->sandboxes > q->jobs_per_caller ? q->sandboxes : q->jobs_per_caller;
    return OWN + c->rpc.connections_max + (uint64_t)q->sandboxes * SPAWN_FDS_MAX + jobs * OF_JOB +
           FORWARDS_MAX;
}

void
config_to_spawn(const struct config *c, const char *guest_path, uint32_t uid, uint32_t gid,
                struct spawn_config *out)
{
    *out = (struct spawn_config){
        .version = SPAWN_VERSION,
        .id_base = c->id_base,
        .slots = c->id_slots,
        .broker_uid = uid,
        .broker_gid = gid,
        .netns_pool = c->netns_pool,
    };
    (void)snprintf(out->state_dir, sizeof out->state_dir, "%s", c->state_dir);
    (void)snprintf(out->cgroup, sizeof out->cgroup, "%s", c->cgroup);
    (void)snprintf(out->guest_path, sizeof out->guest_path, "%s", guest_path);
    limits_to_spawn(&c->limits_max, &out->limits_max);
}
