// SPDX-License-Identifier: Apache-2.0
// What a call with a token is about, as plain data for server/access/caveats.h. A request is read along its descriptor: a method that is
// added later and names its sandbox, template, command, limits or network like the others is understood; one that does not is refused
// by the caveats that it would have to satisfy.
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "server/access/tokens.h"
#include "server/base/server.h"
#include "server/code/context.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/sandbox/limits.h"
#include "server/sandbox/sandbox.h"

enum { COMMANDS_MAX = 1024 };

// A deed, and what it borrows from.
struct facts {
    struct deed deed;
    struct arena *arena;
    struct sandbox_spec spec; // of a sandbox that the call makes
    struct network *network;  // that it gives to one; owned
    struct limits limits;
};

// ---- fields of a request

static const void *
field(const ProtobufCMessage *m, const char *name, ProtobufCType type)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
    return f != NULL && f->type == type ? (const char *)m + f->offset : NULL;
}

// NULL: it has no such field.
static const char *
text_of(const ProtobufCMessage *m, const char *name)
{
    const void *at = field(m, name, PROTOBUF_C_TYPE_STRING);
    return at != NULL ? *(const char *const *)at : NULL;
}

static const void *
message_of(const ProtobufCMessage *m, const char *name)
{
    const void *at = field(m, name, PROTOBUF_C_TYPE_MESSAGE);
    return at != NULL ? *(const void *const *)at : NULL;
}

static bool
is_one_of(const char *method, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strncmp(method, *names, strlen(*names)) == 0)
            return true;
    return false;
}

// ---- the parts

static struct sandbox *
find_sandbox(const struct server *s, const struct call *c, const ProtobufCMessage *m,
             const char *method)
{
    struct err none;
    const char *tenant = call_tenant(c);
    const char *id = text_of(m, "sandbox_id");
    if (id == NULL && strncmp(method, "SandboxService/", 15) == 0)
        id = text_of(m, "id");
    if (id != NULL && id[0] != '\0')
        return sandbox_find(s->sandboxes, tenant, id, &none);
    id = text_of(m, "process_id");
    if (id == NULL || id[0] == '\0') {
        const char *context = text_of(m, "context_id");
        const struct context *in = context != NULL && context[0] != '\0'
                                       ? context_find(s->contexts, tenant, context, &none)
                                       : NULL;
        struct context_view view;
        if (in == NULL)
            return NULL;
        context_view(in, &view);
        return sandbox_find(s->sandboxes, tenant, view.sandbox_id, &none);
    }
    struct job *j = id != NULL && id[0] != '\0' ? job_find(s->jobs, tenant, id, &none) : NULL;
    if (j != NULL)
        return job_sandbox(j);
    return NULL;
}

static bool
add_command(struct facts *f, const Stockade__V1__Command *c, struct deed_command *out)
{
    const char **names = arena_alloc(f->arena, (c->n_env + 1) * sizeof(void *));
    if (names == NULL)
        return false;
    for (size_t i = 0; i < c->n_env; i++)
        names[i] = c->env[i]->name;
    *out = (struct deed_command){c->n_args, c->n_env, (const char *const *)c->args, names};
    return true;
}

// False: out of memory.
static bool
add_commands(struct facts *f, const ProtobufCMessage *m)
{
    const Stockade__V1__AddToBatchRequest *batch =
        m->descriptor == &stockade__v1__add_to_batch_request__descriptor
            ? (const Stockade__V1__AddToBatchRequest *)m
            : NULL;
    const Stockade__V1__Command *one = message_of(m, "command");
    const size_t n = batch != NULL ? batch->n_jobs : one != NULL;
    struct deed_command *all =
        n <= COMMANDS_MAX ? arena_alloc(f->arena, (n + 1) * sizeof *all) : NULL;
    for (size_t i = 0; i < n && all != NULL; i++)
        if (!add_command(f, batch != NULL ? batch->jobs[i]->command : one, &all[i]))
            return false;
    f->deed.commands = all;
    f->deed.commands_n = n;
    return all != NULL;
}

// Limits and network of a sandbox that the call makes. If they cannot be made, the handler refuses the call with the same error.
static void
add_made(struct facts *f, const struct server *s, const struct call *c, const ProtobufCMessage *m)
{
    struct err none;
    const char *template = text_of(m, "template");
    f->deed.template = template[0] != '\0' ? template : "default";
    if (convert_spec(s, call_tenant(c), template, message_of(m, "limits"), message_of(m, "network"),
                     &f->spec, &none) < 0)
        return;
    f->deed.limits = &f->spec.limits;
    f->deed.network = f->spec.network;
    f->deed.has_network = true;
}

// Those of an existing one, with what the call changes. The limits of a job are its own where it sets them.
static void
add_existing(struct facts *f, const struct server *s, const struct sandbox *box,
             const ProtobufCMessage *m)
{
    struct limits own;
    struct err none;
    const Stockade__V1__NetworkPolicy *network = message_of(m, "network");
    f->deed.sandbox_id = box->id.id;
    f->deed.sandbox_name = box->spec.name;
    f->deed.template = box->spec.template->name;
    limits_from_message(message_of(m, "limits"), &own);
    for (int i = 0; i < LIMITS_N; i++)
        f->limits.v[i] = own.v[i] != 0 ? own.v[i] : box->spec.limits.v[i];
    if (f->deed.runs || f->deed.makes)
        f->deed.limits = &f->limits;
    f->deed.has_network = f->deed.runs || f->deed.makes || network != NULL;
    f->deed.network = box->net.wanted != NULL ? box->net.wanted : box->net.in_force;
    if (network != NULL && convert_network(s, box->spec.template, network, &f->network, &none) == 0)
        f->deed.network = f->network;
}

static int
gather(struct facts *f, const struct server *s, const struct call *c, const ProtobufCMessage *m,
       struct err *e)
{
    static const char *const harmless[] = {"SystemService/", "HealthService/", "ReflectionService/",
                                           "TokenService/ListSigningKeys", NULL};
    static const char *const runs[] = {
        "ProcessService/Run",  "ProcessService/Start",   "ProcessService/AddToBatch",
        "ProcessService/Inp",  "CodeService/Run",        "CodeService/Create",
        "CodeService/Restart", "TemplateService/Create", NULL};
    static const char *const makes[] = {"SandboxService/Create", "SandboxService/Fork",
                                        "ProcessService/Run", NULL};
    static const char prefix[] = "/stockade.v1.";
    const char *method = call_method_path(c);
    method += strncmp(method, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    f->deed.method = method;
    f->deed.harmless = is_one_of(method, harmless);
    f->deed.runs = is_one_of(method, runs) && strcmp(method, "ProcessService/RunBatch") != 0;
    f->deed.makes = is_one_of(method, makes);
    if (f->deed.runs && !add_commands(f, m))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "check the token: out of memory");
    // Ids of connections and transfers are known only to who began them, with a call that was allowed.
    f->deed.follows = text_of(m, "connection_id") != NULL || text_of(m, "transfer_id") != NULL;
    const struct sandbox *box = find_sandbox(s, c, m, method);
    const char *context = text_of(m, "context_id");
    const char *snapshot = text_of(m, "snapshot");
    const bool in_context = context != NULL && context[0] != '\0';
    if (box != NULL)
        add_existing(f, s, box, m);
    else if (!in_context && text_of(m, "template") != NULL &&
             (f->deed.makes || text_of(m, "name") == NULL))
        add_made(f, s, c, m);
    if (box == NULL && snapshot != NULL && snapshot[0] != '\0')
        f->deed.template = NULL; // that of the snapshot
    f->deed.makes = f->deed.makes || (box == NULL && f->deed.limits != NULL);
    return 0;
}

static void
facts_clear(struct facts *f)
{
    sandbox_spec_clear(&f->spec);
    network_unref(f->network);
    arena_free(f->arena);
}

// ---- waiting until a use is on the disk

struct waiting {
    struct call *call; // NULL: it was cancelled
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct waiting *w = cookie;
    (void)why;
    w->call = NULL;
}

static void
on_counted(void *cookie, const struct err *e)
{
    struct waiting *w = cookie;
    if (w->call != NULL)
        dispatch_decide(w->call, e);
    free(w);
}

int
authority_decide(void *server, struct call *c, const ProtobufCMessage *request, struct err *e)
{
    struct server *s = server;
    struct facts f = {0};
    if (call_principal(c)->proof != PROOF_TOKEN)
        return 0;
    struct waiting *w = malloc(sizeof *w);
    f.arena = arena_new(CONVERT_ARENA_MAX);
    int r = w != NULL && f.arena != NULL
                ? gather(&f, s, c, request, e)
                : err_set(e, ERR_RESOURCE_EXHAUSTED, "check the token: out of memory");
    if (r == 0 && w != NULL) {
        w->call = c;
        r = token_decide(s->access, call_principal(c), &f.deed, on_counted, w, e);
    }
    facts_clear(&f);
    if (r > 0)
        call_watch(c, on_cancel, NULL, w);
    else
        free(w);
    return r;
}
