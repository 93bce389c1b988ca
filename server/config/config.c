// SPDX-License-Identifier: Apache-2.0
// See config.h. A table lists the keys and their fields; yaml_tree.c first turns the file into a checked tree.
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/auto.h"
#include "proto/detect.h"
#include "proto/loop_disk.h"
#include "private.h"
#include "proto/yaml_tree.h"
#include "server/sandbox/cgstat.h"
#include "server/sandbox/forward.h"

static const struct sandbox_quotas usual_quotas = {
    .sandboxes = 1200,
    .jobs_per_sandbox = 64,
    .forks_per_second = 2000,
    .warm_memory = UINT64_C(1) << 30,
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
    c->sandbox.quotas = usual_quotas;
    quotas_default(&c->tenant_quotas);
    rpc_limits_default(&c->rpc);
    access_settings_default(&c->access);
    audit_settings_default(&c->audit);
    c->drain_ms = 30000;
    c->sandbox.keep_finished_ms = 30000;
    c->ttl_default_ms = 300000;
    c->ttl_max_ms = UINT64_C(2592000000);
    const struct config_source nothing = {.name = "defaults"};
    struct err e;
    if (config_finish(c, &nothing, &e) < 0)
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
    policy_free(c->policy);
    detect_free(c->anomaly.rules);
    free(c->text);
    free(c);
}

static bool
has_key(const struct yaml_node *map, const char *key)
{
    for (const struct yaml_node *n = map->child; n != NULL; n = n->next)
        if (map->kind == YAML_MAP && strcmp(n->key, key) == 0)
            return true;
    return false;
}

// Keeps the text of a file whose templates have policies: policy_read() reads these, and names the place of an error in the file.
static int
keep_text(struct config *c, const char *name, const void *bytes, size_t n,
          const struct yaml_node *root)
{
    bool found = false;
    free(c->text);
    c->text = NULL;
    for (const struct yaml_node *k = root != NULL && root->kind == YAML_MAP ? root->child : NULL;
         k != NULL; k = k->next)
        for (const struct yaml_node *t = k->child; t != NULL && strcmp(k->key, "templates") == 0;
             t = t->next)
            found = found || has_key(t, "policy");
    if (!found)
        return 0;
    (void)snprintf(c->text_name, sizeof c->text_name, "%s", name);
    c->text = strndup(bytes, n);
    return c->text != NULL ? 0 : -ENOMEM;
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
    struct yaml *y = NULL;
    struct config_source file = {.name = name};
    int r = yaml_tree_read(name, bytes, n, false, &y, &file.root, e);
    if (r < 0)
        return r;
    r = config_read_keys(c, &file, e);
    if (r == 0 && keep_text(c, name, bytes, n, file.root) < 0)
        r = err_sys(e, ENOMEM, "read %s", name);
    if (r == 0)
        r = config_finish(c, &file, e);
    yaml_tree_free(y);
    return r;
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
        for (uint32_t k = 0; k < t->hosts_n && t->disabled[0] == '\0'; k++) {
            struct stat st; // the reader opens and judges it
            if (stat(t->host[k].path, &st) == 0 && S_ISDIR(st.st_mode))
                continue;
            (void)snprintf(t->disabled, sizeof t->disabled, "%.150s: no such folder",
                           t->host[k].path);
        }
        const char *missing = t->on_disk ? loop_disk_missing() : NULL;
        if (missing != NULL && t->disabled[0] == '\0')
            (void)snprintf(t->disabled, sizeof t->disabled, "storage: disk: %.200s", missing);
    }
}

bool
config_cgroup_ok(const char *path)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *name = path + 1;
    return path[0] == '/' && name[0] != '\0' && name[strspn(name, allowed)] == '\0' &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
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
    const uint64_t most = quota_highest(&c->tenant_quotas, QUOTA_JOBS);
    const uint64_t jobs = q->sandboxes > most ? q->sandboxes : most;
    return OWN + c->rpc.connections_max + (uint64_t)q->sandboxes * SPAWN_FDS_MAX + jobs * OF_JOB +
           FORWARDS_MAX + CGSTAT_FILES_MAX;
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
