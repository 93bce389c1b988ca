// SPDX-License-Identifier: Apache-2.0
// See otlp.h: the resource, what stands around a batch, and what a receiver answers.
#include "otlp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "otlp_environment.h"
#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"

static const char schema_url[] = "https://opentelemetry.io/schemas/1.44.0";

// ---- The resource

static bool
has(const struct otlp_attributes *a, const char *key)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->item[i]->key, key) == 0)
            return true;
    return false;
}

// Keys that are there already stay.
static bool
add_configured(struct otlp_attributes *a, char *text)
{
    for (char *item = NULL; (item = strsep(&text, ",")) != NULL;) {
        char *value = strchr(item, '=');
        if (item[0] == '\0')
            continue;
        if (value == NULL || value == item)
            return false;
        *value++ = '\0';
        if (!otlp_percent_decode(item) || !otlp_percent_decode(value))
            return false;
        item += strspn(item, " ");
        if (!has(a, item))
            otlp_add_text(a, item, value);
    }
    return true;
}

static int
make_resource(struct otlp *o, const char *service, const char *attributes, struct err *e)
{
    Opentelemetry__Proto__Resource__V1__Resource m =
        OPENTELEMETRY__PROTO__RESOURCE__V1__RESOURCE__INIT;
    struct otlp_attributes a = {.arena = o->arena};
    char host[256] = "";
    char *text = arena_copy(o->arena, attributes, strlen(attributes));
    (void)gethostname(host, sizeof host - 1);
    if (service[0] != '\0')
        otlp_add_text(&a, "service.name", service);
    if (text == NULL || !add_configured(&a, text))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "OTEL_RESOURCE_ATTRIBUTES: must be like key=value,key=value");
    if (!has(&a, "service.name"))
        otlp_add_text(&a, "service.name", "stockade");
    if (!has(&a, "service.version"))
        otlp_add_text(&a, "service.version", STOCKADE_VERSION);
    if (!has(&a, "host.name"))
        otlp_add_text(&a, "host.name", host);
    m.attributes = a.item;
    m.n_attributes = a.n;
    int r = a.failed ? -ENOMEM : otlp_pack(&m.base, &o->resource);
    return r < 0 ? err_sys(e, r, "make the resource") : 0;
}

struct otlp *
otlp_new(const char *service, const char *attributes, struct err *e)
{
    struct otlp *o = calloc(1, sizeof *o);
    if (o != NULL)
        o->arena = arena_new(OTLP_ARENA_BYTES);
    if (o == NULL || o->arena == NULL) {
        (void)err_sys(e, ENOMEM, "prepare OTLP");
        otlp_free(o);
        return NULL;
    }
    if (make_resource(o, service, attributes, e) < 0) {
        otlp_free(o);
        return NULL;
    }
    return o;
}

void
otlp_free(struct otlp *o)
{
    if (o == NULL)
        return;
    arena_free(o->arena);
    free(o->resource.bytes);
    free(o);
}

// ---- Around a batch

// A buffer that is filled from its end to its begin, so that each length is known when it is written.
struct backwards {
    uint8_t *at;
};

static void
prepend(struct backwards *b, const void *bytes, size_t n)
{
    b->at -= n;
    memcpy(b->at, bytes, n);
}

// Field `number` with a length, in front of the n bytes that were prepended last.
static void
prepend_head(struct backwards *b, unsigned number, size_t n)
{
    uint8_t head[12];
    size_t size = 0;
    head[size++] = (uint8_t)(number << 3 | 2);
    for (; n >= 0x80; n >>= 7)
        head[size++] = (uint8_t)(n | 0x80);
    head[size++] = (uint8_t)n;
    prepend(b, head, size);
}

// Export...ServiceRequest { 1: Resource... { 1: resource, 2: Scope... { 1: scope, the batch }, 3: schema_url } }
int
otlp_wrap(void *otlp, uint8_t **bytes, size_t *n)
{
    enum { HEADS_BYTES = 64 };
    const struct otlp *o = otlp;
    Opentelemetry__Proto__Common__V1__InstrumentationScope scope =
        OPENTELEMETRY__PROTO__COMMON__V1__INSTRUMENTATION_SCOPE__INIT;
    struct sink_bytes packed = {0};
    scope.name = "stockade-exporter";
    scope.version = STOCKADE_VERSION;
    if (otlp_pack(&scope.base, &packed) < 0)
        return -ENOMEM;
    const size_t most = *n + packed.n + o->resource.n + sizeof schema_url + HEADS_BYTES;
    uint8_t *out = malloc(most);
    if (out == NULL) {
        free(packed.bytes);
        return -ENOMEM;
    }
    uint8_t *const end = out + most;
    struct backwards b = {end};
    prepend(&b, schema_url, sizeof schema_url - 1);
    prepend_head(&b, 3, sizeof schema_url - 1);
    uint8_t *const scope_end = b.at;
    prepend(&b, *bytes, *n);
    prepend(&b, packed.bytes, packed.n);
    prepend_head(&b, 1, packed.n);
    prepend_head(&b, 2, (size_t)(scope_end - b.at));
    prepend(&b, o->resource.bytes, o->resource.n);
    prepend_head(&b, 1, o->resource.n);
    prepend_head(&b, 1, (size_t)(end - b.at));
    *n = (size_t)(end - b.at);
    memmove(out, b.at, *n);
    free(packed.bytes);
    free(*bytes);
    *bytes = out;
    return 0;
}

// ---- Responses

uint64_t
otlp_rejected(const uint8_t *body, size_t n, char *why, size_t why_size)
{
    struct arena *auto_arena a = arena_new((size_t)256 * 1024);
    ProtobufCMessage *m = NULL;
    struct err e;
    if (a == NULL || n == 0 ||
        wire_unpack(
            &opentelemetry__proto__collector__logs__v1__export_logs_service_response__descriptor,
            body, n, a, &m, &e) < 0)
        return 0;
    const Opentelemetry__Proto__Collector__Logs__V1__ExportLogsPartialSuccess *p =
        ((const Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceResponse *)m)
            ->partial_success;
    if (p == NULL || p->rejected_log_records <= 0)
        return 0;
    (void)snprintf(why, why_size, "%s", p->error_message);
    return (uint64_t)p->rejected_log_records;
}
