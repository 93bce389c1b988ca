// SPDX-License-Identifier: Apache-2.0
// The HTTP server of the exporter: GET and HEAD of a few paths, on libmicrohttpd, in the exporter's loop.
//
// libmicrohttpd and not nng's HTTP server: it works without threads of its own (one epoll descriptor), bounds connections,
// memory and time per connection, and is fuzzed by its project. nng's runs on nng's threads, has none of these bounds and
// loses chunked bodies.
//
// Clients may be hostile: at most `connections` of them, half from one address; 16 KiB for a request's line and headers; a
// request has `timeout_ms` from the connection's start, or the end of the request before it, until its answer was read. A
// client that takes longer is disconnected. Bodies are not read. Loop thread only.
#pragma once

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
    // A GET of /metrics. Answer it once with http_answer(), now or later.
    void (*on_metrics)(void *cookie, struct http_request *r);
    // The client has gone: the request must not be answered any more. Not called after the answer.
    void (*on_gone)(void *cookie, struct http_request *r);
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

// Closes all connections and the handles on the loop: run the loop until it is empty, then http_free().
void http_close(struct http *h);
void http_free(struct http *h);

// The address that it listens on, such as "127.0.0.1:9477".
const char *http_address(const struct http *h);

// The header Accept; "": none. Borrowed.
const char *http_accept(const struct http_request *r);

// A pointer of the owner for a request.
void http_set_cookie(struct http_request *r, void *cookie);
void *http_cookie(const struct http_request *r);

// Answers. body: *owned*, from malloc(3) or open_memstream(3).
void http_answer(struct http_request *r, unsigned status, const char *content_type, char *body,
                 size_t n);

uint64_t http_count(const struct http *h, enum http_count which);
