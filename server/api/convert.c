// SPDX-License-Identifier: Apache-2.0
// See convert.h.
#include "convert.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../config.h"
#include "../server.h"

static Stockade__V1__Figure *
convert_figure(struct arena *a, const struct figure *f)
{
    Stockade__V1__Figure *m = wire_make(a, &stockade__v1__figure__descriptor);
    if (m == NULL)
        return NULL;
    m->value = f->value;
    m->source = (Stockade__V1__FigureSource)f->source;
    m->scope = (Stockade__V1__FigureScope)f->scope;
    return m;
}

static char *
unknown_line(struct arena *a, const char *name, const char *why)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s: %s", name, why);
    return arena_copy(a, line, (size_t)n);
}

// The fields 1 to BILL_FIGURES_N of the message are the figures, in the order of enum bill_figure.
static Stockade__V1__Bill *
convert_bill(struct arena *a, const struct bill *b)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__bill__descriptor;
    Stockade__V1__Bill *m = wire_make(a, type);
    if (m == NULL)
        return NULL;
    m->unknown = arena_alloc(a, sizeof *m->unknown * BILL_FIGURES_N);
    if (m->unknown == NULL)
        return NULL;
    for (unsigned i = 0; i < BILL_FIGURES_N; i++) {
        Stockade__V1__Figure *f = convert_figure(a, &b->f[i]);
        memcpy((char *)m + type->fields[i].offset, &f, sizeof(void *));
        if (f == NULL)
            return NULL;
        if (b->unknown[i] == NULL)
            continue;
        const char *line = unknown_line(a, bill_name(i), b->unknown[i]);
        if (line == NULL)
            return NULL;
        m->unknown[m->n_unknown++] = line;
    }
    return m;
}

static Stockade__V1__LimitHit *
convert_hit(struct arena *a, const struct limit_hit *h)
{
    Stockade__V1__LimitHit *m = wire_make(a, &stockade__v1__limit_hit__descriptor);
    if (m == NULL)
        return NULL;
    m->name = limit_table[h->limit].name;
    m->value = h->value;
    m->over = h->over;
    m->count = h->count;
    return m;
}

Stockade__V1__Result *
convert_result(struct arena *a, const struct job_result *r)
{
    Stockade__V1__Result *m = wire_make(a, &stockade__v1__result__descriptor);
    if (m == NULL)
        return NULL;
    m->outcome = (Stockade__V1__Outcome)r->outcome;
    m->exit_code = r->exit_code;
    m->signal = r->signal;
    m->reason = r->reason;
    union { // protobuf-c wants it writable; packing only reads
        const Stockade__V1__Record *from;
        Stockade__V1__Record *to;
    } record = {.from = r->record};
    m->record = record.to;
    m->bill = convert_bill(a, &r->bill);
    m->limits_also_hit = arena_alloc(a, sizeof(void *) * LIMITS_N);
    if (m->bill == NULL || m->limits_also_hit == NULL)
        return NULL;
    for (uint32_t i = 0; i < r->hits.n; i++) {
        Stockade__V1__LimitHit *h = convert_hit(a, &r->hits.hit[i]);
        if (h == NULL)
            return NULL;
        if (i == 0)
            m->limit_hit = h;
        else
            m->limits_also_hit[m->n_limits_also_hit++] = h;
    }
    return m;
}

static Google__Protobuf__Timestamp *
convert_time(struct arena *a, int64_t ms)
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

Stockade__V1__Sandbox *
convert_sandbox(struct arena *a, const struct sandbox *s)
{
    static const Stockade__V1__SandboxState states[SANDBOX_STATES_N] = {
        [SANDBOX_RUNNING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_PAUSING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_RUNNING,
        [SANDBOX_PAUSED] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED,
        [SANDBOX_RESUMING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_PAUSED,
        [SANDBOX_DELETING] = STOCKADE__V1__SANDBOX_STATE__SANDBOX_STATE_DELETING,
    };
    Stockade__V1__Sandbox *m = wire_make(a, &stockade__v1__sandbox__descriptor);
    if (m == NULL)
        return NULL;
    m->id = s->id.id;
    m->template_ = s->spec.template->name;
    m->name = s->spec.name;
    m->state = states[s->state];
    m->processes = s->jobs_n;
    m->limits = wire_make(a, &stockade__v1__limits__descriptor);
    m->network = convert_policy(a, s->network);
    m->create_time = convert_time(a, s->created_ms);
    if (m->limits == NULL || m->network == NULL || m->create_time == NULL ||
        !convert_metadata(a, s, m))
        return NULL;
    limits_to_message(&s->spec.limits, m->limits);
    if (s->expires_ms != 0)
        m->expire_time = convert_time(a, s->expires_ms);
    return m;
}

Stockade__V1__Process *
convert_process(struct arena *a, const struct job *j)
{
    struct job_view v;
    job_view(j, &v);
    Stockade__V1__Process *m = wire_make(a, &stockade__v1__process__descriptor);
    if (m == NULL)
        return NULL;
    m->id = v.id;
    m->sandbox_id = v.sandbox_id;
    m->pid = v.pid;
    m->args = arena_alloc(a, sizeof(char *) * (v.args_n + 1));
    if (m->args == NULL)
        return NULL;
    for (size_t i = 0; i < v.args_n; i++)
        m->args[m->n_args++] = v.args[i];
    m->output_bytes = v.output_bytes;
    m->terminal = v.terminal;
    if (v.started_ms != 0 && (m->start_time = convert_time(a, v.started_ms)) == NULL)
        return NULL;
    if (v.result != NULL && (m->result = convert_result(a, v.result)) == NULL)
        return NULL;
    if (m->result != NULL)
        m->result->record = NULL; // a page has many of them
    return m;
}

int
convert_token(const char *token, uint64_t *order, struct err *e)
{
    *order = 0;
    if (token[0] == '\0')
        return 0;
    if (strlen(token) != CONVERT_TOKEN_BYTES - 1 || strspn(token, "0123456789abcdef") != 16)
        return err_field(e, "page_token", "not a token of a previous page");
    *order = strtoull(token, NULL, 16);
    return 0;
}

void
convert_to_token(uint64_t order, char out[CONVERT_TOKEN_BYTES])
{
    (void)snprintf(out, CONVERT_TOKEN_BYTES, "%016" PRIx64, order);
}

int
convert_spec(const struct server *s, const char *template, const char *name,
             const Stockade__V1__Limits *limits, const Stockade__V1__NetworkPolicy *network,
             struct sandbox_spec *out, struct err *e)
{
    const struct config_template *t = config_template(s->config, template);
    if (t == NULL) {
        int r = err_set(e, ERR_NOT_FOUND, "there is no template %s", template);
        err_detail(e, "TEMPLATE_UNKNOWN", "template", "SystemService.Info lists them");
        return r;
    }
    if (t->disabled[0] != '\0') {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "the template %s is disabled: %s", t->name,
                        t->disabled);
        err_detail(e, "TEMPLATE_DISABLED", "template",
                   "correct its paths in the configuration, and restart the broker");
        return r;
    }
    *out = (struct sandbox_spec){.template = t};
    limits_from_message(limits, &out->asked);
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    int r = limits_resolve(&t->limits, &t->limits_max, &out->asked, &out->limits, e);
    return r < 0 ? r : convert_network(s, t, network, &out->network, e);
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
