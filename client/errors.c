// SPDX-License-Identifier: Apache-2.0
// See errors.h. Details are those of wire.proto, packed as google.protobuf.Any; unknown types are skipped.
#include "errors.h"

#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/utf8.h"
#include "proto/wire.h"
#include "stockade/v1/wire.pb-c.h"

enum { DETAIL_ARENA_BYTES = 64 * 1024, DETAILS_MAX = 8 };

// Copies text, truncated if necessary, with control characters replaced (a terminal will display it).
static void
put(char *to, size_t n, const char *from)
{
    size_t i = 0;
    for (; from[i] != '\0' && i + 1 < n; i++) {
        unsigned char c = (unsigned char)from[i];
        to[i] = from[i];
        if (c < 0x20 || c == 0x7f)
            to[i] = '?';
    }
    to[utf8_cut(from, i)] = '\0';
}

int
error_errno(int code)
{
    struct err e = {.code = code};
    return err_errno(&e);
}

int
error_from_err(struct stockade_error *to, const struct err *from)
{
    if (to != NULL) {
        *to = (struct stockade_error){.code = from->code, .sys = from->sys};
        put(to->reason, sizeof to->reason, from->reason);
        put(to->subject, sizeof to->subject, from->subject);
        put(to->hint, sizeof to->hint, from->hint);
        put(to->text, sizeof to->text, from->text);
        put(to->rule, sizeof to->rule, from->rule);
        put(to->allowed, sizeof to->allowed, from->allowed);
    }
    return err_errno(from);
}

static void
error_info(struct stockade_error *to, const ProtobufCMessage *m)
{
    const Stockade__V1__ErrorInfo *info = (const Stockade__V1__ErrorInfo *)m;
    const struct {
        const char *key;
        char *to;
        size_t n;
    } facts[] = {{"hint", to->hint, sizeof to->hint},
                 {"subject", to->subject, sizeof to->subject},
                 {"rule", to->rule, sizeof to->rule},
                 {"allowed", to->allowed, sizeof to->allowed}};
    put(to->reason, sizeof to->reason, info->reason);
    for (size_t i = 0; i < info->n_metadata; i++)
        for (size_t k = 0; k < sizeof facts / sizeof facts[0]; k++)
            if (strcmp(info->metadata[i]->key, facts[k].key) == 0)
                put(facts[k].to, facts[k].n, info->metadata[i]->value);
}

static void
bad_request(struct stockade_error *to, const ProtobufCMessage *m)
{
    const Stockade__V1__BadRequest *bad = (const Stockade__V1__BadRequest *)m;
    if (bad->n_field_violations > 0)
        put(to->subject, sizeof to->subject, bad->field_violations[0]->field);
}

static void
retry_info(struct stockade_error *to, const ProtobufCMessage *m)
{
    uint32_t ms = ((const Stockade__V1__RetryInfo *)m)->retry_delay_ms;
    to->retry_ms = ms > STOCKADE_RETRY_MS_MAX ? STOCKADE_RETRY_MS_MAX : ms;
}

static void
quota_failure(struct stockade_error *to, const ProtobufCMessage *m)
{
    const Stockade__V1__QuotaFailure *quota = (const Stockade__V1__QuotaFailure *)m;
    if (quota->n_violations > 0 && to->subject[0] == '\0')
        put(to->subject, sizeof to->subject, quota->violations[0]->subject);
}

static const struct detail {
    const char *name;
    const ProtobufCMessageDescriptor *type;
    void (*read)(struct stockade_error *to, const ProtobufCMessage *m);
} details[] = {
    {"stockade.v1.ErrorInfo", &stockade__v1__error_info__descriptor, error_info},
    {"stockade.v1.BadRequest", &stockade__v1__bad_request__descriptor, bad_request},
    {"stockade.v1.RetryInfo", &stockade__v1__retry_info__descriptor, retry_info},
    {"stockade.v1.QuotaFailure", &stockade__v1__quota_failure__descriptor, quota_failure},
};

static void
read_detail(struct stockade_error *to, const Google__Protobuf__Any *any)
{
    const char *slash = strrchr(any->type_url, '/');
    for (size_t i = 0; i < sizeof details / sizeof details[0]; i++) {
        if (slash == NULL || strcmp(slash + 1, details[i].name) != 0)
            continue;
        struct arena *auto_arena a = arena_new(DETAIL_ARENA_BYTES);
        ProtobufCMessage *m = NULL;
        struct err e;
        if (a != NULL &&
            wire_unpack(details[i].type, any->value.data, any->value.len, a, &m, &e) == 0)
            details[i].read(to, m);
    }
}

int
error_from_status(struct stockade_error *to, const Stockade__V1__Status *from)
{
    int code = from->code <= 1000 ? (int)from->code : ERR_UNKNOWN;
    if (to != NULL) {
        *to = (struct stockade_error){.code = code};
        put(to->text, sizeof to->text, from->message);
        if (to->text[0] == '\0')
            put(to->text, sizeof to->text, err_code_name(code));
        for (size_t i = 0; i < from->n_details && i < DETAILS_MAX; i++)
            read_detail(to, from->details[i]);
    }
    return error_errno(code);
}
