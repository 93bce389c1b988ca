// SPDX-License-Identifier: Apache-2.0
// See approvals.h. A request was written by the one who wants the approval: each text is shown without control characters.
#include "approvals.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "json.h"
#include "stockade/v1/code_service.pb-c.h"
#include "stockade/v1/file_service.pb-c.h"
#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/snapshot_service.pb-c.h"
#include "stockade/v1/transaction_service.pb-c.h"
#include "stockade/v1/volume_service.pb-c.h"
#include "text.h"
#include "units.h"

enum { CELL_MAX = 4 * 1024, DEPTH_MAX = 8, ARENA_MAX = 1024 * 1024, SHOWN_MAX = 4096 };

static const char *const states[] = {"UNKNOWN", "PENDING", "APPROVED",
                                     "DENIED",  "EXPIRED", "CANCELLED"};
static const char *const reaches[] = {"ONCE", "ONCE", "SESSION", "PATTERN"};

static const struct {
    const char *method;
    const ProtobufCMessageDescriptor *request;
} known[] = {
    {"ProcessService/Run", &stockade__v1__run_request__descriptor},
    {"ProcessService/Start", &stockade__v1__start_request__descriptor},
    {"CodeService/RunCode", &stockade__v1__run_code_request__descriptor},
    {"CodeService/CreateContext", &stockade__v1__create_context_request__descriptor},
    {"SandboxService/Create", &stockade__v1__sandbox_service_create_request__descriptor},
    {"SandboxService/Update", &stockade__v1__sandbox_service_update_request__descriptor},
    {"SandboxService/Delete", &stockade__v1__sandbox_service_delete_request__descriptor},
    {"FileService/Write", &stockade__v1__file_service_write_request__descriptor},
    {"FileService/Remove", &stockade__v1__file_service_remove_request__descriptor},
    {"TransactionService/Commit", &stockade__v1__transaction_service_commit_request__descriptor},
    {"SnapshotService/Restore", &stockade__v1__snapshot_service_restore_request__descriptor},
    {"VolumeService/Delete", &stockade__v1__volume_service_delete_request__descriptor},
};

int64_t
approval_ms(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static const char *
state_name(uint32_t state)
{
    return states[state < sizeof states / sizeof states[0] ? state : 0];
}

static const char *
reach_name(const Stockade__V1__ApprovalGrant *g)
{
    const uint32_t reach = g->reach;
    return reaches[reach < sizeof reaches / sizeof reaches[0] ? reach : 0];
}

const char *
approval_state(const Stockade__V1__Approval *m, char *out, size_t n)
{
    char age[16];
    const int64_t left = approval_ms(m->valid_until) - now_wall_ms();
    (void)snprintf(out, n, "%s", state_name(m->state));
    if (m->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED || m->grant == NULL)
        return out;
    if (m->grant->reach <= STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_ONCE && m->uses > 0)
        (void)snprintf(out, n, "USED");
    else if (left <= 0)
        (void)snprintf(out, n, "OVER");
    else
        (void)snprintf(out, n, "APPROVED (%s, %s)", reach_name(m->grant),
                       units_show_age(left, age, sizeof age));
    return out;
}

static json_t *
json_time(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? json_of_time(approval_ms(t)) : json_null();
}

static json_t *
json_of_votes(const Stockade__V1__Approval *m)
{
    json_t *all = json_array();
    for (size_t i = 0; i < m->n_votes; i++)
        (void)json_array_append_new(
            all, json_pack("{ss sb ss so}", "approver", m->votes[i]->approver, "agreed",
                           (int)m->votes[i]->agreed, "comment", m->votes[i]->comment, "time",
                           json_time(m->votes[i]->time)));
    return all;
}

json_t *
approval_json(const Stockade__V1__Approval *m)
{
    char digest[2 * 32 + 1] = "";
    json_t *approvers = json_array();
    for (size_t i = 0; i < m->n_approvers; i++)
        (void)json_array_append_new(approvers, json_string(m->approvers[i]));
    if (m->digest.len == 32)
        (void)sodium_bin2hex(digest, sizeof digest, m->digest.data, m->digest.len);
    json_t *j = json_pack(
        "{ss ss ss ss ss ss ss ss so sI ss so so so sI so sI sI}", "id", m->id, "tenant", m->tenant,
        "requester", m->requester, "method", m->method, "subject", m->subject, "digest", digest,
        "rule", m->rule, "reason", m->reason, "approvers", approvers, "needed",
        (json_int_t)m->needed, "state", state_name(m->state), "create_time",
        json_time(m->create_time), "expire_time", json_time(m->expire_time), "votes",
        json_of_votes(m), "uses", (json_int_t)m->uses, "end_time", json_time(m->end_time),
        "revision", (json_int_t)m->revision, "request_bytes", (json_int_t)m->request_bytes);
    if (m->grant != NULL)
        (void)json_object_set_new(j, "grant",
                                  json_pack("{ss ss sI so}", "reach", reach_name(m->grant),
                                            "pattern", m->grant->pattern, "ttl_ms",
                                            (json_int_t)m->grant->ttl_ms, "valid_until",
                                            json_time(m->valid_until)));
    if (m->request.len > 0)
        (void)json_set_bytes(j, "request", m->request.data, m->request.len);
    return j;
}

// ---- a request, field by field

static void print_fields(const ProtobufCMessage *m, int depth);

static void
print_bytes(const ProtobufCBinaryData *b)
{
    char raw[SHOWN_MAX + 1], shown[2 * CELL_MAX];
    (void)snprintf(raw, sizeof raw, "%.*s", (int)(b->len < SHOWN_MAX ? b->len : SHOWN_MAX),
                   b->data != NULL ? (const char *)b->data : "");
    (void)printf(" (%zu %s) %s\n", b->len, plural(b->len, "byte", "bytes"),
                 text_clean(raw, shown, sizeof shown));
}

static void
print_value(const ProtobufCFieldDescriptor *f, const void *at, int depth)
{
    char text[2 * CELL_MAX];
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        (void)printf(" %s\n", text_clean(*(const char *const *)at, text, sizeof text));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        print_bytes(at);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        (void)putchar('\n');
        print_fields(*(const ProtobufCMessage *const *)at, depth + 1);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        (void)printf(" %" PRIu64 "\n", *(const uint64_t *)at);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        (void)printf(" %g\n", *(const double *)at);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
    default:
        (void)printf(" %" PRIu32 "\n", *(const uint32_t *)at);
        break;
    }
}

static bool
is_set(const ProtobufCFieldDescriptor *f, const void *at)
{
    static const uint8_t zeros[sizeof(uint64_t)];
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return *(const char *const *)at != NULL && (*(const char *const *)at)[0] != '\0';
    if (f->type == PROTOBUF_C_TYPE_BYTES)
        return ((const ProtobufCBinaryData *)at)->len > 0;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(const void *const *)at != NULL;
    return memcmp(at, zeros, wire_element_bytes(f->type)) != 0;
}

static void
print_field(const ProtobufCFieldDescriptor *f, const char *m, int depth)
{
    const bool several = f->label == PROTOBUF_C_LABEL_REPEATED;
    const size_t n =
        several ? *(const size_t *)(const void *)(m + f->quantifier_offset) : (size_t)1;
    const char *at = several ? *(const char *const *)(const void *)(m + f->offset) : m + f->offset;
    if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        *(const uint32_t *)(const void *)(m + f->quantifier_offset) != f->id)
        return;
    for (size_t i = 0; i < n; i++, at += wire_element_bytes(f->type)) {
        if (!several && !is_set(f, at))
            continue;
        (void)printf("%*s%s", 2 + 2 * depth, "", f->name);
        print_value(f, at, depth);
    }
}

static void
print_fields(const ProtobufCMessage *m, int depth)
{
    for (unsigned i = 0; i < m->descriptor->n_fields && depth < DEPTH_MAX; i++)
        print_field(&m->descriptor->fields[i], (const char *)m, depth);
}

static void
print_request(const Stockade__V1__Approval *m)
{
    struct err e;
    ProtobufCMessage *request = NULL;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    if (m->request_bytes > 0 && m->request.len == 0) {
        (void)printf("request   %" PRIu64 " %s, not kept\n", m->request_bytes,
                     plural(m->request_bytes, "byte", "bytes"));
        return;
    }
    for (size_t i = 0; a != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].method, m->method) != 0 ||
            wire_unpack(known[i].request, m->request.data, m->request.len, a, &request, &e) < 0)
            continue;
        (void)printf("request   %" PRIu64 " %s\n", m->request_bytes,
                     plural(m->request_bytes, "byte", "bytes"));
        print_fields(request, 0);
    }
    if (request == NULL && m->request.len > 0)
        (void)printf("request   %zu %s of a method that this command does not know\n",
                     m->request.len, plural(m->request.len, "byte", "bytes"));
}

static void
print_line(const char *name, const char *value)
{
    char text[CELL_MAX];
    if (value[0] != '\0')
        (void)printf("%-9s %s\n", name, text_clean(value, text, sizeof text));
}

void
approval_print(const Stockade__V1__Approval *m)
{
    char text[CELL_MAX], age[16];
    const int64_t now = now_wall_ms();
    print_line("id", m->id);
    print_line("state", approval_state(m, text, sizeof text));
    print_line("requester", m->requester);
    print_line("method", m->method);
    print_line("subject", m->subject);
    print_line("rule", m->rule);
    print_line("reason", m->reason);
    (void)printf("age       %s\n",
                 units_show_age(now - approval_ms(m->create_time), age, sizeof age));
    if (m->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING)
        (void)printf("expires   in %s\n",
                     units_show_age(approval_ms(m->expire_time) - now, age, sizeof age));
    for (size_t i = 0; i < m->n_approvers; i++)
        print_line("approver", m->approvers[i]);
    (void)printf("needed    %" PRIu32 "\n", m->needed);
    for (size_t i = 0; i < m->n_votes; i++) {
        char line[CELL_MAX];
        (void)snprintf(line, sizeof line, "%s %s %.512s", m->votes[i]->approver,
                       m->votes[i]->agreed ? "agreed" : "refused", m->votes[i]->comment);
        print_line("vote", line);
    }
    if (m->grant != NULL)
        print_line("pattern", m->grant->pattern);
    (void)printf("uses      %" PRIu64 "\n", m->uses);
    if (m->digest.len == 32)
        print_line("digest", sodium_bin2hex(text, sizeof text, m->digest.data, m->digest.len));
    print_request(m);
}
