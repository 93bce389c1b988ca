// SPDX-License-Identifier: Apache-2.0
// See policy_explain.h: the decision about a call that is not made. It takes the same way as api/authority.c, with the same facts, and
// counts nothing.
//
//   rights --> token's caveats --> layers of the policy: each adds a step, also after one that denies
#include "policy_explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "facts.h"
#include "proto/rules.h"
#include "proto/validate.h"
#include "server/access/access.h"
#include "server/access/policy_answer.h"
#include "server/access/tokens.h"
#include "server/base/server.h"
#include "server/config/config.h"

enum { PATH_BYTES = 128 };

struct explaining {
    struct server *s;
    struct call *c;
    const Stockade__V1__ExplainRequest *m;
    struct arena *a;
    struct principal who;
    bool is_caller; // `who` is the caller itself, with its rights
    char path[PATH_BYTES];
    const char *method; // in `path`
    const struct policy *policy;
    struct policy *request; // of the metadata; owned
    struct policy_decision *d;
    struct policy_answering answer;
    struct err refused; // by rights or token; ERR_OK: by none
};

// ---- steps

static void
on_step(void *cookie, const struct policy_step *step)
{
    struct explaining *x = cookie;
    policy_answer_step(&x->answer, step);
}

// A step before those of the policy; r < 0: it refuses.
static void
add_check(struct explaining *x, const char *kind, int r, const struct err *why)
{
    struct policy_step step = {.layer = "", .kind = kind, .rule = "", .reason = "", .file = ""};
    if (r < 0) {
        step.verdict = POLICY_DENY;
        step.reason = arena_copy(x->a, why->text, strlen(why->text));
        step.reason = step.reason != NULL ? step.reason : "";
        if (x->refused.code == ERR_OK)
            x->refused = *why;
    }
    policy_answer_step(&x->answer, &step);
}

static void
check_rights(struct explaining *x)
{
    const struct method_rules *rules = validate_method(x->path);
    struct err e = {.code = ERR_OK};
    int r = 0;
    if (!x->is_caller || rules == NULL)
        return;
    if (!principal_has(&x->who, scope_find(rules->scope))) {
        r = err_set(&e, ERR_PERMISSION_DENIED, "%s does not have the right %s", x->who.tenant,
                    rules->scope);
        err_detail(&e, "SCOPE_MISSING", rules->scope, "calls that need no right but the caller's");
    }
    add_check(x, "rights", r, &e);
}

static int
check_token(void *cookie, const struct deed *d, struct err *unused)
{
    struct explaining *x = cookie;
    struct err e = {.code = ERR_OK};
    (void)unused;
    if (x->is_caller && x->who.proof == PROOF_TOKEN)
        add_check(x, "token", token_allows(x->s->access, &x->who, d, &e), &e);
    return 0;
}

// ---- the call

static enum principal_proof
proof_of(const char *word)
{
    static const char *const words[] = {[PROOF_NONE] = "none",
                                        [PROOF_PEER] = "peer",
                                        [PROOF_KEY] = "key",
                                        [PROOF_TOKEN] = "token",
                                        [PROOF_CERTIFICATE] = "certificate",
                                        [PROOF_JWT] = "jwt"};
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], word) == 0)
            return (enum principal_proof)i;
    return PROOF_PEER;
}

// Whom the call would come from: the caller, another tenant, or the caller with another kind of credential.
static int
find_who(struct explaining *x, struct err *e)
{
    const char *whose = call_whose(x->c);
    const char *credential = x->m->credential;
    if (whose == NULL)
        return err_field(e, "tenant", "must name one tenant");
    x->who = *call_principal(x->c);
    x->is_caller = strcmp(whose, x->who.tenant) == 0 &&
                   (credential[0] == '\0' || proof_of(credential) == x->who.proof);
    if (x->is_caller)
        return 0;
    x->who = (struct principal){.proof = proof_of(credential)};
    (void)snprintf(x->who.tenant, sizeof x->who.tenant, "%s", whose);
    return 0;
}

static int
find_method(struct explaining *x, struct err *e)
{
    const Stockade__V1__ExplainRequest *m = x->m;
    const char *of_call = m->call != NULL ? m->call->method : "";
    const char *method = m->method[0] != '\0' ? m->method : of_call;
    if (method[0] == '\0' && m->call != NULL)
        method = "ProcessService/Run";
    (void)snprintf(x->path, sizeof x->path, "/stockade.v1.%s", method);
    x->method = x->path + sizeof "/stockade.v1." - 1;
    if (validate_method(x->path) != NULL)
        return 0;
    int r = err_set(e, ERR_NOT_FOUND, "%.96s: no such method", method);
    err_detail(e, "METHOD_UNKNOWN", "method", "write it as ProcessService/Run");
    return r;
}

static int
decide_words(struct explaining *x, struct err *e)
{
    Stockade__V1__PolicyCall call = *x->m->call;
    const struct policy_words by = {.tenant = x->who.tenant,
                                    .now_ms = access_now_ms(x->s->access),
                                    .step = on_step,
                                    .look = check_token,
                                    .cookie = x,
                                    .request = x->request};
    if (call.tenant[0] != '\0')
        return err_field(e, "call.tenant", "must be empty: the field tenant says as whom");
    if (x->m->request.len > 0)
        return err_field(e, "request", "must be empty if there is a call in words");
    call.method = x->method;
    if (call.credential[0] == '\0')
        call.credential = facts_credential(&x->who);
    return policy_decide_words(x->policy, &call, &by, x->d, e);
}

static int
decide_request(struct explaining *x, struct err *e)
{
    const ProtobufCMessageDescriptor *type = dispatch_input(x->s->dispatch, x->path);
    ProtobufCMessage *request = NULL;
    struct facts f = {0};
    int r = wire_unpack(type, x->m->request.data, x->m->request.len, x->a, &request, e);
    if (r == 0)
        r = validate_message(request, e);
    if (r < 0)
        return err_wrap(e, "request");
    const struct facts_of of = {x->s, &x->who, x->who.tenant, x->path, request};
    r = facts_gather(&f, &of, e);
    if (r == 0)
        (void)check_token(x, &f.deed, e);
    if (r == 0 && f.refused.code != ERR_OK && x->refused.code == ERR_OK) {
        *e =
            f.refused; // it fails if the policy allows it, and what the policy says of unknown limits is no help
        r = err_errno(e);
    }
    if (r == 0) {
        f.call.counts = access_counts(x->s->access);
        f.call.request = x->request;
        policy_decide(x->policy, &f.call, on_step, x, x->d);
    }
    facts_clear(&f);
    return r;
}

// ---- the answer

static int
put_decision(struct explaining *x, struct err *e)
{
    Stockade__V1__ExplainResponse *out = x->answer.out;
    if (x->refused.code == ERR_OK || x->answer.failed)
        return policy_answer_decision(&x->answer, x->d, e);
    out->verdict = policy_verdict_message(POLICY_DENY);
    out->reason = x->refused.text;
    out->allowed = x->refused.hint;
    return 0;
}

static int
explain(struct explaining *x, struct err *e)
{
    int r = find_who(x, e);
    if (r == 0)
        r = find_method(x, e);
    if (r < 0)
        return r;
    x->policy = facts_is_harmless(x->method) ? NULL : x->s->config->policy;
    if (!facts_is_harmless(x->method) && (r = facts_read_policy(x->c, &x->request, e)) < 0)
        return r;
    check_rights(x);
    r = x->m->call != NULL ? decide_words(x, e) : decide_request(x, e);
    return r == 0 ? put_decision(x, e) : r;
}

void
policy_explain(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    static struct policy_decision d; // large, and decisions are made one at a time
    Stockade__V1__ExplainResponse response = STOCKADE__V1__EXPLAIN_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct explaining x = {.s = s,
                           .c = c,
                           .m = (const Stockade__V1__ExplainRequest *)req,
                           .a = a,
                           .d = &d,
                           .answer = {.a = a, .out = &response},
                           .refused = {.code = ERR_OK}};
    struct policy_view v;
    struct err e;
    if (a == NULL) {
        convert_no_memory(c);
        return;
    }
    policy_view(s->config->policy, &v);
    response.digest = (ProtobufCBinaryData){sizeof v.digest, v.digest};
    if (explain(&x, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, &response.base);
    policy_free(x.request);
}
