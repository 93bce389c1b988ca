// SPDX-License-Identifier: Apache-2.0
// See start.h.
#include "start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/config/config.h"
#include "server/sandbox/usage.h"

// A broker with a thousand sandboxes runs out of descriptors first.
static void
raise_files(struct start *s)
{
    rlim_t need = config_files_needed(s->config);
    struct rlimit l = {0, 0};
    (void)getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    if (l.rlim_max < need) {
        const struct rlimit more = {need, need};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            l = more;
    }
    (void)setrlimit(RLIMIT_NOFILE, &l);
    usage_allow(l.rlim_cur > need ? l.rlim_cur - need : 0);
    if (s->features.n >= SPAWN_FEATURES_MAX)
        return;
    struct spawn_feature *f = &s->features.feature[s->features.n++];
    *f = (struct spawn_feature){.available = l.rlim_cur >= need, .degraded = l.rlim_cur < need};
    (void)snprintf(f->name, sizeof f->name, "broker-descriptors");
    (void)snprintf(f->detail, sizeof f->detail,
                   f->degraded != 0
                       ? "at most %llu files may be open, but the quotas need %llu: calls fail "
                         "with RESOURCE_EXHAUSTED when none is left (raise LimitNOFILE, or "
                         "lower quotas and rpc.connections)"
                       : "%llu files may be open, at most %llu are needed",
                   (unsigned long long)l.rlim_cur, (unsigned long long)need);
}

// The programs that load BPF and forward traffic. A missing one is a missing feature, not a failed start.
static void
add_bpf(const struct start *s, struct spawn_config *config)
{
    struct err e;
    if (!s->config->bpf_enabled)
        return;
    if (privilege_program("stockade-loader", config->loader_path, SPAWN_PATH_MAX, &e) < 0) {
        config->loader_path[0] = '\0';
        log_err(LOG_WARNING, "bpf", &e);
    }
    if (privilege_program("stockade-relay", config->relay_path, SPAWN_PATH_MAX, &e) < 0) {
        config->relay_path[0] = '\0';
        log_err(LOG_WARNING, "bpf", &e);
    }
    config->relay_uid = s->who.relay_uid;
    config->relay_gid = s->who.relay_gid;
}

// The path that the reader will open each time. Its folder is resolved now; the file itself may be a link that
// changes.
static int
absolute(const char *file, char out[SPAWN_PATH_MAX], struct err *e)
{
    const char *slash = strrchr(file, '/');
    char folder[SPAWN_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - file) + 1 : 1,
                   slash != NULL ? file : ".");
    char *auto_free real = realpath(folder, NULL);
    if (real == NULL)
        return err_sys(e, errno, "find the folder of %s", file);
    int n = snprintf(out, SPAWN_PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real,
                     slash != NULL ? slash + 1 : file);
    return n < SPAWN_PATH_MAX ? 0
                              : err_set(e, ERR_INVALID_ARGUMENT, "%s: its path is too long", file);
}

// Without the keeper layers of files stay in memory, and without the fetcher no key set of an issuer is read from a URL.
static void
add_helpers(struct spawn_config *config)
{
    struct err e;
    if (privilege_program("stockade-keeper", config->keeper_path, SPAWN_PATH_MAX, &e) < 0) {
        config->keeper_path[0] = '\0';
        log_err(LOG_WARNING, "keeper", &e);
    }
    if (privilege_program("stockade-fetcher", config->fetcher_path, SPAWN_PATH_MAX, &e) < 0)
        config->fetcher_path[0] = '\0'; // what needs it says so
}

static int
add_reader(const struct start *s, struct spawn_config *config, struct err *e)
{
    struct err none;
    int r = privilege_program("stockade-reader", config->reader_path, SPAWN_PATH_MAX, e);
    if (privilege_program("stockade-disk", config->disk_path, SPAWN_PATH_MAX, &none) < 0) {
        config->disk_path[0] = '\0';
        log_err(LOG_WARNING, "disks", &none);
    }
    if (r == 0 && s->config_file != NULL)
        r = absolute(s->config_file, config->config_file, e);
    return r;
}

// Without the maps the broker continues as on a kernel without BPF.
static void
hold_bpf(struct start *s, const int fds[BPF_FDS])
{
    struct err e;
    if (bpf_open(&s->bpf, s->features.bpf, fds, &e) < 0)
        log_err(LOG_ERROR, "bpf", &e);
}

// Logs each missing feature on its own line, with the reason.
static void
log_bpf(const struct spawn_features *f)
{
    const char *line = f->bpf_log;
    const char *end = line + strnlen(line, sizeof f->bpf_log);
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        int n = (int)((stop != NULL ? stop : end) - line);
        log_event(LOG_DEBUG, "bpf-log", "%.*s", n, line);
        line += n + 1;
    }
}

static void
log_features(const struct start *s)
{
    const struct spawn_features *f = &s->features;
    log_event(LOG_INFO, "spawner", "pid %d, cgroup %s (%s)", (int)spawn_pid(s->spawn), f->cgroup,
              f->hybrid != 0 ? "hybrid" : "v2");
    if (f->leftovers_cleared > 0)
        log_event(LOG_WARNING, "leftovers", "%u %s of an earlier run %s removed",
                  f->leftovers_cleared, plural(f->leftovers_cleared, "sandbox", "sandboxes"),
                  plural(f->leftovers_cleared, "was", "were"));
    for (uint32_t i = 0; i < f->n && i < SPAWN_FEATURES_MAX; i++)
        log_event(f->feature[i].degraded != 0 ? LOG_WARNING : LOG_DEBUG, "feature", "%s: %s: %s",
                  f->feature[i].name, f->feature[i].available != 0 ? "yes" : "no",
                  f->feature[i].detail);
    log_bpf(f);
}

// Everything that can fail without a trace comes before the first folder is made.
static int
start_spawner(struct start *s, struct spawn_config *config, struct err *e)
{
    int bpf_fds[BPF_FDS];
    char spawner[SPAWN_PATH_MAX];
    char guest[SPAWN_PATH_MAX];
    int r = privilege_check_root(e);
    if (r == 0)
        r = privilege_identity(s->config, &s->who, e);
    if (r == 0)
        r = privilege_program("stockade-spawner", spawner, sizeof spawner, e);
    if (r == 0)
        r = privilege_program("stockade-guest", guest, sizeof guest, e);
    if (r == 0)
        r = privilege_open_program("stockade-files", &s->files_fd, e);
    if (r < 0)
        return r;
    config_to_spawn(s->config, guest, s->who.uid, s->who.gid, config);
    add_bpf(s, config);
    add_helpers(config);
    r = add_reader(s, config, e);
    if (r == 0)
        r = privilege_prepare(s->config, &s->who, e);
    if (r == 0)
        r = spawn_start(spawner, config, &s->features, bpf_fds, &s->spawn, e);
    if (r == 0)
        hold_bpf(s, bpf_fds);
    return r;
}

int
start_as_root(struct start *s, struct err *e)
{
    struct spawn_config *config = calloc(1, sizeof *config);
    s->files_fd = -1;
    if (config == NULL)
        return err_sys(e, ENOMEM, "start the spawner");
    int r = start_spawner(s, config, e);
    free(config);
    if (r < 0) {
        privilege_undo();
        return r;
    }
    raise_files(s);
    r = privilege_drop(&s->who, e);
    if (r == 0)
        log_features(s);
    return r;
}
