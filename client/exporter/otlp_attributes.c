// SPDX-License-Identifier: Apache-2.0
// See otlp.h. Names are those of the semantic conventions 1.44 (opentelemetry.io/docs/specs/semconv) where they have one for the
// fact; all others begin with "stockade.".
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host_port.h"
#include "proto/wire.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "otlp.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { KEY_BYTES = 128, ATTRIBUTES_FIRST = 64 };

static Opentelemetry__Proto__Common__V1__AnyValue *
add(struct otlp_attributes *a, const char *key)
{
    if (a->n == a->size) {
        const size_t size = a->size == 0 ? ATTRIBUTES_FIRST : 2 * a->size;
        Opentelemetry__Proto__Common__V1__KeyValue **more =
            arena_alloc(a->arena, size * sizeof(void *));
        a->failed |= more == NULL;
        if (more == NULL)
            return NULL;
        for (size_t i = 0; i < a->n; i++)
            more[i] = a->item[i];
        a->item = more;
        a->size = size;
    }
    Opentelemetry__Proto__Common__V1__KeyValue *kv =
        wire_make(a->arena, &opentelemetry__proto__common__v1__key_value__descriptor);
    if (kv != NULL)
        kv->value = wire_make(a->arena, &opentelemetry__proto__common__v1__any_value__descriptor);
    if (kv == NULL || kv->value == NULL) {
        a->failed = true;
        return NULL;
    }
    kv->key = arena_copy(a->arena, key, strlen(key));
    a->failed |= kv->key == NULL;
    a->item[a->n++] = kv;
    return kv->value;
}

void
otlp_add_text(struct otlp_attributes *a, const char *key, const char *value)
{
    Opentelemetry__Proto__Common__V1__AnyValue *v = value[0] != '\0' ? add(a, key) : NULL;
    if (v == NULL)
        return;
    v->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE;
    v->string_value = value;
}

void
otlp_add_number(struct otlp_attributes *a, const char *key, uint64_t value)
{
    Opentelemetry__Proto__Common__V1__AnyValue *v = add(a, key);
    if (v == NULL)
        return;
    v->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE;
    v->int_value = value <= INT64_MAX ? (int64_t)value : INT64_MAX;
}

void
otlp_add_event(struct otlp_attributes *a, const struct stockade_event *event)
{
    const Stockade__V1__Event *m = event->message;
    char key[KEY_BYTES];
    otlp_add_text(a, "stockade.sandbox.id", event->sandbox_id);
    otlp_add_text(a, "stockade.process.id", event->process_id);
    otlp_add_text(a, "stockade.tenant", event->tenant);
    otlp_add_text(a, "stockade.template", event->template_name);
    otlp_add_text(a, "process.executable.name", event->comm);
    if (event->pid != 0)
        otlp_add_number(a, "process.pid", event->pid);
    if (m == NULL)
        return;
    otlp_add_text(a, "stockade.sandbox.name", m->sandbox_name);
    for (size_t i = 0; i < m->n_metadata; i++) {
        (void)snprintf(key, sizeof key, "stockade.label.%s", m->metadata[i]->key);
        otlp_add_text(a, key, m->metadata[i]->value);
    }
}

// ---- Details

// "192.0.2.1:443" as an address and a port; other texts as an address.
static void
add_destination(struct otlp_attributes *a, const char *destination)
{
    struct host_port at;
    uint16_t port = 0;
    if (!host_port_split(destination, &at) || at.port == NULL ||
        !host_port_number(at.port, &port)) {
        otlp_add_text(a, "destination.address", destination);
        return;
    }
    const char *host = arena_copy(a->arena, at.host, strlen(at.host));
    a->failed |= host == NULL;
    otlp_add_text(a, "destination.address", host != NULL ? host : "");
    otlp_add_number(a, "destination.port", port);
}

static const struct {
    const char *kind, *fact, *name;
} conventions[] = {
    {"EXEC", "path", "process.executable.path"},  {"EXEC", "arguments", "process.command_line"},
    {"EXEC", "cwd", "process.working_directory"}, {"EXEC", "parent_pid", "process.parent_pid"},
    {"EXIT", "code", "process.exit.code"},        {"JOB_ENDED", "exit_code", "process.exit.code"},
    {"SENSITIVE_OPEN", "resolved", "file.path"},  {"LOOKUP", "name", "dns.question.name"},
    {"", "protocol", "network.transport"},
};

static void
add_fact(struct otlp_attributes *a, const char *key, const struct stockade_fact *f)
{
    Opentelemetry__Proto__Common__V1__AnyValue *v = NULL;
    if (f->type == STOCKADE_FACT_TEXT) {
        otlp_add_text(a, key, f->text);
    } else if (f->type == STOCKADE_FACT_NUMBER || f->type == STOCKADE_FACT_SIGNED) {
        otlp_add_number(a, key, f->number);
        if (f->type == STOCKADE_FACT_SIGNED && !a->failed)
            a->item[a->n - 1]->value->int_value = (int64_t)f->number;
    } else if ((v = add(a, key)) != NULL && f->type == STOCKADE_FACT_REAL) {
        v->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_DOUBLE_VALUE;
        v->double_value = f->real;
    } else if (v != NULL) {
        v->value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE;
        v->bool_value = f->number != 0;
    }
}

void
otlp_add_facts(struct otlp_attributes *a, const struct stockade_event *event)
{
    char key[KEY_BYTES];
    for (size_t i = 0; i < event->facts_n; i++) {
        const struct stockade_fact *f = &event->facts[i];
        if (strcmp(f->name, "destination") == 0) {
            add_destination(a, f->text);
            continue;
        }
        (void)snprintf(key, sizeof key, "stockade.%s", f->name);
        for (size_t k = 0; k < sizeof conventions / sizeof conventions[0]; k++)
            if (strcmp(conventions[k].fact, f->name) == 0 &&
                (conventions[k].kind[0] == '\0' || strcmp(conventions[k].kind, event->kind) == 0))
                (void)snprintf(key, sizeof key, "%s", conventions[k].name);
        add_fact(a, key, f);
    }
}

int
otlp_pack(const ProtobufCMessage *m, struct sink_bytes *out)
{
    const size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    if (bytes == NULL)
        return -ENOMEM;
    *out = (struct sink_bytes){(char *)bytes, protobuf_c_message_pack(m, bytes)};
    return 0;
}
