// SPDX-License-Identifier: Apache-2.0
// A server for HTTP, on libmicrohttpd, in the exporter's loop: of metrics for Prometheus, and of the dashboard.
//
// libmicrohttpd and not nng's HTTP server: it works without threads of its own (one epoll descriptor), bounds connections,
// memory and time per connection, and is fuzzed by its project. nng's runs on nng's threads, has none of these bounds and
// loses chunked bodies.
//
// Clients may be hostile: at most `connections` of them, half from one address; 16 KiB for a request's line and headers; a
// request has `timeout_ms` from the connection's start, or the end of the request before it, until its answer was read. A
// client that takes longer is disconnected. So is the reader of a stream that reads nothing for as long while bytes wait for it.
// Bodies are read up to `body_max`. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"

struct http;
struct http_request;

struct http_settings {
    const char *listen; // HOST:PORT, numeric or a name
    uint32_t connections;
    uint64_t timeout_ms;
    size_t body_max; // of a POST; 0: only GET and HEAD are accepted
    // A whole request. Answer it once with http_answer() or http_stream(), now or later.
    void (*on_request)(void *cookie, struct http_request *r);
    // The client has gone: the request must not be answered any more, or its stream has ended. Not called after http_answer().
    void (*on_gone)(void *cookie, struct http_request *r);
    // At most half of the bytes of a stream that were waiting still do.
    void (*on_drained)(void *cookie, struct http_request *r);
    void *cookie;
};

enum http_count {
    HTTP_ACCEPTED,
    HTTP_ANSWERED, // with 200
    HTTP_REFUSED,  // with another status
    HTTP_CUT,      // disconnected because they took too long
    HTTP_COUNTS
};

// The settings are copied, their strings not needed afterwards. NULL: *e says why.
struct http *http_new(uv_loop_t *loop, const struct http_settings *settings, struct err *e);

// Closes all connections and the handles on the loop: run the loop until it is empty, then http_free(). All requests that wait
// must have been answered.
void http_close(struct http *h);
void http_free(struct http *h);

// The address that it listens on, such as "127.0.0.1:9477".
const char *http_address(const struct http *h);
uint64_t http_count(const struct http *h, enum http_count which);

// ---- Requests

// The path without its query, and the method. Borrowed.
const char *http_path(const struct http_request *r);
const char *http_method(const struct http_request *r);

// A header; "": none. Borrowed.
const char *http_header(const struct http_request *r, const char *name);

// The body; never NULL. Borrowed.
const char *http_body(const struct http_request *r, size_t *n);

// A pointer of the owner for a request.
void http_set_cookie(struct http_request *r, void *cookie);
void *http_cookie(const struct http_request *r);

// A further header of the answer; the texts are static.
struct http_field {
    const char *name, *value;
};

// Headers that all further answers to this request have, terminated by {0}. Borrowed.
void http_set_fields(struct http_request *r, const struct http_field *fields);

// Answers. body: *owned*, from malloc(3) or open_memstream(3).
void http_answer(struct http_request *r, unsigned status, const char *content_type, char *body,
                 size_t n);

// The same with a terminated text, which is copied.
void http_answer_text(struct http_request *r, unsigned status, const char *content_type,
                      const char *text);

// ---- Streams

// Answers 200 with a body that has no end yet, of which at most `most` bytes wait for the client. False: out of memory, and
// nothing was answered.
bool http_stream(struct http_request *r, const char *content_type, size_t most);

// Appends. False: so much does not fit, and nothing was appended.
bool http_stream_write(struct http_request *r, const char *bytes, size_t n);

// Bytes that wait for the client.
size_t http_stream_waiting(const struct http_request *r);

// Ends the stream after what waits. on_gone is not called any more.
void http_stream_end(struct http_request *r);
