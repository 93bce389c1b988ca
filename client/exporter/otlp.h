// SPDX-License-Identifier: Apache-2.0
// Events, jobs and metrics as messages of OTLP (opentelemetry.io/docs/specs/otlp), for HTTP with protobuf.
//
//   event      --otlp_log---->  LogRecord           one each
//   JOB_ENDED  --otlp_spans-->  5 spans             run > queue, set up, exec, collect
//   metrics    --otlp_metrics-> all of them         cumulative, since the start of the broker
//
// Each makes the bytes of a Scope message (ScopeLogs, ...) without its scope. Messages of protobuf may be joined by appending
// one to the other, so the records of a queue are a batch as they are, and otlp_wrap() puts the resource and the scope around it.
// Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "client/stockade.h"
#include "sinks.h"
#include "trace.h"

enum { OTLP_ARENA_BYTES = 8 * 1024 * 1024 };

struct otlp {
    struct arena *arena;
    struct sink_bytes resource; // packed
    struct traces traces;
};

// The resource has service.name, service.version and host.name, and what `attributes` says: "key=value,key=value" as in
// OTEL_RESOURCE_ATTRIBUTES, or "". NULL: out of memory, or the attributes are malformed.
struct otlp *otlp_new(const char *service, const char *attributes, struct err *e);
void otlp_free(struct otlp *o);

// For struct sink, with a struct otlp as its cookie. otlp_spans() makes nothing of other events than JOB_ENDED, and of jobs
// whose caller does not record its trace.
int otlp_log(struct otlp *o, const struct stockade_event *event, struct sink_bytes *out);
int otlp_log_gap(struct otlp *o, uint64_t count, const char *reason, struct sink_bytes *out);
int otlp_spans(struct otlp *o, const struct stockade_event *event, struct sink_bytes *out);
int otlp_metrics(struct otlp *o, const struct stockade_metrics *metrics, int64_t now_ns,
                 struct sink_bytes *out);

// For struct delivery_format.
int otlp_wrap(void *otlp, uint8_t **bytes, size_t *n);
uint64_t otlp_rejected(const uint8_t *body, size_t n, char *why, size_t why_size);

// ---- otlp_attributes.c, for the encoders

struct Opentelemetry__Proto__Common__V1__AnyValue;
struct Opentelemetry__Proto__Common__V1__KeyValue;

// A list that grows in an arena.
struct otlp_attributes {
    struct arena *arena;
    struct Opentelemetry__Proto__Common__V1__KeyValue **item;
    size_t n, size;
    bool failed; // the arena is full
};

void otlp_add_text(struct otlp_attributes *a, const char *key, const char *value); // not ""
void otlp_add_number(struct otlp_attributes *a, const char *key, uint64_t value);
// Sandbox, job, tenant, template, process, labels: what every event has.
void otlp_add_event(struct otlp_attributes *a, const struct stockade_event *event);
// The details, by the names of the semantic conventions where they have one.
void otlp_add_facts(struct otlp_attributes *a, const struct stockade_event *event);

// Packs. A negative errno: out of memory.
int otlp_pack(const ProtobufCMessage *m, struct sink_bytes *out);
