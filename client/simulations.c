// SPDX-License-Identifier: Apache-2.0
// Simulations (stockade_simulation.h).
#include <errno.h>
#include <string.h>

#include "requests.h"
#include "results.h"
#include "stockade/v1/simulation.pb-c.h"

static int
too_large(struct err *e)
{
    return err_sys(e, ENOMEM, "send the answers of a simulation");
}

int
request_simulate(struct Stockade__V1__SimulatedAnswer ***out, size_t *out_n, struct arena *a,
                 const struct stockade_simulate *from, struct err *e)
{
    int rc = request_list(from->answers, from->answers_n, "answers", e);
    Stockade__V1__SimulatedAnswer **all =
        rc == 0 ? arena_alloc(a, (from->answers_n + 1) * sizeof(void *)) : NULL;
    if (all == NULL)
        return rc < 0 ? rc : too_large(e);
    for (size_t i = 0; i < from->answers_n && rc == 0; i++) {
        const struct stockade_simulated_answer *one = &from->answers[i];
        rc = request_list(one->reply, one->reply_n, "answers", e);
        all[i] = rc == 0 ? arena_alloc(a, sizeof **all) : NULL;
        if (all[i] == NULL)
            return rc < 0 ? rc : too_large(e);
        stockade__v1__simulated_answer__init(all[i]);
        if (one->destination != NULL)
            all[i]->destination = one->destination;
        all[i]->reply = (ProtobufCBinaryData){one->reply_n, (uint8_t *)(uintptr_t)one->reply};
    }
    *out = all;
    *out_n = from->answers_n;
    return 0;
}

static bool
sent_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SimulatedConnection *m = (const Stockade__V1__SimulatedConnection *)from;
    (void)a;
    *(struct stockade_simulated_connection *)to = (struct stockade_simulated_connection){
        .destination = m->destination,
        .protocol = m->protocol,
        .rule = m->rule,
        .data = m->data.data,
        .data_n = m->data.len,
        .out_bytes = m->out_bytes,
        .in_bytes = m->in_bytes,
    };
    return true;
}

static bool
refused_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SimulatedRefusal *m = (const Stockade__V1__SimulatedRefusal *)from;
    (void)a;
    *(struct stockade_simulated_refusal *)to = (struct stockade_simulated_refusal){
        .operation = m->operation,
        .destination = m->destination,
        .protocol = m->protocol,
        .reason = m->reason,
        .rule = m->rule,
        .would_ask = m->would_ask,
        .count = m->count,
    };
    return true;
}

bool
simulation_from(const struct stockade_simulation **out, struct arena *a,
                const Stockade__V1__SimulationOutcome *m)
{
    *out = NULL;
    if (m == NULL)
        return true;
    struct stockade_simulation *to = arena_alloc(a, sizeof *to);
    if (to == NULL)
        return false;
    *to = (struct stockade_simulation){
        .executed = m->executed,
        .more = m->more,
        .unknown = m->unknown,
        .sent_total = m->sent_total,
        .sent_lost = m->sent_lost,
        .refused_total = m->refused_total,
        .not_included = (const char *const *)m->not_included,
        .not_included_n = m->n_not_included,
    };
    *out = to;
    return LIST_FROM(to->changes, to->changes_n, a, m->changes, m->n_changes, change_from) &&
           LIST_FROM(to->sent, to->sent_n, a, m->sent, m->n_sent, sent_from) &&
           LIST_FROM(to->refused, to->refused_n, a, m->refused, m->n_refused, refused_from);
}
