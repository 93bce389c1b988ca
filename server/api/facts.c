// SPDX-License-Identifier: Apache-2.0
// See facts.h.
#include "facts.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "proto/language.h"
#include "proto/now.h"
#include "server/access/access.h"
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

enum {
    COMMANDS_MAX = 1024,
    CREDENTIAL_BYTES = sizeof((struct policy_call *)0)->credential_id,
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
    if (id == NULL)
        id = text_of(m, "sandbox");
    if (id == NULL && strncmp(method, "SandboxService/", 15) == 0)
        id = text_of(m, "id");
    return id != NULL ? id : "";
}

static void
note_refused(struct facts *f, const struct err *why)
{
    if (f->refused.code == ERR_OK)
        f->refused = *why;
}

static struct sandbox *
find_sandbox(struct facts *f, const struct facts_of *of, const char *named)
{
    struct err none;
    const struct server *s = of->s;
    const char *tenant = of->tenant;
    const ProtobufCMessage *m = of->request;
    if (named[0] != '\0') {
        struct sandbox *box = sandbox_find(s->sandboxes, tenant, named, &none);
        if (box == NULL && f->deed.runs && sleepers_find(s->sleepers, tenant, named) == NULL)
            note_refused(f, &none);
        return box;
    }
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
add_made(struct facts *f, const struct facts_of *of)
{
    const ProtobufCMessage *m = of->request;
    struct err none;
    const char *template = text_of(m, "template"), *snapshot = text_of(m, "snapshot");
    if (template[0] == '\0' && snapshot != NULL && snapshot[0] != '\0') {
        const struct stored *kept = kept_find(of->s, of->tenant, snapshot, &none);
        if (kept == NULL)
            return;
        template = kept->template;
    }
    f->deed.template = template[0] != '\0' ? template : "default";
    if (convert_spec(of->s, of->tenant, template, message_of(m, "limits"), message_of(m, "network"),
                     &f->spec, &none) < 0) {
        note_refused(f, &none);
        return;
    }
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
add_batch(struct facts *f, const struct facts_of *of)
{
    const ProtobufCMessage *m = of->request;
    struct batch_view v;
    struct err none;
    const struct batch *b = batch_find(of->s->batches, of->tenant, text_of(m, "key"), &none);
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
add_limits(struct facts *f, const struct facts_of *of, const struct sandbox *box)
{
    const ProtobufCMessage *m = of->request;
    const struct limits_of_box limits = {.own = &box->spec.limits,
                                         .asked = &box->spec.asked,
                                         .most = &box->spec.template->limits_max};
    const char *process = text_of(m, "process_id");
    struct limits asked, out = box->spec.limits;
    struct err none;
    const bool stays = m->descriptor != &stockade__v1__start_request__descriptor ||
                       !((const Stockade__V1__StartRequest *)m)->foreground;
    limits_from_message(message_of(m, "limits"), &asked);
    if (process != NULL && process[0] != '\0') {
        const struct job *j = job_find(of->s->jobs, of->tenant, process, &none);
        if (j == NULL)
            return;
        out = *job_limits(j);
    } else if (f->deed.makes) {
        for (int i = 0; i < LIMITS_N; i++)
            out.v[i] = asked.v[i] != 0 ? asked.v[i] : out.v[i];
    } else if (limits_resolve_job(&limits, &asked, stays, &out, &none) < 0) {
        note_refused(f, &none);
        return;
    }
    set_limits(f, &out, m);
}

// Of an existing sandbox, with what the call changes.
static void
add_existing(struct facts *f, const struct facts_of *of, const struct sandbox *box)
{
    const ProtobufCMessage *m = of->request;
    struct err none;
    const Stockade__V1__NetworkPolicy *network = message_of(m, "network");
    f->deed.sandbox_id = box->id.id;
    f->deed.sandbox_name = box->spec.name;
    f->deed.template = box->spec.template->name;
    if (f->deed.runs || f->deed.makes)
        add_limits(f, of, box);
    f->deed.has_network = f->deed.runs || f->deed.makes || network != NULL;
    f->deed.network = box->net.wanted != NULL ? box->net.wanted : box->net.in_force;
    if (network == NULL)
        return;
    if (convert_network(of->s, box->spec.template, network, &f->network, &none) == 0)
        f->deed.network = f->network;
    else
        note_refused(f, &none);
}

// Of one that is asleep: a call that needs more than this has woken it before (options.proto: wakes).
static void
add_asleep(struct facts *f, const struct sleeper *sl)
{
    f->deed.sandbox_id = sl->id.id;
    f->deed.sandbox_name = sl->name;
    f->deed.template = sl->template;
}

// ---- what policies look at beside that

const char *
facts_credential(const struct principal *who)
{
    static const char *const words[] = {[PROOF_NONE] = "none",
                                        [PROOF_PEER] = "peer",
                                        [PROOF_KEY] = "key",
                                        [PROOF_TOKEN] = "token",
                                        [PROOF_CERTIFICATE] = "certificate",
                                        [PROOF_JWT] = "jwt"};
    return words[who->proof];
}

// Which counts a credential has: those of a token's first block, which every token that was narrowed from it has, too.
static void
set_credential(const struct principal *who, uint8_t out[CREDENTIAL_BYTES])
{
    if (who->proof == PROOF_KEY)
        memcpy(out, who->credential, CREDENTIAL_BYTES);
    else if (who->proof == PROOF_TOKEN)
        (void)sodium_hex2bin(out, CREDENTIAL_BYTES, who->credential_id, strlen(who->credential_id),
                             NULL, NULL, NULL);
}

// A path in a field of bytes, from the working directory on if it is relative. NULL: no such field, or out of memory.
static const char *
path_of(struct facts *f, const ProtobufCMessage *m, const char *name, const char *from)
{
    const ProtobufCBinaryData *b = field(m, name, PROTOBUF_C_TYPE_BYTES);
    if (b == NULL || b->len == 0 || b->data[0] == '/')
        return b != NULL && b->len > 0 ? arena_copy(f->arena, b->data, b->len) : NULL;
    const size_t room = strlen(from) + 1 + b->len + 1;
    char *path = arena_alloc(f->arena, room);
    if (path != NULL)
        (void)snprintf(path, room, "%s/%.*s", from, (int)b->len, (const char *)b->data);
    return path;
}

static int
add_paths(struct facts *f, const ProtobufCMessage *m, const char *from, struct err *e)
{
    static const char *const names[] = {"path", "to"};
    enum { NAMES = sizeof names / sizeof names[0] };
    const char **all = arena_alloc(f->arena, sizeof names);
    for (size_t i = 0; i < NAMES && all != NULL; i++) {
        const ProtobufCBinaryData *b = field(m, names[i], PROTOBUF_C_TYPE_BYTES);
        if (b == NULL || b->len == 0)
            continue;
        all[f->call.paths_n] = path_of(f, m, names[i], from);
        if (all[f->call.paths_n++] == NULL)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
    }
    f->call.paths = all;
    return all != NULL ? 0
                       : err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
}

static int
add_labels(struct facts *f, const struct label *labels, uint32_t n, struct err *e)
{
    const char **all = arena_alloc(f->arena, (n + 1) * sizeof(void *));
    for (uint32_t i = 0; i < n && all != NULL; i++) {
        const size_t room = strlen(labels[i].key) + 1 + strlen(labels[i].value) + 1;
        char *text = arena_alloc(f->arena, room);
        if (text == NULL)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
        (void)snprintf(text, room, "%s=%s", labels[i].key, labels[i].value);
        all[i] = text;
    }
    f->call.labels = all;
    f->call.labels_n = all != NULL ? n : 0;
    return all != NULL ? 0
                       : err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
}

// Of the call, or of the context that it runs in.
static const char *
language_of(const struct facts_of *of)
{
    const char *said = text_of(of->request, "language");
    const char *id = text_of(of->request, "context_id");
    struct context_view view;
    struct err none;
    const struct context *in =
        id != NULL && id[0] != '\0' ? context_find(of->s->contexts, of->tenant, id, &none) : NULL;
    if (in != NULL) {
        context_view(in, &view);
        return view.language;
    }
    if (said != NULL && said[0] != '\0') {
        const char *name = language_name(said);
        return name != NULL ? name : said; // refused later
    }
    return strncmp(of->method, "/stockade.v1.CodeService/", 25) == 0 ? "python" : "";
}

// A call that makes a sandbox may set all limits, a job in a sandbox its own.
static uint32_t
can_fill(const struct facts *f, const ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *d =
        protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "limits");
    const bool start = m->descriptor == &stockade__v1__start_request__descriptor;
    struct limits asked;
    uint32_t set = 0;
    if (d == NULL || d->descriptor != &stockade__v1__limits__descriptor ||
        (!f->deed.makes && !start))
        return 0;
    limits_from_message(message_of(m, "limits"), &asked);
    for (int i = 0; i < LIMITS_N; i++)
        if (asked.v[i] == 0 && (!start || limit_table[i].owner != LIMIT_OF_SANDBOX))
            set |= UINT32_C(1) << i;
    if (m->descriptor == &stockade__v1__run_code_request__descriptor)
        set &= ~(UINT32_C(1) << LIMIT_WALL_MS); // it has a field of its own
    return set;
}

static int
add_call(struct facts *f, const struct facts_of *of, const struct sandbox *box, struct err *e)
{
    const char *from = box != NULL ? box->spec.template->workdir : "";
    const struct label *labels = box != NULL ? box->spec.labels : NULL;
    f->call = (struct policy_call){.deed = &f->deed,
                                   .tenant = of->tenant,
                                   .credential = facts_credential(of->who),
                                   .simulated = call_message_simulates(of->request),
                                   .language = language_of(of),
                                   .now_ms = access_now_ms(of->s->access),
                                   .now_ns = (uint64_t)now_ns(CLOCK_BOOTTIME)};
    set_credential(of->who, f->call.credential_id);
    f->call.can_fill = can_fill(f, of->request);
    int r = add_paths(f, of->request, from, e);
    return r == 0 ? add_labels(f, labels, box != NULL ? box->spec.labels_n : 0, e) : r;
}

// ---- all

bool
facts_is_harmless(const char *method)
{
    static const char *const harmless[] = {"SystemService/",
                                           "HealthService/",
                                           "ReflectionService/",
                                           "PolicyService/",
                                           "TokenService/ListSigningKeys",
                                           NULL};
    return is_one_of(method, harmless);
}

// It makes no sandbox; without a template it concerns all of them.
static void
add_silence(struct facts *f, const ProtobufCMessage *m)
{
    const char *template = text_of(m, "template");
    f->deed.template = template != NULL && template[0] != '\0' ? template : NULL;
}

static int
add_sandbox(struct facts *f, const struct facts_of *of, struct err *e)
{
    const ProtobufCMessage *m = of->request;
    const char *named = sandbox_named(m, f->deed.method);
    const struct sandbox *box = find_sandbox(f, of, named);
    const struct sleeper *asleep =
        named[0] != '\0' ? sleepers_find(of->s->sleepers, of->tenant, named) : NULL;
    const char *context = text_of(m, "context_id");
    const bool in_context = context != NULL && context[0] != '\0';
    if (continues_batch(m))
        add_batch(f, of);
    else if (box != NULL)
        add_existing(f, of, box);
    else if (asleep != NULL)
        add_asleep(f, asleep);
    else if (strcmp(f->deed.method, "AnomalyService/CreateSilence") == 0)
        add_silence(f, m);
    else if (!in_context && text_of(m, "template") != NULL &&
             (f->deed.makes || text_of(m, "name") == NULL))
        add_made(f, of);
    f->deed.makes = f->deed.makes || (box == NULL && f->deed.limits != NULL);
    f->deed.unknown = (f->deed.runs || f->deed.makes) && f->deed.limits == NULL;
    return add_call(f, of, box, e);
}

int
facts_gather(struct facts *f, const struct facts_of *of, struct err *e)
{
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
    const ProtobufCMessage *m = of->request;
    const char *method = of->method;
    method += strncmp(method, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    *f = (struct facts){.arena = arena_new(CONVERT_ARENA_MAX)};
    f->deed.method = method;
    f->deed.harmless = facts_is_harmless(method);
    f->deed.runs = is_one_of(method, runs) && strcmp(method, "ProcessService/RunBatch") != 0;
    f->deed.makes = is_one_of(method, makes);
    if (adds_to_batch(m) && ((const Stockade__V1__AddToBatchRequest *)m)->n_jobs == 0)
        f->deed.runs = false; // it only confirms results
    if (f->arena == NULL || (f->deed.runs && !add_commands(f, m)))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
    // Ids of connections and transfers are known only to who began them, with a call that was allowed.
    f->deed.follows = text_of(m, "connection_id") != NULL || text_of(m, "transfer_id") != NULL;
    return add_sandbox(f, of, e);
}

int
facts_read_policy(const struct call *c, struct policy **out, struct err *e)
{
    const char *text = call_metadata(c, "policy");
    *out = NULL;
    int r = text != NULL ? policy_read_request(text, out, e) : 0;
    if (r < 0)
        err_detail(e, "REQUEST_POLICY", "metadata.policy",
                   "it has the keys otherwise, reason and rules; see stockade-policy(5)");
    return r;
}

void
facts_clear(struct facts *f)
{
    policy_free(f->request);
    sandbox_spec_clear(&f->spec);
    network_unref(f->network);
    arena_free(f->arena);
}
