// SPDX-License-Identifier: Apache-2.0
// See access.h.
#include "access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include <sodium.h>

#include "private.h"
#include "proto/now.h"
#include "proto/token.h"
#include "server/base/metrics.h"
#include "server/telemetry/events.h"
#include "server/telemetry/record.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { FAILURES_PER_MINUTE = 60, NS_PER_MS = 1000000, EVENT_TEXT = 256 };

void
access_settings_default(struct access_settings *s)
{
    memset(s, 0, sizeof *s); // with its padding: configurations are compared as bytes
    (void)snprintf(s->audience, sizeof s->audience, "stockade");
    s->failures_per_minute = FAILURES_PER_MINUTE;
}

int64_t
access_time_ms(const struct access_clock *start, const struct access_clock *now)
{
    const int64_t by_boot = start->wall_ms + (now->boot_ms - start->boot_ms);
    return now->wall_ms > by_boot ? now->wall_ms : by_boot;
}

static struct access_clock
clocks(void)
{
    return (struct access_clock){now_wall_ms(), now_ns(CLOCK_BOOTTIME) / NS_PER_MS};
}

int64_t
access_now_ms(const struct access *a)
{
    const struct access_clock now = clocks();
    return access_time_ms(&a->start, &now);
}

int
access_new(struct state *state, const struct access_settings *settings, struct access **out,
           struct err *e)
{
    struct access *a = calloc(1, sizeof *a);
    if (a == NULL)
        return err_sys(e, ENOMEM, "read the credentials");
    a->state = state;
    a->settings = settings;
    a->start = clocks();
    list_init(&a->keys);
    failures_init(&a->failures);
    failures_init(&a->handshakes);
    a->counts = policy_counts_new();
    a->issuers = issuers_new(&settings->issuers);
    for (uint32_t i = 0; i <= POLICY_DENY; i++)
        metrics_name_value(METRIC_BY_VERDICT, i, policy_verdict_name[i]);
    int r = a->counts != NULL && a->issuers != NULL ? keys_load(a, e)
                                                    : err_sys(e, ENOMEM, "count calls");
    if (r == 0)
        r = tokens_load(a, e);
    if (r < 0) {
        access_free(a);
        return err_wrap(e, "read the credentials");
    }
    *out = a;
    return 0;
}

void
access_free(struct access *a)
{
    if (a == NULL)
        return;
    keys_free_all(a);
    tokens_free(a);
    issuers_free(a->issuers);
    policy_counts_free(a->counts);
    sodium_memzero(a, sizeof *a);
    free(a);
}

void
access_begin(struct access *a, uv_loop_t *loop, struct spawn *spawn)
{
    issuers_begin(a->issuers, loop, spawn);
}

void
access_reloaded(struct access *a)
{
    issuers_reloaded(a->issuers);
}

bool
access_trouble(const struct access *a, char *out, size_t n)
{
    return issuers_trouble(a->issuers, out, n);
}

struct policy_counts *
access_counts(const struct access *a)
{
    return a->counts;
}

void
access_set_asker(struct access *a, const struct policy_asker *asker)
{
    a->asker = *asker;
}

const struct policy_asker *
access_asker(const struct access *a)
{
    return &a->asker;
}

static int
unknown(struct err *e)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the credential is not one of this broker");
    err_detail(e, "CREDENTIAL_UNKNOWN", "authorization",
               "'stockade key create' makes one; see also STOCKADE_TOKEN and --token-file");
    return r;
}

static int
too_many(uint64_t wait_ms, struct err *e)
{
    char hint[64];
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "too many credentials of this peer were refused");
    (void)snprintf(hint, sizeof hint, "try again in %llu ms", (unsigned long long)wait_ms);
    err_detail(e, "CREDENTIAL_FAILURES", "access.failures_per_minute", hint);
    return r;
}

// full: no work is done for a token that was not seen lately.
static int
check(struct access *a, const char *credential, bool full, struct principal *out, struct err *e)
{
    if (key_is(credential))
        return key_check(a, credential, out, e);
    if (strncmp(credential, TOKEN_PREFIX, sizeof TOKEN_PREFIX - 1) == 0)
        return token_check(a, credential, full, out, e);
    if (a->settings->issuers.n > 0 && jwt_is(credential))
        return full ? -EAGAIN : issuers_prove(a->issuers, credential, access_now_ms(a), out, e);
    return unknown(e);
}

int
access_still(struct access *a, const struct principal *who, const char *credential, struct err *e)
{
    struct principal ignored;
    if (who->proof == PROOF_KEY)
        return key_still(a, who, e);
    return who->proof == PROOF_TOKEN ? token_check(a, credential, false, &ignored, e) : 0;
}

void
access_set_events(struct access *a, struct events *events)
{
    a->events = events;
}

// The events belong to root, whose tenant has this name whatever the configuration maps.
static void
publish(const struct access *a, Stockade__V1__EventKind kind,
        Stockade__V1__CredentialRefused *detail, const char *why)
{
    Stockade__V1__Event m;
    char text[EVENT_TEXT];
    stockade__v1__event__init(&m);
    m.kind = kind;
    m.severity = detail->limited ? STOCKADE__V1__SEVERITY__SEVERITY_WARNING
                                 : STOCKADE__V1__SEVERITY__SEVERITY_NOTICE;
    m.tenant = "uid:0";
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_CREDENTIAL;
    m.credential = detail;
    detail->text = record_text(why, strlen(why), text, sizeof text);
    events_publish(a->events, &m);
}

static void
publish_credential(struct access *a, const struct principal *peer, const char *whose, bool limited,
                   const struct err *why)
{
    Stockade__V1__CredentialRefused detail = STOCKADE__V1__CREDENTIAL_REFUSED__INIT;
    if (a->events == NULL || !failures_may_publish(&a->failures, uv_hrtime(), &detail.left_out))
        return;
    detail.transport = peer->transport != NULL ? peer->transport : "";
    detail.address = whose;
    detail.reason = why->reason;
    detail.limited = limited;
    publish(a, STOCKADE__V1__EVENT_KIND__EVENT_KIND_CREDENTIAL_REFUSED, &detail, why->text);
}

void
access_handshake_refused(void *access, const char *address, const char *reason, const char *text)
{
    struct access *a = access;
    const uint64_t now = uv_hrtime();
    Stockade__V1__CredentialRefused detail = STOCKADE__V1__CREDENTIAL_REFUSED__INIT;
    uint64_t unused = 0;
    if (a->events == NULL)
        return;
    if (failures_full(&a->handshakes, address, FAILURES_HANDSHAKES, now, &unused)) {
        failures_leave_out(&a->handshakes);
        return;
    }
    failures_count(&a->handshakes, address, FAILURES_HANDSHAKES, now);
    if (!failures_may_publish(&a->handshakes, now, &detail.left_out))
        return;
    detail.transport = "tls";
    detail.address = address;
    detail.reason = reason;
    detail.limited =
        failures_full(&a->handshakes, address, FAILURES_HANDSHAKES, now, &unused); // the last one
    publish(a, STOCKADE__V1__EVENT_KIND__EVENT_KIND_HANDSHAKE_REFUSED, &detail, text);
}

int
access_check(void *access, const struct principal *peer, const char *credential,
             struct principal *out, struct err *e)
{
    struct access *a = access;
    const uint32_t most = a->settings->failures_per_minute;
    const uint64_t now = uv_hrtime();
    uint64_t wait_ms = 0;
    const char *whose = peer->address[0] != '\0' ? peer->address : peer->tenant;
    const bool full = failures_full(&a->failures, whose, most, now, &wait_ms);
    int r = check(a, credential, full, out, e);
    if (r == 0) {
        out->uid = peer->uid;
        out->gid = peer->gid;
        out->pid = peer->pid;
        return 0;
    }
    if (r == -EAGAIN && full) {
        r = too_many(wait_ms, e);
        publish_credential(a, peer, whose, full, e);
        return r;
    }
    if (e->code == ERR_UNAVAILABLE) // it may be genuine
        return r;
    failures_add(&a->failures, whose, most, now, e);
    publish_credential(a, peer, whose, full, e);
    return full ? too_many(wait_ms, e) : r;
}

int
access_may_give(const struct principal *maker, uint32_t scopes, struct err *e)
{
    const uint32_t kept = scopes_of_operators(scopes);
    if (kept == 0 || principal_has(maker, SCOPE_TENANTS_WRITE))
        return 0;
    int r = err_set(e, ERR_PERMISSION_DENIED, "%s cannot give the right %s to others",
                    maker->tenant, scopes_first(kept));
    err_detail(e, "SCOPE_MISSING", "tenants.write", "operators make credentials with this right");
    principal_explain(maker, "tenants.write", e);
    return r;
}

const char *
access_audience(const struct access *a)
{
    return a->settings->audience;
}
