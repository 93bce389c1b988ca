// SPDX-License-Identifier: Apache-2.0
// Whether a call may be made, beyond its scope: the caveats of its token, and the policies of the host.
//
//   facts --> token's caveats --> policies --> [ people ] --> rates --> [ use of the token on the disk ] --> the handler
//               | refused           | refused     | refused   | refused
//
// Nothing is counted before everything that needs no waiting has agreed. While people are asked, the credential may end, and policies may
// change: so after their answer the call is decided again, from the start, and what a rule asks that nobody was asked before is asked
// then.
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "facts.h"
#include "server/access/access.h"
#include "server/access/policy.h"
#include "server/access/tokens.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "stockade/v1/limits.pb-c.h"

enum { APPROVED_MAX = 32, QUESTION_HASH = 16 };

// The questions that people have agreed to: hashes of rule, approvers and the rest of `ask`.
struct approved {
    uint32_t n;
    uint8_t question[APPROVED_MAX][QUESTION_HASH];
};

// A call that waits.
struct waiting {
    struct server *s;
    struct call *call; // NULL: it was cancelled
    const ProtobufCMessage *request;
    void *asked;              // the question; NULL: none
    struct approved approved; // if people agree now
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct waiting *w = cookie;
    (void)why;
    w->call = NULL;
    if (w->asked == NULL)
        return; // a use is being written, and on_counted() follows
    const struct policy_asker *asker = access_asker(w->s->access);
    asker->unask(asker->cookie, w->asked);
    free(w);
}

static void
on_counted(void *cookie, const struct err *e)
{
    struct waiting *w = cookie;
    if (w->call != NULL)
        dispatch_decide(w->call, e);
    free(w);
}

// ---- limits that a policy lowers

static void
set_limit(Stockade__V1__Limits *l, int i, uint64_t v)
{
    const ProtobufCFieldDescriptor *f = &stockade__v1__limits__descriptor.fields[i];
    void *at = (char *)l + f->offset;
    if (f->type == PROTOBUF_C_TYPE_UINT64)
        *(uint64_t *)at = v;
    else
        *(uint32_t *)at = (uint32_t)v;
}

// The request is the call's own memory; nobody has seen it but the checks.
static int
fill_limits(struct call *c, const ProtobufCMessage *request, const struct policy_decision *d,
            struct err *e)
{
    const ProtobufCFieldDescriptor *f =
        protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "limits");
    if (d->fill == 0 || f == NULL)
        return 0;
    void *at = (char *)(uintptr_t)request + f->offset;
    Stockade__V1__Limits *l = *(Stockade__V1__Limits **)at;
    if (l == NULL) {
        l = call_alloc(c, sizeof *l);
        if (l == NULL)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
        stockade__v1__limits__init(l);
        *(Stockade__V1__Limits **)at = l;
    }
    for (int i = 0; i < LIMITS_N; i++)
        if ((d->fill >> i & 1) != 0)
            set_limit(l, i, d->most.v[i]);
    return 0;
}

// ---- people

static int decide(struct server *s, struct call *c, const ProtobufCMessage *request,
                  const struct approved *approved, struct err *e);

static void
hash_question(const struct policy_asked *a, uint8_t out[QUESTION_HASH])
{
    uint8_t packed[4096];
    crypto_generichash_state state;
    const size_t n = stockade__v1__policy_ask__get_packed_size(a->ask);
    (void)crypto_generichash_init(&state, NULL, 0, QUESTION_HASH);
    (void)crypto_generichash_update(&state, (const uint8_t *)a->rule, strlen(a->rule) + 1);
    if (n <= sizeof packed) // 32 approvers of 95 bytes
        (void)crypto_generichash_update(&state, packed,
                                        stockade__v1__policy_ask__pack(a->ask, packed));
    (void)crypto_generichash_final(&state, out, QUESTION_HASH);
}

static bool
is_approved(const struct approved *all, const uint8_t question[QUESTION_HASH])
{
    for (uint32_t i = 0; i < all->n; i++)
        if (memcmp(all->question[i], question, QUESTION_HASH) == 0)
            return true;
    return false;
}

// Leaves what people were not asked yet, and adds that to what they agree to if they agree now. False: the policy has changed too often.
static bool
keep_open(struct policy_decision *d, struct approved *all)
{
    const uint32_t n = d->asks_n;
    d->asks_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t question[QUESTION_HASH];
        hash_question(&d->ask[i], question);
        if (is_approved(all, question))
            continue;
        if (all->n == APPROVED_MAX)
            return false;
        memcpy(all->question[all->n++], question, QUESTION_HASH);
        d->ask[d->asks_n++] = d->ask[i];
    }
    return true;
}

static void
on_answer(void *cookie, const struct err *why)
{
    struct waiting *w = cookie;
    struct err e;
    int r = why != NULL
                ? -1
                : access_still(w->s->access, call_principal(w->call), call_credential(w->call), &e);
    if (r == 0)
        r = decide(w->s, w->call, w->request, &w->approved, &e);
    if (r <= 0)
        dispatch_decide(w->call, why != NULL ? why : r < 0 ? &e : NULL);
    free(w);
}

// 1: people were asked; 0: they have agreed to all before.
static int
ask(const struct waiting *as, const struct facts *f, struct policy_decision *d, struct err *e)
{
    struct server *s = as->s;
    struct call *c = as->call;
    const struct policy_asker *asker = access_asker(s->access);
    const struct policy_question q = {
        .decision = d, .call = c, .method = f->deed.method, .request = as->request};
    if (asker->ask == NULL) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION,
                    "the policy asks people about %s (rule %s), but approvals are not configured",
                    f->deed.method, d->rule);
        err_detail(e, "APPROVALS_NOT_CONFIGURED", NULL, "ask the host's administrator");
        err_rule(e, d->rule, "");
        return r;
    }
    struct waiting *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
    *w = *as;
    const bool fits = keep_open(d, &w->approved);
    if (!fits || d->asks_n == 0) {
        free(w);
        return fits ? 0
                    : err_set(e, ERR_RESOURCE_EXHAUSTED,
                              "the policy has asked about the call in %d ways", APPROVED_MAX);
    }
    int r = asker->ask(asker->cookie, &q, on_answer, w, &w->asked, e);
    if (r > 0)
        call_watch(c, on_cancel, NULL, w);
    else
        free(w);
    return r;
}

// ---- the decision

// 1: a use of the token is being written.
static int
use_token(struct server *s, struct call *c, const struct facts *f, struct err *e)
{
    if (call_principal(c)->proof != PROOF_TOKEN)
        return 0;
    struct waiting *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "check the token: out of memory");
    *w = (struct waiting){.s = s, .call = c};
    int r = token_decide(s->access, call_principal(c), &f->deed, on_counted, w, e);
    if (r > 0)
        call_watch(c, on_cancel, NULL, w);
    else
        free(w);
    return r;
}

// A simulated call says what the policy decides, and nothing runs, since its output might be what the policy protects.
static int
note_refusal(struct call *c, const struct facts *f, const struct policy_decision *d, struct err *e)
{
    const bool asks = d->verdict == POLICY_ASK;
    const struct call_refusal why = {.method = f->deed.method,
                                     .rule = asks ? d->ask[0].rule : d->rule,
                                     .reason = asks ? d->ask[0].reason : d->reason,
                                     .would_ask = asks};
    metrics_add(METRIC_SIMULATIONS_REFUSED, 1);
    return call_set_refusal(c, &why)
               ? 0
               : err_set(e, ERR_RESOURCE_EXHAUSTED, "decide about the call: out of memory");
}

static int
decide_facts(struct server *s, struct call *c, const ProtobufCMessage *request,
             const struct approved *approved, struct facts *f, struct err *e)
{
    static struct policy_decision d; // large, and decisions are made one at a time
    int r = call_principal(c)->proof == PROOF_TOKEN
                ? token_allows(s->access, call_principal(c), &f->deed, e)
                : 0;
    if (r < 0)
        return r;
    f->call.counts = access_counts(s->access);
    policy_decide(f->deed.harmless ? NULL : s->config->policy, &f->call, NULL, NULL, &d);
    if (policy_has_layers(s->config->policy) && !f->deed.harmless)
        metrics_add_by(METRIC_POLICY_DECISIONS, d.verdict, 0, 1);
    if (d.verdict >= POLICY_ASK && d.retry_ms == 0 && call_simulates(c))
        return note_refusal(c, f, &d, e);
    if (d.verdict == POLICY_DENY)
        return policy_refuse(&d, f->deed.method, e);
    if (d.verdict == POLICY_ASK) {
        r = ask(&(struct waiting){s, c, request, NULL, *approved}, f, &d, e);
        if (r != 0)
            return r;
    }
    r = fill_limits(c, request, &d, e);
    if (r == 0)
        r = use_token(s, c, f, e);
    if (r >= 0)
        policy_count(access_counts(s->access), &d, f->call.now_ns);
    return r;
}

// 0: it may run; 1: the decision takes time; negative: refused.
static int
decide(struct server *s, struct call *c, const ProtobufCMessage *request,
       const struct approved *approved, struct err *e)
{
    const struct facts_of of = {s, call_principal(c), call_tenant(c), call_method_path(c), request};
    struct facts f = {0};
    if (of.who->proof != PROOF_TOKEN && !policy_has_layers(s->config->policy) &&
        call_metadata(c, "policy") == NULL)
        return 0;
    int r = facts_gather(&f, &of, e);
    if (r == 0 && !f.deed.harmless)
        r = facts_read_policy(c, &f.request, e);
    f.call.request = f.request;
    if (r == 0)
        r = decide_facts(s, c, request, approved, &f, e);
    facts_clear(&f);
    return r;
}

int
authority_decide(void *server, struct call *c, const ProtobufCMessage *request, struct err *e)
{
    static const struct approved none;
    return decide(server, c, request, &none, e);
}
