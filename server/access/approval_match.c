// SPDX-License-Identifier: Apache-2.0
// What an approval covers: questions about plain data. See approval.h.
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "approval_private.h"
#include "caveats.h"

void
approval_digest(const char *method, const uint8_t *packed, size_t n, uint8_t out[APPROVAL_DIGEST])
{
    crypto_generichash_state h;
    (void)crypto_generichash_init(&h, NULL, 0, APPROVAL_DIGEST);
    (void)crypto_generichash_update(&h, (const uint8_t *)method, strlen(method) + 1);
    (void)crypto_generichash_update(&h, packed, n);
    (void)crypto_generichash_final(&h, out, APPROVAL_DIGEST);
}

bool
approver_is(const char *approver, const char *name)
{
    const size_t n = strlen(approver);
    return strncmp(approver, name, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

static bool
is_approver(size_t n, const char *const *approvers, const char *name)
{
    bool found = n == 0;
    for (size_t i = 0; i < n && !found; i++)
        found = approver_is(approvers[i], name);
    return found;
}

// The rule may have changed since the approvers were asked: only those count that it names now.
static bool
is_agreed(const Stockade__V1__Approval *m, const struct approval_ask *ask)
{
    uint32_t agreed = 0;
    for (size_t i = 0; i < m->n_votes; i++)
        agreed += m->votes[i]->agreed &&
                  is_approver(ask->approvers_n, ask->approvers, m->votes[i]->approver);
    return agreed >= (ask->needed != 0 ? ask->needed : 1);
}

static bool
is_same_call(const struct approval *a, const struct approval_call *call)
{
    return sodium_memcmp(a->digest, call->digest, APPROVAL_DIGEST) == 0;
}

static bool
matches_pattern(const struct approval *a, const Stockade__V1__Approval *m,
                const struct approval_call *call)
{
    return a->has_command && call->has_command &&
           sodium_memcmp(a->around, call->around, APPROVAL_DIGEST) == 0 &&
           caveats_match(m->grant->pattern, call->subject);
}

// Who may approve it, as what would be allowed.
static int
refuse(const Stockade__V1__Approval *m, const char *reason, const char *hint, struct err *e)
{
    char allowed[sizeof e->allowed];
    int n = snprintf(allowed, sizeof allowed,
                     "this call, when %u of these have approved it:", m->needed);
    for (size_t i = 0; i < m->n_approvers && n < (int)sizeof allowed; i++)
        n += snprintf(allowed + n, sizeof allowed - (size_t)n, "%s %s", i > 0 ? "," : "",
                      m->approvers[i]);
    if (m->n_approvers == 0)
        (void)snprintf(allowed, sizeof allowed,
                       "this call, when %u with the right approval.answer have approved it",
                       m->needed);
    err_detail(e, reason, m->id, hint);
    err_rule(e, m->rule, allowed);
    return err_errno(e);
}

int
approval_refuse(const struct approval *a, const Stockade__V1__Approval *m, struct err *e)
{
    const char *denier = "", *comment = "";
    switch (a->state) {
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING:
        (void)err_set(e, ERR_FAILED_PRECONDITION, "approval %s is pending: %.200s %.120s", a->id.id,
                      m->method, m->subject);
        return refuse(m, "APPROVAL_PENDING", "repeat the call when it was approved", e);
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_EXPIRED:
        (void)err_set(e, ERR_PERMISSION_DENIED, "nobody has answered approval %s in time",
                      a->id.id);
        return refuse(m, "APPROVAL_EXPIRED", "repeat the call without its id to ask again", e);
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED:
        (void)err_set(e, ERR_PERMISSION_DENIED, "approval %s was withdrawn", a->id.id);
        return refuse(m, "APPROVAL_CANCELLED", "repeat the call without its id to ask again", e);
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED:
        (void)err_set(e, ERR_PERMISSION_DENIED, "approval %s is not valid any more", a->id.id);
        return refuse(m, "APPROVAL_EXPIRED", "repeat the call without its id to ask again", e);
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_UNSPECIFIED:
    case STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_DENIED:
    case _STOCKADE__V1__APPROVAL_STATE_IS_INT_SIZE:
    default:
        break;
    }
    for (size_t i = 0; i < m->n_votes; i++)
        if (!m->votes[i]->agreed) {
            denier = m->votes[i]->approver;
            comment = m->votes[i]->comment;
        }
    (void)err_set(e, ERR_PERMISSION_DENIED, "approval %s was denied by %s%s%s", a->id.id, denier,
                  comment[0] != '\0' ? ": " : "", comment);
    return refuse(m, "APPROVAL_DENIED", "the same call can ask again 10 minutes after that", e);
}

int
approval_permits(const struct approval *a, const Stockade__V1__Approval *m,
                 const struct approval_ask *ask, int64_t now_ms, struct err *e)
{
    char name[PRINCIPAL_NAME];
    principal_name(ask->who, name);
    const bool approved = a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED;
    const bool by_pattern =
        approved && m->grant->reach == STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_PATTERN;
    const bool covers = by_pattern ? matches_pattern(a, m, ask->call) : is_same_call(a, ask->call);
    if (strcmp(a->requester, name) != 0 || !covers || (approved && !is_agreed(m, ask))) {
        (void)err_set(e, ERR_PERMISSION_DENIED,
                      "approval %s is not for this call: its caller, its request or the approvers "
                      "that it needs are others",
                      a->id.id);
        return refuse(m, "APPROVAL_MISMATCH", "repeat the call without its id to ask for it", e);
    }
    if (!approved)
        return approval_refuse(a, m, e);
    if (m->grant->reach <= STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_ONCE && m->uses > 0) {
        (void)err_set(e, ERR_PERMISSION_DENIED, "approval %s was used already", a->id.id);
        return refuse(m, "APPROVAL_USED", "repeat the call without its id to ask again", e);
    }
    return a->valid_until_ms > now_ms ? 0 : approval_refuse(a, m, e);
}

bool
approval_is_for(const struct approval *a, const Stockade__V1__Approval *m,
                const struct approval_ask *ask)
{
    char name[PRINCIPAL_NAME];
    principal_name(ask->who, name);
    bool same = strcmp(a->requester, name) == 0 && is_same_call(a, ask->call) &&
                m->n_approvers == ask->approvers_n &&
                m->needed == (ask->needed != 0 ? ask->needed : 1);
    for (size_t i = 0; same && i < ask->approvers_n; i++)
        same = strcmp(m->approvers[i], ask->approvers[i]) == 0;
    return same;
}
