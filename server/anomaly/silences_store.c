// SPDX-License-Identifier: Apache-2.0
// See silences.h: their rows. A silence is a packed stockade.v1.Silence; an acknowledgement a packed stockade.v1.Finding that has it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "server/base/log.h"
#include "server/state/state.h"
#include "silences_private.h"
#include "stockade/v1/anomaly_service.pb-c.h"

enum { MESSAGE_ARENA = 64 * 1024 };

// ---- writing

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    (void)rows;
    silences_finish(cookie, e);
}

static int
write_silence(struct silences_op *op, struct err *e)
{
    const struct silence *s = op->silence;
    Stockade__V1__Silence m = STOCKADE__V1__SILENCE__INIT;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    if (a == NULL)
        return err_sys(e, ENOMEM, "keep a silence");
    m.id = s->id;
    m.tenant = s->tenant;
    m.rule = s->rule;
    m.sandbox_id = s->sandbox_id;
    m.template_ = s->template;
    m.comm = s->comm;
    m.reason = s->reason;
    m.created_by = s->by;
    m.by_host = s->by_host;
    m.suppress_response = s->response;
    m.create_time =
        wire_make_time(a, s->created_ms / 1000, (int32_t)(s->created_ms % 1000) * 1000000);
    m.expire_time =
        wire_make_time(a, s->expires_ms / 1000, (int32_t)(s->expires_ms % 1000) * 1000000);
    const size_t n = stockade__v1__silence__get_packed_size(&m);
    uint8_t *bytes = arena_alloc(a, n + 1);
    if (m.create_time == NULL || m.expire_time == NULL || bytes == NULL)
        return err_sys(e, ENOMEM, "keep a silence");
    (void)stockade__v1__silence__pack(&m, bytes);
    const struct state_value value[] = {STATE_OF_TEXT(s->id), STATE_OF_NUMBER(s->created_ms),
                                        STATE_OF_BYTES(bytes, n),
                                        STATE_OF_TEXT(state_sealing_tenant(s->tenant))};
    return state_write(op->all->state, STATE_SILENCE_PUT, value, on_written, op, e);
}

int
silences_write(struct silences_op *op, struct err *e)
{
    const struct acknowledged *a = op->acknowledged;
    struct state *state = op->all->state;
    if (op->silence != NULL)
        return write_silence(op, e);
    if (a == NULL)
        return state_write(state, STATE_SILENCE_FORGET,
                           (const struct state_value[]){STATE_OF_TEXT(op->removed)}, on_written, op,
                           e);
    const struct state_value value[] = {
        STATE_OF_TEXT(a->instance),  STATE_OF_NUMBER(a->sequence),
        STATE_OF_NUMBER(a->by_host), STATE_OF_NUMBER(a->time_ms),
        STATE_OF_TEXT(a->tenant),    STATE_OF_BYTES(a->finding, a->finding_n)};
    return state_write(
        state, op->what == ACKNOWLEDGING_ENDS ? STATE_ACKNOWLEDGED_FORGET : STATE_ACKNOWLEDGED_PUT,
        value, on_written, op, e);
}

// If it fails, the row is removed at the next start.
void
silences_forget(struct silences *all, const char *id)
{
    struct err e;
    if (state_write(all->state, STATE_SILENCE_FORGET,
                    (const struct state_value[]){STATE_OF_TEXT(id)}, NULL, NULL, &e) < 0)
        log_err(LOG_WARNING, "anomaly", &e);
}

void
acknowledged_forget(struct silences *all, const struct acknowledged *a)
{
    struct err e;
    const struct state_value value[] = {STATE_OF_TEXT(a->instance), STATE_OF_NUMBER(a->sequence),
                                        STATE_OF_NUMBER(a->by_host)};
    if (state_write(all->state, STATE_ACKNOWLEDGED_FORGET, value, NULL, NULL, &e) < 0)
        log_err(LOG_WARNING, "anomaly", &e);
}

// ---- the start

static int64_t
time_of(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static struct silence *
silence_from(const Stockade__V1__Silence *m)
{
    struct silence *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    (void)snprintf(s->id, sizeof s->id, "%s", m->id);
    (void)snprintf(s->tenant, sizeof s->tenant, "%s", m->tenant);
    (void)snprintf(s->rule, sizeof s->rule, "%s", m->rule);
    (void)snprintf(s->sandbox_id, sizeof s->sandbox_id, "%s", m->sandbox_id);
    (void)snprintf(s->template, sizeof s->template, "%s", m->template_);
    (void)snprintf(s->comm, sizeof s->comm, "%s", m->comm);
    (void)snprintf(s->reason, sizeof s->reason, "%s", m->reason);
    (void)snprintf(s->by, sizeof s->by, "%s", m->created_by);
    s->by_host = m->by_host;
    s->response = m->suppress_response;
    s->created_ms = time_of(m->create_time);
    s->expires_ms = time_of(m->expire_time);
    int64_t left = s->expires_ms - now_wall_ms();
    const int64_t most = s->expires_ms - s->created_ms; // the clock was set back
    left = left > most ? most : left;
    s->until_ns = left <= 0 ? 0 : (uint64_t)now_ns(CLOCK_BOOTTIME) + (uint64_t)left * 1000000;
    return s;
}

static int
on_silence(void *cookie, const struct state_value *v, struct err *e)
{
    struct silences *all = cookie;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    ProtobufCMessage *m = NULL;
    if (v[0].kind == STATE_FORGOTTEN)
        return 0;
    if (a == NULL)
        return err_sys(e, ENOMEM, "read the silences");
    int r = wire_unpack(&stockade__v1__silence__descriptor, v[0].bytes, v[0].n, a, &m, e);
    if (r < 0 || m == NULL)
        return err_wrap(e, "read the silences");
    struct silence *s =
        all->silences_n < SILENCES_MAX ? silence_from((const Stockade__V1__Silence *)m) : NULL;
    if (s == NULL)
        return err_sys(e, ENOMEM, "read the silences");
    all->silences_n++;
    silences_add(all, s);
    return 0;
}

static struct acknowledged *
acknowledged_from(const Stockade__V1__Finding *m, const struct state_value *v)
{
    const Stockade__V1__Acknowledgement *of = m->acknowledgements[0];
    struct acknowledged *a = calloc(1, sizeof *a);
    uint8_t *bytes = malloc(v[1].n + 1);
    if (a == NULL || bytes == NULL) {
        free(a);
        free(bytes);
        return NULL;
    }
    if (v[1].n > 0)
        memcpy(bytes, v[1].bytes, v[1].n);
    a->finding = bytes;
    a->finding_n = v[1].n;
    a->sequence = m->sequence;
    a->by_host = of->by_host;
    a->time_ms = time_of(of->time);
    (void)snprintf(a->instance, sizeof a->instance, "%s", m->instance);
    (void)snprintf(a->tenant, sizeof a->tenant, "%.*s", (int)v[0].n, (const char *)v[0].bytes);
    (void)snprintf(a->by, sizeof a->by, "%s", of->by);
    (void)snprintf(a->reason, sizeof a->reason, "%s", of->reason);
    return a;
}

static int
on_acknowledged(void *cookie, const struct state_value *v, struct err *e)
{
    struct silences *all = cookie;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    ProtobufCMessage *m = NULL;
    if (v[1].kind == STATE_FORGOTTEN)
        return 0;
    if (a == NULL)
        return err_sys(e, ENOMEM, "read the acknowledged findings");
    int r = wire_unpack(&stockade__v1__finding__descriptor, v[1].bytes, v[1].n, a, &m, e);
    if (r < 0 || m == NULL)
        return err_wrap(e, "read the acknowledged findings");
    const Stockade__V1__Finding *f = (const Stockade__V1__Finding *)m;
    if (f->n_acknowledgements != 1)
        return err_set(e, ERR_DATA_LOSS, "an acknowledged finding has %zu acknowledgements",
                       f->n_acknowledgements);
    struct acknowledged *one = acknowledged_from(f, v);
    if (one == NULL)
        return err_sys(e, ENOMEM, "read the acknowledged findings");
    acknowledged_add(all, one);
    return 0;
}

int
silences_new(struct state *state, struct silences **out, struct err *e)
{
    struct silences *all = calloc(1, sizeof *all);
    if (all == NULL)
        return err_sys(e, ENOMEM, "read the silences");
    all->state = state;
    list_init(&all->silences);
    list_init(&all->acknowledged);
    list_init(&all->writing);
    int r = state_read(state, STATE_SILENCES, on_silence, all, e);
    if (r == 0)
        r = state_read(state, STATE_ACKNOWLEDGED, on_acknowledged, all, e);
    if (r < 0) {
        silences_free(all);
        return r;
    }
    *out = all;
    return 0;
}

void
silences_free(struct silences *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->silences) silences_remove(all, list_entry(it, struct silence, node));
    list_each(it, &all->acknowledged)
    {
        acknowledged_remove(all, list_entry(it, struct acknowledged, node));
    }
    free(all);
}
