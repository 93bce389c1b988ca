// SPDX-License-Identifier: Apache-2.0
// See status.h. Each detail is a row: its condition, and the function that makes it. Each is packed into an Any.
#include "status.h"

#include <string.h>

enum { RETRY_DELAY_MS = 1000, DETAILS_MAX = 4, FACTS_MAX = 8 };

struct conversion {
    struct err e;
    const char *tenant;
    const struct status_fact *facts;
    size_t facts_n;
    struct arena *arena;
    Stockade__V1__Status *status;
};

// Packs one detail into the status.
static void
add_detail(struct conversion *t, const char *type_url, const ProtobufCMessage *m)
{
    Google__Protobuf__Any *any = arena_alloc(t->arena, sizeof *any);
    uint8_t *bytes = arena_alloc(t->arena, protobuf_c_message_get_packed_size(m));
    if (any == NULL || bytes == NULL || t->status->details == NULL)
        return;
    google__protobuf__any__init(any);
    any->type_url = arena_copy(t->arena, type_url, strlen(type_url));
    any->value = (ProtobufCBinaryData){protobuf_c_message_pack(m, bytes), bytes};
    if (any->type_url != NULL)
        t->status->details[t->status->n_details++] = any;
}

static void
add_info(struct conversion *t)
{
    Stockade__V1__ErrorInfo info = STOCKADE__V1__ERROR_INFO__INIT;
    Stockade__V1__ErrorInfo__MetadataEntry entries[FACTS_MAX];
    Stockade__V1__ErrorInfo__MetadataEntry *pointers[FACTS_MAX];
    const struct status_fact own[] = {{"subject", t->e.subject},
                                      {"hint", t->e.hint},
                                      {"rule", t->e.rule},
                                      {"allowed", t->e.allowed}};
    enum { OWN = sizeof own / sizeof own[0] };
    size_t n = 0;
    for (size_t i = 0; i < t->facts_n + OWN && n < FACTS_MAX; i++) {
        const struct status_fact *fact = i < OWN ? &own[i] : &t->facts[i - OWN];
        if (fact->value[0] == '\0')
            continue;
        stockade__v1__error_info__metadata_entry__init(&entries[n]);
        entries[n].key = fact->key;
        entries[n].value = fact->value;
        pointers[n] = &entries[n];
        n++;
    }
    if (n == 0 && t->e.reason[0] == '\0')
        return;
    info.reason = t->e.reason;
    info.domain = "stockade";
    info.n_metadata = n;
    info.metadata = pointers;
    add_detail(t, "type.googleapis.com/stockade.v1.ErrorInfo", &info.base);
}

static void
add_field(struct conversion *t)
{
    Stockade__V1__BadRequest bad = STOCKADE__V1__BAD_REQUEST__INIT;
    Stockade__V1__BadRequest__FieldViolation violation =
        STOCKADE__V1__BAD_REQUEST__FIELD_VIOLATION__INIT;
    Stockade__V1__BadRequest__FieldViolation *violations[] = {&violation};
    if (strcmp(t->e.reason, "FIELD_INVALID") != 0 && strcmp(t->e.reason, "ABOVE_MAXIMUM") != 0 &&
        (strcmp(t->e.reason, "POLICY_DENIED") != 0 || t->e.subject[0] == '\0'))
        return;
    violation.field = t->e.subject;
    violation.description = t->e.text;
    bad.n_field_violations = 1;
    bad.field_violations = violations;
    add_detail(t, "type.googleapis.com/stockade.v1.BadRequest", &bad.base);
}

static void
add_quota(struct conversion *t)
{
    Stockade__V1__QuotaFailure quota = STOCKADE__V1__QUOTA_FAILURE__INIT;
    Stockade__V1__QuotaFailure__Violation violation = STOCKADE__V1__QUOTA_FAILURE__VIOLATION__INIT;
    Stockade__V1__QuotaFailure__Violation *violations[] = {&violation};
    if (t->e.code != ERR_RESOURCE_EXHAUSTED)
        return;
    violation.subject = t->tenant;
    violation.description = t->e.text;
    quota.n_violations = 1;
    quota.violations = violations;
    add_detail(t, "type.googleapis.com/stockade.v1.QuotaFailure", &quota.base);
}

static void
add_retry(struct conversion *t)
{
    Stockade__V1__RetryInfo retry = STOCKADE__V1__RETRY_INFO__INIT;
    if (t->e.code != ERR_UNAVAILABLE && t->e.retry_ms == 0)
        return;
    retry.retry_delay_ms = t->e.retry_ms != 0 ? t->e.retry_ms : RETRY_DELAY_MS;
    add_detail(t, "type.googleapis.com/stockade.v1.RetryInfo", &retry.base);
}

static void (*const details[])(struct conversion *t) = {add_info, add_field, add_quota, add_retry};
_Static_assert(sizeof details / sizeof details[0] <= DETAILS_MAX, "Status.details has a bound");

Stockade__V1__Status *
status_of(const struct err *e, const char *tenant, const struct status_fact *facts, size_t facts_n,
          struct arena *a)
{
    Stockade__V1__Status *status = arena_alloc(a, sizeof *status);
    if (status == NULL)
        return NULL;
    stockade__v1__status__init(status);
    struct conversion t = {.e = *e,
                           .tenant = tenant,
                           .facts = facts,
                           .facts_n = facts_n,
                           .arena = a,
                           .status = status};
    err_sanitize(&t.e);
    status->code = (uint32_t)t.e.code;
    status->details = arena_alloc(a, DETAILS_MAX * sizeof(Google__Protobuf__Any *));
    const char *text = arena_copy(a, t.e.text, strlen(t.e.text));
    if (text != NULL)
        status->message = text;
    for (size_t i = 0; i < sizeof details / sizeof details[0]; i++)
        details[i](&t);
    return status;
}
