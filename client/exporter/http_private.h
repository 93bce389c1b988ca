// SPDX-License-Identifier: Apache-2.0
// What http.c, http_request.c and http_stream.c share.
#pragma once

#include <microhttpd.h>

#include "server/base/list.h"
#include "http.h"

enum { HTTP_ADDRESS_BYTES = 80 };

struct http {
    uv_loop_t *loop;
    struct http_settings settings;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t due, look;
    bool closing, running;
    struct list clients;
    char address[HTTP_ADDRESS_BYTES];
    uint64_t count[HTTP_COUNTS];
};

// A connection.
struct http_client {
    struct list node;
    int fd;
    uint64_t since_ms; // of its request; of a stream: when it last took bytes, or had all
    bool cut;
    struct http_request *stream; // that it reads; NULL: none
};

// What waits for the reader of a stream: bytes[taken] to bytes[n].
struct http_stream {
    char *bytes;
    size_t n, taken, size, most;
    bool high; // more than half of `most` waited
    bool ended;
};

struct http_request {
    struct http *http;
    struct MHD_Connection *connection;
    struct http_client *client;
    char *path; // owned
    const char *method;
    bool suspended; // by MHD_suspend_connection()
    bool waiting;   // for http_answer() or the end of its stream
    bool served;    // on_request was called
    char *body;     // owned
    size_t body_n;
    const struct http_field *fields;
    struct MHD_Response *response;
    unsigned status;
    void *cookie;
    bool is_stream;
    struct http_stream stream;
};

uint64_t http_now_ms(void);

// Lets libmicrohttpd do what is due, in the next turn of the loop: it can end requests, which their owner still uses in this one.
void http_run_soon(struct http *h);

// Continues a suspended request.
void http_resume(struct http_request *r);

// A response with the headers that all have.
void http_finish_response(struct http_request *r, unsigned status, const char *content_type);

// ---- http_request.c: libmicrohttpd's callbacks

enum MHD_Result http_on_request(void *cookie, struct MHD_Connection *connection, const char *path,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_n, void **request_cookie);
void http_on_completed(void *cookie, struct MHD_Connection *connection, void **request_cookie,
                       enum MHD_RequestTerminationCode why);
