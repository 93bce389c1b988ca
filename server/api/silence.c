// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AnomalyService, the methods that acknowledge and silence findings: server/anomaly/silences.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "finding_message.h"
#include "page.h"
#include "pending.h"
#include "server/anomaly/anomaly.h"
#include "server/anomaly/rules.h"
#include "server/anomaly/silences.h"
#include "server/anomaly/tenant_rules.h"
#include "server/base/log.h"
#include "server/base/server.h"
#include "server/telemetry/events.h"
#include "server/telemetry/telemetry.h"
#include "proto/now.h"

enum { ROW_ARENA = 64 * 1024 };

static bool
is_host(const struct call *c)
{
    return principal_has(call_principal(c), SCOPE_TENANTS_WRITE);
}

static void
unwait(void *op)
{
    silences_unwait(op);
}

// ---- answers

static Stockade__V1__Silence *
silence_message(struct arena *a, const struct silence *s)
{
    Stockade__V1__Silence *m = wire_make(a, &stockade__v1__silence__descriptor);
    if (m == NULL)
        return NULL;
    m->id = s->id;
    m->tenant = s->tenant;
    m->rule = s->rule;
    m->sandbox_id = s->sandbox_id;
    m->template_ = s->template;
    m->comm = s->comm;
    m->reason = s->reason;
    m->created_by = s->by;
    m->by_host = s->by_host;
    m->suppress_response = s->response;
    m->findings = s->matched;
    m->create_time = convert_wall(a, s->created_ms);
    m->expire_time = convert_wall(a, s->expires_ms);
    return m->create_time != NULL && m->expire_time != NULL ? m : NULL;
}

static void
on_created(void *cookie, const struct silence *of, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__CreateSilenceResponse response = STOCKADE__V1__CREATE_SILENCE_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(ROW_ARENA);
    if (e == NULL) {
        log_event(LOG_INFO, "anomaly", "silence %s of rule %s for %s, made by %s, for %lld s%s: %s",
                  of->id, of->rule, of->tenant, of->by,
                  (long long)(of->expires_ms - of->created_ms) / 1000,
                  of->response ? ", with its response" : "", of->reason);
        response.silence = a != NULL ? silence_message(a, of) : NULL;
        if (response.silence == NULL)
            convert_no_memory(p->call);
        else
            call_reply(p->call, &response.base);
    }
    pending_end(p, e);
}

// An answer without fields.
static void
on_done(void *cookie, const struct silence *of, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__DeleteSilenceResponse none;
    _Static_assert(sizeof none == sizeof(Stockade__V1__AcknowledgeFindingResponse),
                   "neither has fields");
    (void)of;
    if (e == NULL) {
        p->answer->message_init((ProtobufCMessage *)&none);
        call_reply(p->call, &none.base);
    }
    pending_end(p, e);
}

// ---- silences

// A tenant may not suppress what the host does about its sandboxes.
static int
check_rule(const struct server *s, const char *tenant, bool host,
           const Stockade__V1__CreateSilenceRequest *m, struct err *e)
{
    const bool own = tenant_rules_have(s->rules, tenant, m->rule);
    if (!own && anomaly_rule_find(m->rule) < 0 && !anomaly_has_written(s->anomaly, tenant, m->rule))
        return err_field(e, "rule", "there is no rule %s", m->rule);
    if (!m->suppress_response || host || own)
        return 0;
    (void)err_set(e, ERR_PERMISSION_DENIED,
                  "rule %s is one of the host, which responds all the same", m->rule);
    err_detail(e, "HOST_RULE", m->rule, "leave out suppress_response, or ask the host's operator");
    return -1;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__CreateSilenceRequest *m = (const Stockade__V1__CreateSilenceRequest *)req;
    const char *tenant = call_whose(c);
    const bool host = is_host(c);
    struct silence want = {
        .by_host = host, .response = m->suppress_response, .expires_ms = (int64_t)m->ttl_ms};
    struct silences_op *op = NULL;
    struct err e;
    if (check_rule(s, tenant, host, m, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    (void)snprintf(want.tenant, sizeof want.tenant, "%s", tenant != NULL ? tenant : "*");
    (void)snprintf(want.rule, sizeof want.rule, "%s", m->rule);
    (void)snprintf(want.sandbox_id, sizeof want.sandbox_id, "%s", m->sandbox_id);
    (void)snprintf(want.template, sizeof want.template, "%s", m->template_);
    (void)snprintf(want.comm, sizeof want.comm, "%s", m->comm);
    (void)snprintf(want.reason, sizeof want.reason, "%s", m->reason);
    principal_name(call_principal(c), want.by);
    struct pending *p = pending_new(s, c, NULL, unwait);
    if (p == NULL)
        return;
    int r = silence_create(s->silences, &want, &(struct silences_call){on_created, p, &op}, &e);
    pending_begun(p, r, op, &e);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListSilencesRequest *m = (const Stockade__V1__ListSilencesRequest *)req;
    Stockade__V1__ListSilencesResponse response = STOCKADE__V1__LIST_SILENCES_RESPONSE__INIT;
    const char *tenant = call_whose(c);
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    for (const struct silence *q = silences_next(s->silences, NULL); q != NULL;
         q = silences_next(s->silences, q)) {
        if (q->order <= p.last || (tenant != NULL && strcmp(q->tenant, tenant) != 0))
            continue;
        if (!page_has_room(&p) || !page_add(&p, q->order, silence_message(p.arena, q)))
            break;
    }
    response.silences = p.elements;
    response.n_silences = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__DeleteSilenceRequest *m = (const Stockade__V1__DeleteSilenceRequest *)req;
    struct silences_op *op = NULL;
    struct err e;
    struct pending *p =
        pending_new(s, c, &stockade__v1__delete_silence_response__descriptor, unwait);
    if (p == NULL)
        return;
    int r = silence_delete(s->silences, call_whose(c), is_host(c), m->silence_id,
                           &(struct silences_call){on_done, p, &op}, &e);
    pending_begun(p, r, op, &e);
}

// ---- acknowledgements

static const struct finding *
find(const struct server *s, const char *tenant, const Stockade__V1__AcknowledgeFindingRequest *m,
     const char *instance, struct err *e)
{
    const bool earlier = m->instance[0] != '\0' && strcmp(m->instance, instance) != 0;
    const struct finding *f =
        !earlier && m->sequence > 0 ? anomaly_next(s->anomaly, m->sequence - 1) : NULL;
    if (f != NULL && f->sequence == m->sequence &&
        (tenant == NULL || strcmp(f->tenant, tenant) == 0))
        return f;
    (void)err_set(e, ERR_NOT_FOUND, "there is no finding %llu%s", (unsigned long long)m->sequence,
                  earlier ? " of this run of the broker" : "");
    err_detail(e, "", "sequence", "'stockade anomalies' lists the findings that are kept");
    return NULL;
}

// Packs the finding with the acknowledgement, and begins to keep it.
static int
put(struct server *s, const struct finding *f, struct acknowledged *want,
    const struct silences_call *call, struct err *e)
{
    struct arena *auto_arena a = arena_new(ROW_ARENA);
    Stockade__V1__Finding *m = a != NULL ? finding_message(a, s, f, want->instance) : NULL;
    if (m == NULL)
        return err_sys(e, ENOMEM, "acknowledge a finding");
    m->n_acknowledgements = 0;
    if (!finding_message_acknowledge(a, m, want))
        return err_sys(e, ENOMEM, "acknowledge a finding");
    want->finding_n = stockade__v1__finding__get_packed_size(m);
    want->finding = arena_alloc(a, want->finding_n + 1);
    if (want->finding == NULL)
        return err_sys(e, ENOMEM, "acknowledge a finding");
    (void)stockade__v1__finding__pack(m, want->finding);
    memcpy(want->tenant, f->tenant, sizeof want->tenant);
    return acknowledged_put(s->silences, want, call, e);
}

static void
acknowledge(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__AcknowledgeFindingRequest *m =
        (const Stockade__V1__AcknowledgeFindingRequest *)req;
    const char *tenant = call_whose(c), *own = events_instance(telemetry_events(s->telemetry));
    struct acknowledged want = {
        .sequence = m->sequence, .by_host = is_host(c), .time_ms = now_wall_ms()};
    struct silences_op *op = NULL;
    struct err e;
    (void)snprintf(want.instance, sizeof want.instance, "%s",
                   m->instance[0] != '\0' ? m->instance : own);
    (void)snprintf(want.reason, sizeof want.reason, "%s", m->reason);
    principal_name(call_principal(c), want.by);
    const struct finding *f = m->withdraw ? NULL : find(s, tenant, m, own, &e);
    if (f == NULL && !m->withdraw) {
        call_fail(c, &e);
        return;
    }
    struct pending *p =
        pending_new(s, c, &stockade__v1__acknowledge_finding_response__descriptor, unwait);
    if (p == NULL)
        return;
    const struct silences_call call = {on_done, p, &op};
    int r = m->withdraw ? acknowledged_withdraw(s->silences, &want, tenant, &call, &e)
                        : put(s, f, &want, &call, &e);
    pending_begun(p, r, op, &e);
}

// NULL: out of memory.
static void *
unpack(struct arena *a, const struct acknowledged *of)
{
    ProtobufCMessage *m = NULL;
    struct err e;
    return convert_unpack(&stockade__v1__finding__descriptor, of->finding, of->finding_n, a, &m,
                          &e) == 0
               ? m
               : NULL;
}

static void
list_acknowledged(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListAcknowledgedRequest *m =
        (const Stockade__V1__ListAcknowledgedRequest *)req;
    Stockade__V1__ListAcknowledgedResponse response =
        STOCKADE__V1__LIST_ACKNOWLEDGED_RESPONSE__INIT;
    const char *tenant = call_whose(c);
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    for (const struct acknowledged *a = acknowledged_next(s->silences, NULL); a != NULL;
         a = acknowledged_next(s->silences, a)) {
        if (a->order <= p.last || (tenant != NULL && strcmp(a->tenant, tenant) != 0))
            continue;
        if (!page_has_room(&p) || !page_add(&p, a->order, unpack(p.arena, a)))
            break;
    }
    response.findings = p.elements;
    response.n_findings = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.AnomalyService/" name, &stockade__v1__##message##_request__descriptor,       \
            &stockade__v1__##message##_response__descriptor, handler                               \
    }

const struct call_method silence_methods[] = {
    METHOD("AcknowledgeFinding", acknowledge_finding, acknowledge),
    METHOD("ListAcknowledged", list_acknowledged, list_acknowledged),
    METHOD("CreateSilence", create_silence, create),
    METHOD("ListSilences", list_silences, list),
    METHOD("DeleteSilence", delete_silence, delete),
    {0},
};
