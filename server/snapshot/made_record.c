// SPDX-License-Identifier: Apache-2.0
// See made_private.h.
#include "made_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "noted.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/policy/network.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/template.h"
#include "snapshots_private.h"

static int
read_env(struct image *to, const Stockade__Work__Work *w, struct err *e)
{
    if (w->n_env > TEMPLATE_ENV_MAX)
        return err_set(e, ERR_DATA_LOSS, "it has %zu variables", w->n_env);
    free(to->env); // what the caller wanted
    to->env_n = 0;
    to->env = calloc(w->n_env + 1, sizeof *to->env);
    if (to->env == NULL)
        return err_sys(e, ENOMEM, "read a template");
    for (size_t i = 0; i < w->n_env; i++) {
        struct template_env *v = &to->env[to->env_n++];
        (void)snprintf(v->name, sizeof v->name, "%s", w->env[i]->name);
        (void)snprintf(v->value, sizeof v->value, "%s", w->env[i]->value);
    }
    return 0;
}

int
made_read_record(struct made *m, const struct stored *r, struct err *e)
{
    struct arena *auto_arena a = arena_new(WORK_ARENA_BYTES);
    Stockade__Work__Work unknown = STOCKADE__WORK__WORK__INIT;
    Stockade__Work__Work *w = r->unreadable ? &unknown : NULL;
    int rc = a == NULL       ? err_sys(e, ENOMEM, "read a template")
             : r->unreadable ? 0
                             : work_unpack(r, a, &w, e);
    if (rc == 0 && w != NULL)
        rc = read_env(&m->image, w, e);
    if (rc < 0 || w == NULL)
        return rc;
    m->order = r->order;
    m->created_ms = r->created_ms;
    m->bytes = stored_bytes(r);
    m->inodes = stored_entries(r);
    store_digest_all(r, m->digest);
    (void)snprintf(m->record, sizeof m->record, "%s", r->id);
    (void)snprintf(m->host_template, sizeof m->host_template, "%s", r->template);
    (void)snprintf(m->sandbox, sizeof m->sandbox, "%s", r->sandbox);
    (void)snprintf(m->made_on, sizeof m->made_on, "%s", w->made_on);
    (void)snprintf(m->snapshot, sizeof m->snapshot, "%s", w->snapshot);
    (void)snprintf(m->network, sizeof m->network, "%s", w->network);
    (void)snprintf(m->principal, sizeof m->principal, "%s", w->principal);
    (void)snprintf(m->loaded_by, sizeof m->loaded_by, "%s", w->loaded_by);
    (void)snprintf(m->image.workdir, sizeof m->image.workdir, "%s", w->workdir);
    for (uint32_t i = 0; i < r->layers_n; i++) {
        memcpy(m->layer[i], r->layer[i]->digest, sizeof m->layer[i]);
        m->work[i] = work_of_layer(w, i);
    }
    m->layers_n = r->layers_n;
    m->ready = true;
    return 0;
}

static bool
add_variable(Stockade__Work__Work *w, struct arena *a, const struct template_env *v)
{
    for (size_t i = 0; i < w->n_env; i++)
        if (strcmp(w->env[i]->name, v->name) == 0) {
            w->env[i]->value = v->value;
            return true;
        }
    if (w->n_env == TEMPLATE_ENV_MAX)
        return false;
    Stockade__Work__Variable *m = wire_make(a, &stockade__work__variable__descriptor);
    if (m == NULL)
        return false;
    m->name = v->name;
    m->value = v->value;
    w->env[w->n_env++] = m;
    return true;
}

// The environment of the template below, and its own after it.
static bool
add_env(Stockade__Work__Work *w, struct arena *a, const struct image *on, const struct image *own)
{
    bool good = true;
    size_t bytes = 0;
    w->env = arena_alloc(a, TEMPLATE_ENV_MAX * sizeof(void *));
    if (w->env == NULL)
        return false;
    for (uint32_t i = 0; good && on != NULL && i < on->env_n; i++)
        good = add_variable(w, a, &on->env[i]);
    for (uint32_t i = 0; good && i < own->env_n; i++)
        good = add_variable(w, a, &own->env[i]);
    for (size_t i = 0; i < w->n_env; i++)
        bytes += strlen(w->env[i]->name) + strlen(w->env[i]->value);
    return good && bytes <= MADE_ENV_BYTES;
}

uint8_t *
made_describe(const struct made *m, const struct sandbox *from, uint32_t layer, size_t *n,
              struct err *e)
{
    const struct image *on = from->spec.image;
    struct arena *auto_arena a = arena_new(WORK_ARENA_BYTES);
    Stockade__Work__Work *w = a == NULL ? NULL : noted_message(from->snapshots, layer, a);
    if (w == NULL) {
        (void)err_sys(e, ENOMEM, "describe a template");
        return NULL;
    }
    w->snapshot = m->snapshot;
    w->made_on = on != NULL ? on->name : from->spec.template->name;
    w->network = from->net.in_force == NULL ? "none" : network_mode_name[from->net.in_force->mode];
    w->principal = from->tenant->name;
    w->workdir = m->image.workdir[0] != '\0' ? m->image.workdir : on != NULL ? on->workdir : "";
    if (!add_env(w, a, on, &m->image)) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                      "its environment has more than %d variables or %d KiB", TEMPLATE_ENV_MAX,
                      MADE_ENV_BYTES / 1024);
        err_detail(e, "TEMPLATE_ENV", "env", "set fewer variables, or shorter ones");
        return NULL;
    }
    uint8_t *bytes = work_pack(w, STORE_ABOUT_MAX, n);
    if (bytes == NULL)
        (void)err_sys(e, ENOMEM, "describe a template");
    return bytes;
}
