// SPDX-License-Identifier: Apache-2.0
// See simulated.h.
#include "simulated.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "proto/wire.h"
#include "server/base/server.h"
#include "server/policy/rule.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/simulation.h"
#include "server/snapshot/simulate.h"
#include "server/telemetry/record_store.h"
#include "server/telemetry/telemetry.h"
#include "stockade/v1/telemetry_service.pb-c.h"

// What a message of a stream has room for, beside the record of the job.
enum { CHANGES_BYTES = 8 * 1024, SENT_BYTES = 8 * 1024, REFUSED_BYTES = 3 * 1024, NOTES = 4 };

// ---- its begin

int
simulated_read(struct simulated *x, struct server *s, const struct simulated_fields *m,
               struct err *e)
{
    if (m->mode == STOCKADE__V1__JOB_MODE__JOB_MODE_UNSPECIFIED)
        return m->answers_n > 0 ? err_field(e, "answers", "only with JOB_MODE_SIMULATE") : 0;
    if (m->mode != STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE)
        return err_field(e, "mode", "%d is no mode", (int)m->mode);
    struct simulation *all = simulation_new();
    int r = all != NULL ? 0 : err_sys(e, ENOMEM, "simulate a job");
    for (size_t i = 0; i < m->answers_n && r == 0; i++) {
        const Stockade__V1__SimulatedAnswer *a = m->answers[i];
        r = simulation_answer(all, i, a->destination, a->reply.data, a->reply.len, e);
    }
    if (r < 0) {
        simulation_unref(all);
        return r;
    }
    x->s = s;
    x->simulation = all;
    return 0;
}

bool
simulated_is_on(const struct simulated *x)
{
    return x->simulation != NULL;
}

static void
on_ready(void *cookie, struct sandbox *inside, const struct err *e)
{
    struct simulated *x = cookie;
    x->on_ready(x->cookie, inside, e);
}

static void
look_at(struct simulated *x, const struct sandbox_spec *spec)
{
    x->volumes = spec->mounts != NULL;
    x->root_writable = spec->template->root_writable;
}

int
simulated_fork(struct simulated *x, struct sandbox *parent, struct err *e)
{
    look_at(x, &parent->spec);
    return simulate_fork(parent, &(struct simulate_want){x->simulation, on_ready, x}, &x->run, e);
}

int
simulated_fresh(struct simulated *x, const char *tenant, struct sandbox_spec *spec, struct err *e)
{
    look_at(x, spec);
    const struct simulate_want want = {x->simulation, on_ready, x};
    return simulate_fresh(x->s, tenant, spec, &want, &x->run, e);
}

void
simulated_process(struct simulated *x, const char *process_id)
{
    (void)snprintf(x->process_id, sizeof x->process_id, "%s", process_id);
}

// ---- its end

static void
on_end(void *cookie)
{
    struct simulated *x = cookie;
    x->ended = true;
    if (!x->beginning_to_end)
        x->on_end(x->cookie);
}

bool
simulated_wait(struct simulated *x)
{
    if (!x->ending) {
        x->ending = x->beginning_to_end = true;
        simulate_end(x->run, on_end);
        x->beginning_to_end = false;
    }
    return x->ended;
}

void
simulated_drop(struct simulated *x)
{
    simulate_drop(x->run);
    x->run = NULL;
    simulation_unref(x->simulation);
    x->simulation = NULL;
}

// ---- the message

static bool
fits(const ProtobufCMessage *m, size_t *left)
{
    const size_t n = protobuf_c_message_get_packed_size(m) + 4; // its tag and length
    if (n > *left)
        return false;
    *left -= n;
    return true;
}

static int
add_changes(struct arena *a, const struct simulated *x, Stockade__V1__SimulationOutcome *m)
{
    size_t n = 0, left = CHANGES_BYTES;
    const struct err *unknown = NULL;
    const uint8_t *bytes = simulate_changes(x->run, &n, &unknown);
    ProtobufCMessage *unpacked = NULL;
    struct err e;
    if (bytes == NULL) {
        m->unknown = unknown->text;
        return 0;
    }
    if (wire_unpack(&stockade__v1__snapshot_service_diff_response__descriptor, bytes, n, a,
                    &unpacked, &e) < 0)
        return -ENOMEM;
    const Stockade__V1__SnapshotServiceDiffResponse *page =
        (const Stockade__V1__SnapshotServiceDiffResponse *)unpacked;
    m->changes = page->changes;
    while (m->n_changes < page->n_changes && fits(&page->changes[m->n_changes]->base, &left))
        m->n_changes++;
    m->more = m->n_changes < page->n_changes || page->next_page_token.len > 0;
    return 0;
}

static const char *
destination_of(struct arena *a, const struct relay_report *r)
{
    char text[RELAY_NAME_MAX + 16];
    if (r->name[0] == '\0')
        net_rule_address(r->address, r->port, text, sizeof text);
    else if (r->port == NET_DNS_PORT)
        (void)snprintf(text, sizeof text, "%.*s", RELAY_NAME_MAX, r->name);
    else
        (void)snprintf(text, sizeof text, "%.*s:%u", RELAY_NAME_MAX, r->name, r->port);
    return arena_copy(a, text, strlen(text));
}

static int
add_sent(struct arena *a, const struct simulation *from, Stockade__V1__SimulationOutcome *m)
{
    size_t left = SENT_BYTES;
    m->sent_total = from->sent_total > from->sent_n ? from->sent_total : from->sent_n;
    m->sent_lost = from->lost;
    m->sent = arena_alloc(a, (from->sent_n + (size_t)1) * sizeof(void *));
    for (uint32_t i = 0; m->sent != NULL && i < from->sent_n; i++) {
        const struct relay_sent *one = from->sent[i];
        const struct relay_report *r = &one->report;
        Stockade__V1__SimulatedConnection *to =
            wire_make(a, &stockade__v1__simulated_connection__descriptor);
        if (to == NULL || (to->destination = destination_of(a, r)) == NULL)
            return -ENOMEM;
        to->protocol = r->port == NET_DNS_PORT ? "dns" : r->protocol == IPPROTO_UDP ? "udp" : "tcp";
        to->rule = r->rule == UINT32_MAX ? 0 : r->rule + 1;
        to->data = (ProtobufCBinaryData){one->n, (uint8_t *)(uintptr_t)one->first};
        to->out_bytes = r->out_bytes;
        to->in_bytes = r->in_bytes;
        if (!fits(&to->base, &left))
            break;
        m->sent[m->n_sent++] = to;
    }
    return m->sent != NULL ? 0 : -ENOMEM;
}

static int
add_denials(struct arena *a, const Stockade__V1__Record *record, Stockade__V1__SimulationOutcome *m)
{
    size_t left = REFUSED_BYTES;
    m->refused_total = record->denials_total;
    m->refused = arena_alloc(a, (record->n_denials + 1) * sizeof(void *));
    for (size_t i = 0; m->refused != NULL && i < record->n_denials; i++) {
        const Stockade__V1__Denial *d = record->denials[i];
        char rule[16] = "";
        Stockade__V1__SimulatedRefusal *to =
            wire_make(a, &stockade__v1__simulated_refusal__descriptor);
        if (d->rule != 0)
            (void)snprintf(rule, sizeof rule, "%u", d->rule);
        if (to == NULL || (to->rule = arena_copy(a, rule, strlen(rule))) == NULL)
            return -ENOMEM;
        to->operation = d->operation;
        to->destination = d->destination;
        to->protocol = d->protocol;
        to->reason = d->reason;
        to->count = d->count;
        if (!fits(&to->base, &left))
            break;
        m->refused[m->n_refused++] = to;
    }
    return m->refused != NULL ? 0 : -ENOMEM;
}

// Of the job, or of the interpreter: it has ended with its sandbox. NULL: nothing watched it.
static const Stockade__V1__Record *
record_of(struct arena *a, const struct simulated *x)
{
    size_t n = 0;
    uint32_t several = 0;
    ProtobufCMessage *m = NULL;
    struct err e;
    const uint8_t *bytes = x->process_id[0] == '\0' || x->s->telemetry == NULL
                               ? NULL
                               : record_store_find(telemetry_records(x->s->telemetry), NULL,
                                                   x->process_id, &n, &several);
    if (bytes == NULL ||
        wire_unpack(&stockade__v1__get_record_response__descriptor, bytes, n, a, &m, &e) < 0)
        return NULL;
    return ((const Stockade__V1__GetRecordResponse *)m)->record;
}

static int
add_notes(struct arena *a, const struct simulated *x, bool watched,
          Stockade__V1__SimulationOutcome *m)
{
    const char **all = arena_alloc(a, NOTES * sizeof *all);
    if (all == NULL)
        return -ENOMEM;
    if (!watched)
        all[m->n_not_included++] = "refusals: no record of the job is known";
    if (x->volumes)
        all[m->n_not_included++] = "volumes: they were mounted read-only";
    if (x->root_writable)
        all[m->n_not_included++] = "/usr and the folders of the template are not compared";
    m->not_included = all;
    return 0;
}

Stockade__V1__SimulationOutcome *
simulated_outcome(struct arena *a, const struct simulated *x)
{
    Stockade__V1__SimulationOutcome *m =
        wire_make(a, &stockade__v1__simulation_outcome__descriptor);
    const Stockade__V1__Record *record = record_of(a, x);
    if (m == NULL || add_changes(a, x, m) < 0 || add_sent(a, simulate_sent(x->run), m) < 0 ||
        (record != NULL && add_denials(a, record, m) < 0) || add_notes(a, x, record != NULL, m) < 0)
        return NULL;
    m->executed = true;
    return m;
}

Stockade__V1__SimulationOutcome *
simulated_refused(struct arena *a, const struct call *c)
{
    const struct call_refusal *why = call_refusal(c);
    Stockade__V1__SimulationOutcome *m =
        wire_make(a, &stockade__v1__simulation_outcome__descriptor);
    Stockade__V1__SimulatedRefusal *one =
        wire_make(a, &stockade__v1__simulated_refusal__descriptor);
    Stockade__V1__SimulatedRefusal **all = arena_alloc(a, sizeof(void *));
    if (m == NULL || one == NULL || all == NULL)
        return NULL;
    one->operation = "call";
    one->destination = why->method;
    one->reason = why->reason;
    one->rule = why->rule;
    one->would_ask = why->would_ask;
    one->count = 1;
    all[0] = one;
    m->refused = all;
    m->n_refused = 1;
    m->refused_total = 1;
    return m;
}
