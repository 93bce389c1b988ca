// SPDX-License-Identifier: Apache-2.0
// See job_message.h.
#include "job_message.h"

#include <stdio.h>
#include <string.h>

#include "job.h"
#include "proto/wire.h"

static char *
unknown_line(struct arena *a, const char *name, const char *why)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%s: %s", name, why);
    return arena_copy(a, line, (size_t)n);
}

// The fields 1 to BILL_FIGURES_N of the message are the figures, in the order of enum bill_figure.
void
job_message_bill(Stockade__V1__Bill *m, Stockade__V1__Figure figures[BILL_FIGURES_N],
                 const struct bill *b)
{
    const ProtobufCMessageDescriptor *type = &stockade__v1__bill__descriptor;
    stockade__v1__bill__init(m);
    for (unsigned i = 0; i < BILL_FIGURES_N; i++) {
        Stockade__V1__Figure *f = &figures[i];
        stockade__v1__figure__init(f);
        f->value = b->f[i].value;
        f->source = (Stockade__V1__FigureSource)b->f[i].source;
        f->scope = (Stockade__V1__FigureScope)b->f[i].scope;
        memcpy((char *)m + type->fields[i].offset, &f, sizeof(void *));
    }
}

static Stockade__V1__Bill *
bill_to_message(struct arena *a, const struct bill *b)
{
    Stockade__V1__Bill *m = wire_make(a, &stockade__v1__bill__descriptor);
    Stockade__V1__Figure *figures = arena_alloc(a, sizeof *figures * BILL_FIGURES_N);
    if (m == NULL || figures == NULL)
        return NULL;
    job_message_bill(m, figures, b);
    m->unknown = arena_alloc(a, sizeof *m->unknown * BILL_FIGURES_N);
    if (m->unknown == NULL)
        return NULL;
    for (unsigned i = 0; i < BILL_FIGURES_N; i++) {
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
hit_to_message(struct arena *a, const struct limit_hit *h)
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
job_message_result(struct arena *a, const struct job_result *r)
{
    Stockade__V1__Result *m = wire_make(a, &stockade__v1__result__descriptor);
    if (m == NULL)
        return NULL;
    m->outcome = (Stockade__V1__Outcome)r->outcome;
    m->exit_code = r->exit_code;
    m->signal = r->signal;
    m->reason = r->reason;
    union { // protobuf-c requires a writable pointer, although packing only reads
        const Stockade__V1__Record *from;
        Stockade__V1__Record *to;
    } record = {.from = r->record};
    m->record = record.to;
    m->bill = bill_to_message(a, &r->bill);
    m->limits_also_hit = arena_alloc(a, sizeof(void *) * LIMITS_N);
    if (m->bill == NULL || m->limits_also_hit == NULL)
        return NULL;
    for (uint32_t i = 0; i < r->hits.n; i++) {
        Stockade__V1__LimitHit *h = hit_to_message(a, &r->hits.hit[i]);
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
start_time(struct arena *a, int64_t ms)
{
    return wire_make_time(a, ms / 1000, (int32_t)(ms % 1000) * 1000000);
}

Stockade__V1__Process *
job_message_process(struct arena *a, const struct job *j)
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
    if (v.started_ms != 0 && (m->start_time = start_time(a, v.started_ms)) == NULL)
        return NULL;
    if (v.result != NULL && (m->result = job_message_result(a, v.result)) == NULL)
        return NULL;
    if (m->result != NULL)
        m->result->record = NULL; // a page contains many of them
    return m;
}
