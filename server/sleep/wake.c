// SPDX-License-Identifier: Apache-2.0
// See sleepers_private.h: a sandbox wakes up. A new one is made from the record, within the limits and
// policies that its template has now, and gets its layers back. Until it has them, calls wait; if anything fails it is asleep as before,
// and they get the reason.
//
//   a spec from the record -> a sandbox of the pool with the earlier id -> its layers -> AWAKE, the calls go on
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/network/net.h"
#include "server/policy/network.h"
#include "server/sandbox/image.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/volume/volumes.h"
#include "sleepers_private.h"

enum { VOLUME_ID = 16 };

struct wake {
    struct sleeper *sl;
    struct pool_request *request;
    struct kept_op *laying;
    struct kept_tree tree;
    struct sandbox_identity was;
    uint64_t began_ns;
};

// ---- the end

static void
wake_free(struct sleeper *sl)
{
    kept_tree_clear(&sl->wake->tree);
    free(sl->wake);
    sl->wake = NULL;
}

static void
remove_box(const struct sleeper *sl)
{
    struct err why;
    struct sandbox *s = sleepers_box(sl->all, sl->tenant, sl->id.id);
    (void)err_set(&why, ERR_CANCELLED, "it could not be woken up");
    if (s != NULL)
        sandbox_fall_asleep(s, &why, NULL);
}

// Its calls may delete it.
static void
fail(struct sleeper *sl, const struct err *failed)
{
    struct err e = *failed;
    (void)err_wrap(&e, "wake sandbox %s", sl->id.id);
    metrics_add(METRIC_WAKES_FAILED, 1);
    if (e.code == ERR_INTERNAL || e.code == ERR_DATA_LOSS)
        log_err_about(LOG_ERROR, "sleep",
                      &(struct log_about){.sandbox = sl->id.id, .tenant = sl->tenant}, &e);
    wake_free(sl);
    sleeper_move(sl, SLEEPER_ASLEEP);
    remove_box(sl);
    sleeper_check_left(sl);
    unpark(&sl->waiting, &e);
}

static void
succeed(struct sleeper *sl, struct sandbox *s)
{
    metrics_add(METRIC_WAKES, 1);
    metrics_observe(METRIC_WAKE_TIME, 0, uv_hrtime() - sl->wake->began_ns);
    sl->facts.wake_ms = now_wall_ms();
    wake_free(sl);
    sleeper_move(sl, SLEEPER_AWAKE);
    log_event_about(LOG_INFO, "sandbox-awake",
                    &(struct log_about){.sandbox = sl->id.id, .tenant = sl->tenant}, "%s",
                    sl->id.id);
    sandbox_rest_soon(s);
    nap_used(s);
    describe_awake(sl);
    unpark(&sl->waiting, NULL);
}

void
wake_abandon(struct sleeper *sl, const struct err *e)
{
    struct wake *w = sl->wake;
    if (w != NULL) {
        if (w->laying != NULL)
            kept_unwait(w->laying);
        else if (w->request != NULL)
            pool_cancel(w->request);
        remove_box(sl);
        wake_free(sl);
        sleeper_move(sl, SLEEPER_ASLEEP);
        sleeper_check_left(sl);
    }
    unpark(&sl->waiting, e);
}

// ---- its layers

static void
on_laid(void *cookie, struct sandbox *s, const struct err *e)
{
    struct sleeper *sl = cookie;
    sl->wake->laying = NULL;
    if (e != NULL)
        fail(sl, e);
    else
        succeed(sl, s);
}

static void
on_box(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct sleeper *sl = cookie;
    struct wake *w = sl->wake;
    const struct kept_files files = {.r = sl->record, .work = w->tree.work, .tree = &w->tree};
    struct err e;
    if (s == NULL)
        fail(sl, failed);
    else if (w->tree.n == 0)
        succeed(sl, s);
    else if (kept_lay_files(s, &files, false, on_laid, sl, &w->laying, &e) < 0)
        fail(sl, &e);
}

// ---- a spec from the record

static const struct template *
template_named(const struct sandbox_settings *settings, const char *name)
{
    for (uint32_t i = 0; i < settings->templates_n; i++)
        if (!settings->template[i].removed && strcmp(settings->template[i].name, name) == 0)
            return &settings->template[i];
    return NULL;
}

static const struct template *
read_template(const struct sleepers *all, const Stockade__Sleeper__Sleeper *m, struct err *e)
{
    const struct template *t =
        template_named(sandboxes_settings(all->srv->sandboxes), m->template_);
    if (t == NULL || t->disabled[0] != '\0' || !t->has_root) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "its template %s %s%s", m->template_,
                      t == NULL ? "was removed" : "is disabled: ", t == NULL ? "" : t->disabled);
        err_detail(e, "TEMPLATE_GONE", m->template_,
                   "put the template back into the configuration, and reload the broker (SIGHUP)");
        return NULL;
    }
    if (t->user_root != m->user_root || t->root_writable != m->root_writable) {
        (void)err_set(e, ERR_FAILED_PRECONDITION,
                      "its template %s has another user or another root now", m->template_);
        err_detail(
            e, "TEMPLATE_CHANGED", m->template_,
            "set user and root of the template as they were, and reload the broker (SIGHUP)");
        return NULL;
    }
    return t;
}

// As they were, but within what the template allows now.
static void
narrow(struct limits *l, const struct limits *most)
{
    for (int i = 0; i < LIMITS_N; i++)
        if (most->v[i] != 0 && l->v[i] > most->v[i])
            l->v[i] = most->v[i];
}

static int
read_limits(const struct sleepers *all, const Stockade__Sleeper__Sleeper *m,
            struct sandbox_spec *out, struct err *e)
{
    const struct template *t = out->template;
    struct limits usual;
    limits_from_message(m->sandbox->limits, &usual);
    limits_from_message(m->asked, &out->asked);
    narrow(&usual, &t->limits_max);
    narrow(&out->asked, &t->limits_max);
    return limits_resolve(&usual, &t->limits_max, all->settings.limits_held, NULL, &out->limits, e);
}

static int
read_network(const struct sleepers *all, const Stockade__Sleeper__Sleeper *m,
             struct sandbox_spec *out, struct err *e)
{
    const struct template *t = out->template;
    int r = network_read(m->sandbox->network, t->network, t->network_max, &out->network, e);
    return r < 0 ? r : net_check(all->srv, out->network, e);
}

static int
read_labels(const Stockade__V1__Sandbox *m, struct sandbox_spec *out, struct err *e)
{
    out->labels = calloc(m->n_metadata + 1, sizeof *out->labels);
    if (out->labels == NULL)
        return err_sys(e, ENOMEM, "keep labels");
    for (size_t i = 0; i < m->n_metadata && i < LABELS_MAX; i++) {
        struct label *l = &out->labels[out->labels_n++];
        (void)snprintf(l->key, sizeof l->key, "%s", m->metadata[i]->key);
        (void)snprintf(l->value, sizeof l->value, "%s", m->metadata[i]->value);
    }
    return 0;
}

// By its id; if it was removed, another one of its name.
static const struct volume *
volume_of(const struct sleeper *sl, const uint8_t *id, const char *name)
{
    struct err ignored;
    const struct volumes *vs = sl->all->srv->volumes;
    for (const struct volume *v = volume_next(vs, NULL); v != NULL; v = volume_next(vs, v))
        if (memcmp(v->id, id, VOLUME_ID) == 0 && strcmp(v->tenant, sl->tenant) == 0)
            return v;
    return volume_find(vs, sl->tenant, name, &ignored);
}

static int
read_volumes(const struct sleeper *sl, const Stockade__Sleeper__Sleeper *m,
             struct sandbox_spec *out, struct err *e)
{
    if (m->n_volume == 0)
        return 0;
    out->mounts = mounts_new();
    if (out->mounts == NULL)
        return err_sys(e, ENOMEM, "mount volumes");
    for (size_t i = 0; i < m->n_volume && i < SPAWN_MOUNTS_OF_SANDBOX; i++) {
        const Stockade__V1__VolumeMount *from = m->sandbox->volumes[i];
        if (from->volume[0] == '/') {
            struct mount host = {.read_only = from->read_only};
            (void)snprintf(host.name, sizeof host.name, "%s", from->volume);
            (void)snprintf(host.at, sizeof host.at, "%s", from->path);
            int r = mounts_add_host(out->mounts, out->template, &host, e);
            if (r < 0)
                return r;
            continue;
        }
        const struct volume *v = volume_of(sl, m->volume[i].data, from->volume);
        if (v == NULL) {
            int r = err_set(e, ERR_FAILED_PRECONDITION, "its volume %s was removed", from->volume);
            err_detail(
                e, "VOLUME_GONE", from->volume,
                "make a volume with this name ('stockade volume create'), or delete the sandbox");
            return r;
        }
        struct mount *to = &out->mounts->mount[out->mounts->n++];
        memcpy(to->volume, v->id, sizeof to->volume);
        (void)snprintf(to->name, sizeof to->name, "%s", v->name);
        (void)snprintf(to->at, sizeof to->at, "%s", from->path);
        to->read_only = from->read_only;
    }
    return 0;
}

// The files of a template that a caller had made are among its layers. What is left of it are its name, folder and environment.
// Never called: the sandbox gets its files otherwise (has_files).
static int
image_begin(struct image *i, struct sandbox *s, image_done *done, void *cookie, void **op,
            struct err *e)
{
    (void)i;
    (void)s;
    (void)done;
    (void)cookie;
    (void)op;
    return err_set(e, ERR_INTERNAL, "a sandbox that was asleep has its files");
}

static void
image_free(struct image *i)
{
    free(i->env);
    free(i);
}

static int
read_image(const Stockade__Sleeper__Image *m, struct sandbox_spec *out, struct err *e)
{
    if (m == NULL)
        return 0;
    struct image *i = calloc(1, sizeof *i);
    struct template_env *env = calloc(m->n_env + 1, sizeof *env);
    if (i == NULL || env == NULL) {
        free(i);
        free(env);
        return err_sys(e, ENOMEM, "read its template");
    }
    *i = (struct image){.refs = 1, .env = env, .begin = image_begin, .free = image_free};
    (void)snprintf(i->name, sizeof i->name, "%s", m->name);
    (void)snprintf(i->workdir, sizeof i->workdir, "%s", m->workdir);
    for (; i->env_n < m->n_env; i->env_n++) {
        const char *text = m->env[i->env_n], *is = strchr(text, '=');
        (void)snprintf(env[i->env_n].name, sizeof env->name, "%.*s", (int)(is - text), text);
        (void)snprintf(env[i->env_n].value, sizeof env->value, "%s", is + 1);
    }
    out->image = i;
    return 0;
}

static int
read_spec(const struct sleeper *sl, const Stockade__Sleeper__Sleeper *m, struct sandbox_spec *out,
          struct err *e)
{
    const struct template *t = read_template(sl->all, m, e);
    if (t == NULL)
        return err_errno(e);
    *out = (struct sandbox_spec){.template = t,
                                 .ttl_ms = m->ttl_ms,
                                 .sleep_after_ms = m->sleep_after_ms,
                                 .was = &sl->wake->was,
                                 .has_files = true};
    int r = read_limits(sl->all, m, out, e);
    if (r == 0)
        r = read_network(sl->all, m, out, e);
    if (r == 0)
        r = read_labels(m->sandbox, out, e);
    if (r == 0)
        r = read_volumes(sl, m, out, e);
    if (r == 0)
        r = read_image(m->image, out, e);
    if (r < 0)
        sandbox_spec_clear(out);
    return r;
}

// ---- the begin

static int
begin(struct sleeper *sl, struct err *e)
{
    struct arena *auto_arena a = NULL;
    Stockade__Sleeper__Sleeper *m = NULL;
    struct wake *w = sl->wake;
    struct sandbox_spec spec;
    int r = describe_read(sl->record, &a, &m, e);
    if (r == 0)
        r = describe_tree(m, &w->tree, e);
    if (r < 0)
        return r;
    w->was = (struct sandbox_identity){
        .order = sl->order, .created_ms = sl->created_ms, .expires_ms = sl->expires_ms};
    memcpy(w->was.id, sl->id.id, sizeof w->was.id);
    memcpy(w->was.name, sl->name, sizeof w->was.name);
    r = read_spec(sl, m, &spec, e);
    if (r < 0)
        return r;
    r = pool_acquire(sl->all->srv->pool, sl->tenant, &spec, on_box, sl, &w->request, e);
    if (r < 0)
        sandbox_spec_clear(&spec);
    return r;
}

void
wake_begin(struct sleeper *sl)
{
    struct err e;
    sleeper_move(sl, SLEEPER_WAKING);
    sl->wake = calloc(1, sizeof *sl->wake);
    if (sl->wake == NULL) {
        (void)err_sys(&e, ENOMEM, "wake a sandbox");
        sleeper_move(sl, SLEEPER_ASLEEP);
        unpark(&sl->waiting, &e);
        return;
    }
    sl->wake->began_ns = uv_hrtime();
    if (begin(sl, &e) < 0)
        fail(sl, &e);
}
