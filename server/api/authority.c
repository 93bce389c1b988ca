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
#include "server/batch/batch.h"
#include "server/code/context.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/sandbox/limits.h"
#include "server/sandbox/sandbox.h"
#include "server/sleep/sleepers.h"
#include "server/snapshot/kept.h"
#include "server/store/store.h"
#include "stockade/v1/code_service.pb-c.h"

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

// The id or name of a sandbox in a request; "": none.
static const char *
sandbox_named(const ProtobufCMessage *m, const char *method)
{
    const char *id = text_of(m, "sandbox_id");
    if (id == NULL && strncmp(method, "SandboxService/", 15) == 0)
        id = text_of(m, "id");
    return id != NULL ? id : "";
}

static struct sandbox *
find_sandbox(const struct server *s, const struct call *c, const ProtobufCMessage *m,
             const char *named)
{
    struct err none;
    const char *tenant = call_tenant(c);
    if (named[0] != '\0')
        return sandbox_find(s->sandboxes, tenant, named, &none);
    const char *id = text_of(m, "process_id");
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

// The time limit of a cell has a field of its own; 0 is not the template's limit, but the one of RunCode.
static void
set_limits(struct facts *f, const struct limits *l, const ProtobufCMessage *m)
{
    f->limits = *l;
    if (m->descriptor == &stockade__v1__run_code_request__descriptor)
        f->limits.v[LIMIT_WALL_MS] = ((const Stockade__V1__RunCodeRequest *)m)->timeout_ms;
    f->deed.limits = &f->limits;
}

// Limits and network of a sandbox that the call makes; unknown if it cannot be made.
static void
add_made(struct facts *f, const struct server *s, const struct call *c, const ProtobufCMessage *m)
{
    struct err none;
    const char *template = text_of(m, "template"), *snapshot = text_of(m, "snapshot");
    if (template[0] == '\0' && snapshot != NULL && snapshot[0] != '\0') {
        const struct stored *kept = kept_find(s, call_tenant(c), snapshot, &none);
        if (kept == NULL)
            return;
        template = kept->template;
    }
    f->deed.template = template[0] != '\0' ? template : "default";
    if (convert_spec(s, call_tenant(c), template, message_of(m, "limits"), message_of(m, "network"),
                     &f->spec, &none) < 0)
        return;
    set_limits(f, &f->spec.limits, m);
    f->deed.network = f->spec.network;
    f->deed.has_network = true;
}

static bool
adds_to_batch(const ProtobufCMessage *m)
{
    return m->descriptor == &stockade__v1__add_to_batch_request__descriptor;
}

static bool
continues_batch(const ProtobufCMessage *m)
{
    return adds_to_batch(m) || (m->descriptor == &stockade__v1__run_batch_request__descriptor &&
                                ((const Stockade__V1__RunBatchRequest *)m)->resume);
}

// 0 is no limit.
static uint64_t
higher(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0)
        return 0;
    return a > b ? a : b;
}

// Each job of a batch may set its own limits: the highest of each kind counts. Unknown if there is no such batch, or a job cannot
// be.
static void
add_batch(struct facts *f, const struct server *s, const struct call *c, const ProtobufCMessage *m)
{
    struct batch_view v;
    struct err none;
    const struct batch *b = batch_find(s->batches, call_tenant(c), text_of(m, "key"), &none);
    if (b == NULL)
        return;
    batch_view(b, &v);
    f->deed.template = v.template;
    f->deed.network = v.network;
    f->deed.has_network = true;
    f->limits = *v.limits;
    const Stockade__V1__AddToBatchRequest *add =
        adds_to_batch(m) ? (const Stockade__V1__AddToBatchRequest *)m : NULL;
    for (size_t i = 0; add != NULL && i < add->n_jobs; i++) {
        struct limits one;
        if (batch_job_limits(b, add->jobs[i], &one, &none) < 0)
            return;
        for (int k = 0; k < LIMITS_N; k++)
            f->limits.v[k] = i == 0 ? one.v[k] : higher(f->limits.v[k], one.v[k]);
    }
    f->deed.limits = &f->limits;
}

// The limits of a job in an existing sandbox, or of a copy of that.
static void
add_limits(struct facts *f, const struct server *s, const struct call *c, const struct sandbox *box,
           const ProtobufCMessage *m)
{
    const struct limits_of_box of = {.own = &box->spec.limits,
                                     .asked = &box->spec.asked,
                                     .most = &box->spec.template->limits_max};
    const char *process = text_of(m, "process_id");
    struct limits asked, out = box->spec.limits;
    struct err none;
    const bool stays = m->descriptor != &stockade__v1__start_request__descriptor ||
                       !((const Stockade__V1__StartRequest *)m)->foreground;
    limits_from_message(message_of(m, "limits"), &asked);
    if (process != NULL && process[0] != '\0') {
        const struct job *j = job_find(s->jobs, call_tenant(c), process, &none);
        if (j == NULL)
            return;
        out = *job_limits(j);
    } else if (f->deed.makes) {
        for (int i = 0; i < LIMITS_N; i++)
            out.v[i] = asked.v[i] != 0 ? asked.v[i] : out.v[i];
    } else if (limits_resolve_job(&of, &asked, stays, &out, &none) < 0) {
        return;
    }
    set_limits(f, &out, m);
}

// Of an existing sandbox, with what the call changes.
static void
add_existing(struct facts *f, const struct server *s, const struct call *c,
             const struct sandbox *box, const ProtobufCMessage *m)
{
    struct err none;
    const Stockade__V1__NetworkPolicy *network = message_of(m, "network");
    f->deed.sandbox_id = box->id.id;
    f->deed.sandbox_name = box->spec.name;
    f->deed.template = box->spec.template->name;
    if (f->deed.runs || f->deed.makes)
        add_limits(f, s, c, box, m);
    f->deed.has_network = f->deed.runs || f->deed.makes || network != NULL;
    f->deed.network = box->net.wanted != NULL ? box->net.wanted : box->net.in_force;
    if (network != NULL && convert_network(s, box->spec.template, network, &f->network, &none) == 0)
        f->deed.network = f->network;
}

// Of one that is asleep: a call that needs more than this has woken it before (options.proto: wakes).
static void
add_asleep(struct facts *f, const struct sleeper *sl)
{
    f->deed.sandbox_id = sl->id.id;
    f->deed.sandbox_name = sl->name;
    f->deed.template = sl->template;
}

static int
gather(struct facts *f, const struct server *s, const struct call *c, const ProtobufCMessage *m,
       struct err *e)
{
    static const char *const harmless[] = {"SystemService/", "HealthService/", "ReflectionService/",
                                           "TokenService/ListSigningKeys", NULL};
    static const char *const runs[] = {"ProcessService/Run",
                                       "ProcessService/Start",
                                       "ProcessService/AddToBatch",
                                       "ProcessService/Inp",
                                       "CodeService/Run",
                                       "CodeService/Create",
                                       "CodeService/Restart",
                                       "CodeService/Restore",
                                       "CodeService/Fork",
                                       "TemplateService/Create",
                                       NULL};
    static const char *const makes[] = {"SandboxService/Create", "SandboxService/Fork",
                                        "ProcessService/Run", NULL};
    static const char prefix[] = "/stockade.v1.";
    const char *method = call_method_path(c);
    method += strncmp(method, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    f->deed.method = method;
    f->deed.harmless = is_one_of(method, harmless);
    f->deed.runs = is_one_of(method, runs) && strcmp(method, "ProcessService/RunBatch") != 0;
    f->deed.makes = is_one_of(method, makes);
    if (adds_to_batch(m) && ((const Stockade__V1__AddToBatchRequest *)m)->n_jobs == 0)
        f->deed.runs = false; // it only confirms results
    if (f->deed.runs && !add_commands(f, m))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "check the token: out of memory");
    // Ids of connections and transfers are known only to who began them, with a call that was allowed.
    f->deed.follows = text_of(m, "connection_id") != NULL || text_of(m, "transfer_id") != NULL;
    const char *named = sandbox_named(m, method);
    const struct sandbox *box = find_sandbox(s, c, m, named);
    const struct sleeper *asleep =
        named[0] != '\0' ? sleepers_find(s->sleepers, call_tenant(c), named) : NULL;
    const char *context = text_of(m, "context_id");
    const bool in_context = context != NULL && context[0] != '\0';
    if (continues_batch(m))
        add_batch(f, s, c, m);
    else if (box != NULL)
        add_existing(f, s, c, box, m);
    else if (asleep != NULL)
        add_asleep(f, asleep);
    else if (!in_context && text_of(m, "template") != NULL &&
             (f->deed.makes || text_of(m, "name") == NULL))
        add_made(f, s, c, m);
    f->deed.makes = f->deed.makes || (box == NULL && f->deed.limits != NULL);
    f->deed.unknown = (f->deed.runs || f->deed.makes) && f->deed.limits == NULL;
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
