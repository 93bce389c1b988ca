// SPDX-License-Identifier: Apache-2.0
// Calls of the dashboard's page to the broker: JSON over HTTP on one side, libstockade on the other, by a table of the methods that it
// needs and no others.
//
//   POST /api/call/SERVICE/METHOD    body: the request        answer: the response, or an error with its google.rpc code
//   POST /api/watch                  body: {"NAME": {"method": "SERVICE/METHOD", "request": {...}}, ...}
//                                    answer: events of all these streams (text/event-stream), each with its name
//
// Each call has the credential of the HTTP request (Authorization: Bearer ...), which the broker checks; the gateway keeps none. A
// request without one is refused, or, if the configuration says `open`, made as the exporter's own account, if it only reads.
//
// The handle is another one than that of the sinks, so they do not wait for each other. Bounds: GATEWAY_CALLS calls,
// `streams` streams, and GATEWAY_STREAM_BYTES that wait for a client. The broker sends more only while less than half of
// that waits, and then says itself what a slow client has missed; a client that takes nothing is disconnected (http.h). Loop
// thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "http.h"

enum {
    GATEWAY_CALLS = 64,
    GATEWAY_PARTS = 4, // streams of one request
    GATEWAY_STREAM_BYTES = 2 * 1024 * 1024,
};

struct gateway;

enum gateway_count {
    GATEWAY_COUNT_CALLS,   // calls and streams that were passed on
    GATEWAY_COUNT_CUT,     // streams whose client was too slow
    GATEWAY_COUNT_STREAMS, // that are open
    GATEWAY_COUNTS
};

// address "": the default. NULL: *e says why.
struct gateway *gateway_new(uv_loop_t *loop, const char *address, bool open, uint32_t streams,
                            struct err *e);

// Closes its handles on the loop, and answers all requests: run the loop until it is empty, then gateway_free().
void gateway_close(struct gateway *g);
void gateway_free(struct gateway *g);

// Requests whose path begins with /api/call/ or is /api/watch; the cookie of the request is the gateway's.
void gateway_call(struct gateway *g, struct http_request *r);
void gateway_watch(struct gateway *g, struct http_request *r);

// Of struct http_settings.
void gateway_gone(struct http_request *r);
void gateway_drained(struct http_request *r);

uint64_t gateway_count(const struct gateway *g, enum gateway_count which);

// ---- gateway_methods.c

struct gateway_method {
    const char *path; // "SandboxService/Pause"
    const struct ProtobufCMessageDescriptor *request, *response;
    bool acts;   // wants a credential, also of a dashboard that is open
    bool stream; // of /api/watch
};

// NULL: the gateway has no such method. n: length of `path`.
const struct gateway_method *gateway_method(const char *path, size_t n);
