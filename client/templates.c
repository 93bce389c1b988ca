// SPDX-License-Identifier: Apache-2.0
// Templates of sandboxes (stockade_templates.h).
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/auto.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/template_service.pb-c.h"

#define SERVICE "/stockade.v1.TemplateService/"

_Static_assert(sizeof(Stockade__V1__TemplateServiceCreateResponse) ==
                       sizeof(Stockade__V1__TemplateServiceGetResponse) &&
                   offsetof(Stockade__V1__TemplateServiceCreateResponse, template_) ==
                       offsetof(Stockade__V1__TemplateServiceGetResponse, template_),
               "both have one template");

static bool
step_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    const Stockade__V1__TemplateStep *m = (const Stockade__V1__TemplateStep *)message;
    (void)a;
    *(struct stockade_template_step *)to =
        (struct stockade_template_step){.command = m->command,
                                        .digest = m->digest,
                                        .destinations = m->destinations,
                                        .destinations_n = m->n_destinations,
                                        .connections = m->connections,
                                        .ended_ms = time_from(m->end_time),
                                        .outcome = (uint32_t)m->outcome,
                                        .exit_code = m->exit_code};
    return true;
}

static bool
variable_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    const Stockade__V1__EnvironmentVariable *m = (const Stockade__V1__EnvironmentVariable *)message;
    (void)a;
    *(struct stockade_pair *)to = (struct stockade_pair){m->name, m->value};
    return true;
}

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *message)
{
    static const Stockade__V1__SandboxTemplate none = STOCKADE__V1__SANDBOX_TEMPLATE__INIT;
    const Stockade__V1__SandboxTemplate *m =
        message != NULL ? (const Stockade__V1__SandboxTemplate *)message : &none;
    struct stockade_sandbox_template *t = to;
    *t = (struct stockade_sandbox_template){
        .name = m->name,
        .of_host = m->of_host,
        .base = m->host_template,
        .made_on = m->made_on,
        .sandbox_id = m->sandbox_id,
        .snapshot = m->snapshot,
        .created_ms = time_from(m->create_time),
        .bytes = m->bytes,
        .inodes = m->inodes,
        .user_root = m->user_root,
        .root_writable = m->root_writable,
        .workdir = m->workdir,
        .network = m->network,
        .digest = m->digest,
        .principal = m->principal,
        .steps_omitted = m->steps_omitted,
        .unreadable = m->unreadable,
        .loaded_by = m->loaded_by,
    };
    return LIST_FROM(t->env, t->env_n, a, m->env, m->n_env, variable_from) &&
           LIST_FROM(t->steps, t->steps_n, a, m->steps, m->n_steps, step_from);
}

static bool
answer_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__TemplateServiceGetResponse *m =
        (const Stockade__V1__TemplateServiceGetResponse *)from;
    return one_from(to, a, m->template_ != NULL ? &m->template_->base : NULL);
}

static bool
all_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__TemplateServiceListResponse *m =
        (const Stockade__V1__TemplateServiceListResponse *)from;
    struct stockade_sandbox_templates *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->templates, m->n_templates, one_from);
}

static int
add_env(Stockade__V1__TemplateServiceCreateRequest *m, struct arena *a,
        const struct stockade_template_options *o, struct err *e)
{
    int r = request_list(o->env, o->env_n, "env", e);
    m->env = r < 0 ? NULL : arena_alloc(a, (o->env_n + 1) * sizeof(void *));
    for (size_t i = 0; m->env != NULL && i < o->env_n; i++) {
        Stockade__V1__EnvironmentVariable *v = arena_alloc(a, sizeof *v);
        if (v == NULL)
            return err_sys(e, ENOMEM, "make the request");
        stockade__v1__environment_variable__init(v);
        v->name = o->env[i].name;
        v->value = o->env[i].value;
        m->env[m->n_env++] = v;
    }
    return r < 0 ? r : m->env != NULL ? 0 : err_sys(e, ENOMEM, "make the request");
}

int
stockade_template_create(struct stockade *s, const char *name, const char *sandbox,
                         const struct stockade_template_options *given,
                         const struct stockade_sandbox_template **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_template_options o = STOCKADE_TEMPLATE_OPTIONS_INIT;
    Stockade__V1__TemplateServiceCreateRequest m =
        STOCKADE__V1__TEMPLATE_SERVICE_CREATE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    int r = a == NULL ? err_sys(&e, ENOMEM, "make the request") : 0;
    if (r == 0 && given != NULL)
        r = request_options(&o, sizeof o, given, &e);
    if (r == 0)
        r = add_env(&m, a, &o, &e);
    if (r < 0)
        return error_from_err(error, &e);
    m.name = name;
    m.sandbox = sandbox;
    if (o.snapshot != NULL)
        m.snapshot = o.snapshot;
    if (o.workdir != NULL)
        m.workdir = o.workdir;
    m.stop = o.stop;
    m.replace = o.replace;
    const struct invocation i = {.method = SERVICE "Create",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__template_service_create_response__descriptor,
                                 .size = sizeof **out,
                                 .read = answer_from};
    return invoke(s, &i, out, error);
}

int
stockade_template_get(struct stockade *s, const char *name,
                      const struct stockade_sandbox_template **out, struct stockade_error *e)
{
    Stockade__V1__TemplateServiceGetRequest m = STOCKADE__V1__TEMPLATE_SERVICE_GET_REQUEST__INIT;
    m.name = name;
    const struct invocation i = {.method = SERVICE "Get",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__template_service_get_response__descriptor,
                                 .size = sizeof **out,
                                 .read = answer_from};
    return invoke(s, &i, out, e);
}

int
stockade_template_list(struct stockade *s, const char *page,
                       const struct stockade_sandbox_templates **out, struct stockade_error *e)
{
    Stockade__V1__TemplateServiceListRequest m = STOCKADE__V1__TEMPLATE_SERVICE_LIST_REQUEST__INIT;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__template_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = all_from};
    return invoke(s, &i, out, e);
}

int
stockade_template_delete(struct stockade *s, const char *name, struct stockade_error *e)
{
    Stockade__V1__TemplateServiceDeleteRequest m =
        STOCKADE__V1__TEMPLATE_SERVICE_DELETE_REQUEST__INIT;
    m.name = name;
    const struct invocation i = {.method = SERVICE "Delete",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__template_service_delete_response__descriptor};
    return invoke(s, &i, NULL, e);
}
