// SPDX-License-Identifier: Apache-2.0
// See audited.h.
#include "audited.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "proto/container_of.h"
#include "proto/utf8.h"
#include "server/base/metrics.h"

enum { OBJECTS = 12, VALUE = 256, FIELDS_MAX = 64, CREDENTIAL_HEX = 33 };

#define PHASE(name) STOCKADE__V1__AUDIT_PHASE__AUDIT_PHASE_##name

// Names of fields that say what a call is about. None of them holds a secret.
static const char *const names[] = {
    "sandbox_id", "process_id", "context_id",  "snapshot_id", "transaction_id", "batch_id",
    "volume_id",  "block_id",   "transfer_id", "id",          "name",           "path",
    "from",       "to",         "template",    "snapshot",    "volume",         "tenant",
};

static bool
names_object(const ProtobufCFieldDescriptor *f)
{
    if ((f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_BYTES) ||
        f->label == PROTOBUF_C_LABEL_REPEATED)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(f->name, names[i]) == 0)
            return true;
    return false;
}

uint64_t
audited_fields(const ProtobufCMessageDescriptor *request)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < request->n_fields && i < FIELDS_MAX; i++)
        bits |= names_object(&request->fields[i]) ? UINT64_C(1) << i : 0;
    return bits;
}

bool
audited_changes(const struct method_rules *rules)
{
    static const char reads[] = ".read";
    const size_t n = strlen(rules->scope), reads_n = sizeof reads - 1;
    return n < reads_n || strcmp(rules->scope + n - reads_n, reads) != 0;
}

// The text or bytes of a field; of length 0 if it is not set.
struct value {
    const char *text;
    size_t n;
};

static struct value
value_of(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *at = (const char *)m;
    const void *field = at + f->offset;
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        *(const uint32_t *)(const void *)(at + f->quantifier_offset) != f->id)
        return (struct value){"", 0};
    if (f->type == PROTOBUF_C_TYPE_BYTES) {
        const ProtobufCBinaryData *bytes = field;
        return (struct value){(const char *)bytes->data, bytes->len};
    }
    const char *text = *(const char *const *)field;
    return text != NULL ? (struct value){text, strlen(text)} : (struct value){"", 0};
}

// ---- the record

struct objects {
    size_t n;
    Stockade__V1__AuditObject object[OBJECTS], *all[OBJECTS];
    char value[OBJECTS][VALUE + 1];
};

// It is data of the caller: names of files may be any bytes, and what is no UTF-8 becomes U+FFFD.
static void
add_object(struct objects *o, const char *name, struct value v)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    size_t to = 0;
    if (v.n == 0 || o->n == OBJECTS)
        return;
    for (size_t at = 0; at < v.n;) {
        uint32_t code = 0;
        const size_t one = v.text[at] != '\0' ? utf8_decode(v.text + at, v.n - at, &code) : 0;
        const size_t n = one > 0 ? one : sizeof replacement - 1;
        if (to + n > VALUE)
            break;
        memcpy(o->value[o->n] + to, one > 0 ? v.text + at : replacement, n);
        to += n;
        at += one > 0 ? one : 1;
    }
    Stockade__V1__AuditObject *m = &o->object[o->n];
    stockade__v1__audit_object__init(m);
    o->value[o->n][to] = '\0';
    m->name = name;
    m->value = o->value[o->n];
    o->all[o->n++] = m;
}

static void
add_request(struct objects *o, const struct call *c)
{
    if (c->request == NULL)
        return;
    const ProtobufCMessageDescriptor *d = c->request->descriptor;
    for (uint64_t bits = c->method->objects; bits != 0; bits &= bits - 1) {
        const ProtobufCFieldDescriptor *f = &d->fields[__builtin_ctzll(bits)];
        add_object(o, f->name, value_of(c->request, f));
    }
}

static const char *
proof_name(enum principal_proof proof)
{
    static const char *const all[] = {"none", "peer", "key", "token", "certificate", "jwt"};
    return all[proof];
}

static void
put(struct call *c, Stockade__V1__AuditPhase phase)
{
    static const uint8_t none[sizeof c->principal.credential] = {0};
    char credential[CREDENTIAL_HEX] = "", method[129];
    uint8_t digest[AUDIT_HASH];
    struct objects o = {.n = 0};
    const struct principal *p = &c->principal;
    Stockade__V1__AuditRecord record = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditCall m = STOCKADE__V1__AUDIT_CALL__INIT;
    const bool ends = phase == PHASE(ENDED);
    if (!ends || c->audit_call == 0)
        add_request(&o, c);
    if (c->audit_call == 0)
        c->audit_call = audit_number(c->rpc->audit);
    for (size_t i = 0; ends && i < CALL_MADE; i++)
        add_object(&o, c->made[i].name, (struct value){c->made[i].value, strlen(c->made[i].value)});
    if (memcmp(p->credential, none, sizeof none) != 0)
        (void)sodium_bin2hex(credential, sizeof credential, p->credential, sizeof p->credential);
    (void)snprintf(method, sizeof method, "%.128s",
                   c->method != NULL ? c->method->rules->path : "");
    m.call = c->audit_call;
    m.phase = phase;
    m.method = method;
    m.tenant = p->tenant;
    m.proof = proof_name(p->proof);
    m.credential = credential;
    m.address = p->address;
    m.uid = p->uid;
    m.pid = p->pid;
    if (c->whose != p->tenant && c->request != NULL)
        m.whose = c->whose != NULL ? c->whose : "*";
    m.objects = o.all;
    m.n_objects = o.n;
    if (phase != PHASE(ENDED) || !c->audit_began) {
        audit_hash(c->frame->payload.data, c->frame->payload.len, digest);
        m.request = (ProtobufCBinaryData){sizeof digest, digest};
    }
    m.code = (uint32_t)c->code;
    m.reason = c->reason;
    m.rule = c->subject;
    m.simulated = call_simulates(c);
    m.duration_us = ends ? (uv_hrtime() - c->arrived_ns) / 1000 : 0;
    record.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CALL;
    record.call = &m;
    audit_write(c->rpc->audit, &record, false);
}

// ---- the life of a call

static void
on_stored(struct audit_wait *w, const struct err *e)
{
    struct call *c = container_of(w, struct call, audit_wait);
    if (e == NULL) {
        c->audit_run(c);
        return;
    }
    metrics_add(METRIC_AUDIT_REFUSED, 1);
    call_fail(c, e);
}

// Input and signals of a job that runs already: they are recorded like any other call, and a full disk does not refuse them.
static bool
serves_running_job(const struct method_rules *rules)
{
    static const char *const all[] = {"Input", "CloseInput", "Signal", "Resize"};
    static const char service[] = "/stockade.v1.ProcessService/";
    bool found = false;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        found = found || (strncmp(rules->path, service, sizeof service - 1) == 0 &&
                          strcmp(rules->path + sizeof service - 1, all[i]) == 0);
    return found;
}

int
audited_begin(struct call *c, void (*run)(struct call *c), struct err *e)
{
    struct audit *a = c->rpc->audit;
    const bool changes = audited_changes(c->method->rules);
    if (a == NULL)
        return 0;
    const bool must = changes && !serves_running_job(c->method->rules);
    int r = must ? audit_admit(a, e) : 0;
    if (r < 0) {
        metrics_add(METRIC_AUDIT_REFUSED, 1);
        return r;
    }
    c->audit_admitted = true;
    if (!changes && !c->stream)
        return 0;
    put(c, PHASE(BEGAN));
    c->audit_began = true;
    c->audit_run = run;
    c->audit_wait.done = on_stored;
    return must && audit_wait(a, &c->audit_wait) ? 1 : 0;
}

void
audited_failure(struct call *c, const struct err *e)
{
    (void)snprintf(c->reason, sizeof c->reason, "%s", e->reason);
    (void)snprintf(c->subject, sizeof c->subject, "%s", e->subject);
}

// Ids in the response, also one level below, such as that of the sandbox or the key that was made.
static void
note_made(struct call *c, const ProtobufCMessage *m, bool deeper)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const bool is_id =
            f->type == PROTOBUF_C_TYPE_STRING && names_object(f) && strstr(f->name, "id") != NULL;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED &&
            (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0 && deeper) {
            const void *at = (const char *)m + f->offset;
            const ProtobufCMessage *below = *(const ProtobufCMessage *const *)at;
            if (below != NULL)
                note_made(c, below, false);
        }
        const char *text = is_id ? value_of(m, f).text : "";
        for (size_t k = 0; text[0] != '\0' && k < CALL_MADE; k++) {
            if (c->made[k].name != NULL)
                continue;
            c->made[k].name = f->name;
            (void)snprintf(c->made[k].value, sizeof c->made[k].value, "%s", text);
            break;
        }
    }
}

void
audited_response(struct call *c, const ProtobufCMessage *m)
{
    if (c->rpc->audit != NULL && c->audit_began)
        note_made(c, m, true);
}

void
audited_end(struct call *c)
{
    if (c->audit_wait.waits)
        audit_unwait(&c->audit_wait);
    const bool about_broker = c->audit_admitted && !c->audit_began && c->code == ERR_OK &&
                              c->method->scope == SCOPE_SYSTEM_READ;
    if (c->rpc->audit != NULL && !about_broker)
        put(c, c->audit_admitted ? PHASE(ENDED) : PHASE(REFUSED));
}
