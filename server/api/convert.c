// SPDX-License-Identifier: Apache-2.0
// See convert.h.
#include "convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/base/server.h"
#include "server/sandbox/image.h"
#include "server/sleep/sleepers.h"
#include "server/snapshot/made.h"
#include "server/sandbox/mounts.h"
#include "server/volume/volumes.h"

Google__Protobuf__Timestamp *
convert_wall(struct arena *a, int64_t ms)
{
    return wire_make_time(a, ms / 1000, (int32_t)(ms % 1000) * 1000000);
}

static bool
convert_metadata(struct arena *a, const struct sandbox *s, Stockade__V1__Sandbox *m)
{
    m->metadata = arena_alloc(a, sizeof(void *) * (s->spec.labels_n + 1));
    for (uint32_t i = 0; m->metadata != NULL && i < s->spec.labels_n; i++) {
        Stockade__V1__Sandbox__MetadataEntry *entry =
            wire_make(a, &stockade__v1__sandbox__metadata_entry__descriptor);
        if (entry == NULL)
            return false;
        entry->key = s->spec.labels[i].key;
        entry->value = s->spec.labels[i].value;
        m->metadata[m->n_metadata++] = entry;
    }
    return m->metadata != NULL;
}

static bool
convert_volumes(struct arena *a, const struct mounts *mounts, Stockade__V1__Sandbox *m)
{
    if (mounts == NULL)
        return true;
    m->volumes = arena_alloc(a, mounts->n * sizeof(void *));
    for (uint32_t i = 0; m->volumes != NULL && i < mounts->n; i++) {
        Stockade__V1__VolumeMount *one = wire_make(a, &stockade__v1__volume_mount__descriptor);
        if (one == NULL)
            return false;
        one->volume = mounts->mount[i].name;
        one->path = mounts->mount[i].at;
        one->read_only = mounts->mount[i].read_only;
        m->volumes[m->n_volumes++] = one;
    }
    return m->volumes != NULL;
}

Stockade__V1__Sandbox *
convert_sandbox(struct arena *a, const struct sandbox *s)
{
    static const Stockade__V1__SandboxState states[SANDBOX_STATES_N] = {
        [SANDBOX_RUNNING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_PAUSING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_PAUSED] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED,
        [SANDBOX_COPYING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_SWAPPING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_RESUMING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED,
        [SANDBOX_DELETING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_DELETING,
    };
    Stockade__V1__Sandbox *m = wire_make(a, &stockade__v1__sandbox__descriptor);
    if (m == NULL)
        return NULL;
    m->id = s->id.id;
    m->template_ = s->spec.image != NULL ? s->spec.image->name : s->spec.template->name;
    m->name = s->spec.name;
    m->state = states[s->state];
    m->processes = s->jobs_n;
    m->limits = wire_make(a, &stockade__v1__limits__descriptor);
    m->network = convert_policy(a, s->net.in_force);
    m->create_time = convert_wall(a, s->created_ms);
    if (m->limits == NULL || m->network == NULL || m->create_time == NULL ||
        !convert_metadata(a, s, m) || !convert_volumes(a, s->spec.mounts, m))
        return NULL;
    limits_to_message(&s->spec.limits, m->limits);
    m->sleep_after_ms = s->spec.sleep_after_ms;
    const struct sleeper *slept = sleepers_of(sandboxes_server(s->all)->sleepers, s);
    if (slept != NULL && (m->last_sleep = sleeper_facts(a, slept)) == NULL)
        return NULL;
    if (s->expires_ms != 0)
        m->expire_time = convert_wall(a, s->expires_ms);
    return m;
}

int
convert_no_template(const char *name, struct err *e)
{
    int r = err_set(e, ERR_NOT_FOUND, "there is no template %s", name);
    err_detail(e, "TEMPLATE_UNKNOWN", "template", "'stockade template ls' lists them");
    return r;
}

int
convert_spec(const struct server *s, const char *tenant, const char *template,
             const Stockade__V1__Limits *limits, const Stockade__V1__NetworkPolicy *network,
             struct sandbox_spec *out, struct err *e)
{
    const struct template *t = config_template(s->config, template);
    struct made *made = t == NULL ? made_find(s->made, tenant, template) : NULL;
    if (made != NULL && (t = made_template(made)) == NULL) {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "it was made on the host's template %s, which the configuration does not "
                        "have any more",
                        made->host_template);
        err_detail(e, "NO_HOST_TEMPLATE", "template",
                   "add it to the broker's configuration again, and reload the broker (SIGHUP)");
        return r;
    }
    if (t == NULL)
        return convert_no_template(template, e);
    if (t->disabled[0] != '\0') {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "the template %s is disabled: %s", t->name,
                        t->disabled);
        err_detail(e, "TEMPLATE_DISABLED", "template",
                   "correct its paths in the configuration, and reload the broker (SIGHUP)");
        return r;
    }
    *out = (struct sandbox_spec){.template = t};
    limits_from_message(limits, &out->asked);
    int r = limits_resolve(&t->limits, &t->limits_max, &s->config->limits_held, &out->asked,
                           &out->limits, e);
    if (r == 0)
        r = convert_network(s, t, network, &out->network, e);
    if (r == 0 && made != NULL)
        out->image = image_ref(&made->image);
    return r;
}

// One more mount: of a volume, or of a folder of the host, whose name is its path.
static int
add_mount(const struct server *s, const char *tenant, const struct mount *wanted,
          struct sandbox_spec *spec, struct err *e)
{
    if (spec->mounts == NULL && (spec->mounts = mounts_new()) == NULL)
        return err_sys(e, ENOMEM, "mount volumes");
    if (spec->mounts->n == SPAWN_MOUNTS_OF_SANDBOX)
        return err_field(e, "volumes", "at most %d, those of the template included",
                         SPAWN_MOUNTS_OF_SANDBOX);
    if (wanted->name[0] == '/')
        return mounts_add_host(spec->mounts, spec->template, wanted, e);
    const struct volume *v = volume_find(s->volumes, tenant, wanted->name, e);
    if (v == NULL)
        return err_errno(e);
    struct mount *to = &spec->mounts->mount[spec->mounts->n++];
    *to = *wanted;
    memcpy(to->volume, v->id, sizeof to->volume);
    return 0;
}

int
convert_mount(const struct server *s, const char *tenant, const char *name, const char *at,
              bool read_only, struct sandbox_spec *spec, struct err *e)
{
    struct mount wanted = {.read_only = read_only};
    (void)snprintf(wanted.name, sizeof wanted.name, "%s", name);
    (void)snprintf(wanted.at, sizeof wanted.at, "%s", at);
    return add_mount(s, tenant, &wanted, spec, e);
}

// Those that every sandbox of the template has.
static int
add_template_mounts(const struct server *s, const char *tenant, struct sandbox_spec *spec,
                    struct err *e)
{
    const struct template *t = spec->template;
    int r = 0;
    for (uint32_t i = 0; i < t->hosts_n && r == 0; i++) {
        const struct template_host *h = &t->host[i];
        if (h->at[0] != '\0')
            r = convert_mount(s, tenant, h->path, h->at, !h->writable, spec, e);
    }
    for (uint32_t i = 0; i < t->volumes_n && r == 0; i++) {
        const struct template_volume *v = &t->volume[i];
        r = convert_mount(s, tenant, v->name, v->at, !v->writable, spec, e);
    }
    return r < 0 ? err_wrap(e, "template %s", t->name) : 0;
}

int
convert_mounts(const struct server *s, const char *tenant, size_t n,
               Stockade__V1__VolumeMount *const *m, struct sandbox_spec *spec, struct err *e)
{
    int r = n > SPAWN_MOUNTS_OF_SANDBOX
                ? err_field(e, "volumes", "at most %d", SPAWN_MOUNTS_OF_SANDBOX)
                : add_template_mounts(s, tenant, spec, e);
    for (size_t i = 0; i < n && r == 0; i++)
        r = convert_mount(s, tenant, m[i]->volume, m[i]->path, m[i]->read_only != 0, spec, e);
    return r;
}

int
convert_labels_begin(struct sandbox_spec *spec, size_t n, struct err *e)
{
    if (n > LABELS_MAX)
        return err_field(e, "metadata", "%zu labels, at most %d", n, LABELS_MAX);
    if (n == 0)
        return 0;
    spec->labels = calloc(n, sizeof *spec->labels);
    return spec->labels != NULL ? 0 : err_sys(e, ENOMEM, "keep labels");
}

void
convert_label(struct sandbox_spec *spec, const char *key, const char *value)
{
    struct label *l = &spec->labels[spec->labels_n++];
    (void)snprintf(l->key, sizeof l->key, "%s", key);
    (void)snprintf(l->value, sizeof l->value, "%s", value);
}

void
convert_no_memory(struct call *c)
{
    struct err e;
    (void)err_sys(&e, ENOMEM, "answer");
    call_fail(c, &e);
}

int
convert_check_copy(bool copy, bool stop, struct err *e)
{
    if (!copy || !stop)
        return 0;
    int r = err_set(e, ERR_INVALID_ARGUMENT, "jobs can be stopped, or go on after a copy");
    err_detail(e, "FIELD_INVALID", "copy", "set either copy or stop");
    return r;
}

int
convert_unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct arena *a,
               ProtobufCMessage **out, struct err *e)
{
    if (a == NULL)
        return err_sys(e, ENOMEM, "read a response");
    int r = wire_unpack(type, bytes, n, a, out, e);
    if (r < 0)
        e->code = ERR_INTERNAL;
    return r;
}

void
convert_end(struct call *c, bool stream, const struct err *why)
{
    struct err none;
    if (why == NULL && !stream) {
        (void)err_set(&none, ERR_INTERNAL, "stockade-files sent no response");
        why = &none;
    }
    if (why != NULL)
        call_fail(c, why);
    else
        call_end(c);
}
