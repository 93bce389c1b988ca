// SPDX-License-Identifier: Apache-2.0
// POST over HTTP and HTTPS, without waiting: libcurl's multi interface in the exporter's loop. Each target has a handle of its
// own, and with it a connection that is kept, and at most one request at a time, so a target that is slow delays no other.
//
// Redirects are not followed, so that a receiver cannot send the bytes, and the credentials in the headers, elsewhere. Of a
// response at most POST_RESPONSE_MAX bytes are kept. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"

enum {
    POST_RESPONSE_MAX = 16 * 1024,
    POST_HEADERS_MAX = 32,
    POST_URL_MAX = 512,
    POST_PATH_MAX = 256,
    POST_LINES_MAX = 2048
};

struct poster;
struct post;

struct post_settings {
    char url[POST_URL_MAX]; // http:// or https://
    // PEM files; "": those of the host, and none of our own
    char ca_file[POST_PATH_MAX], certificate_file[POST_PATH_MAX], key_file[POST_PATH_MAX];
    // Lines "Name: value"; "": none. Readable by nobody but the owner and the group.
    char headers_file[POST_PATH_MAX];
    // Further lines, which may be secret; "": none
    char header_lines[POST_LINES_MAX];
    uint64_t timeout_ms; // of one request
    bool gzip;
    const char *content_type;
    const char *headers
        [POST_HEADERS_MAX]; // further lines, terminated by NULL; borrowed until post_new() returns
};

struct post_result {
    unsigned status;     // of HTTP; 0: there was no response
    const char *error;   // with status 0: why. Borrowed for the call
    bool final;          // with status 0: another attempt has the same result
    uint64_t wait_ms;    // Retry-After; 0: none
    const uint8_t *body; // the begin of the response
    size_t n;
};

// NULL: out of memory, or libcurl does not start.
struct poster *poster_new(uv_loop_t *loop, struct err *e);
// After its targets were freed. Closes its handles on the loop: run the loop until it is empty, then free it.
void poster_close(struct poster *all);
void poster_free(struct poster *all);

// A target. NULL: *e says which setting is wrong; texts of files with credentials are not in it.
struct post *post_new(struct poster *all, const struct post_settings *s,
                      void (*done)(void *cookie, const struct post_result *r), void *cookie,
                      struct err *e);
void post_free(struct post *p); // ends its request without a call

// Begins a request. bytes: *owned*, from malloc(3), also on failure. headers: lines for this request alone, terminated by NULL,
// copied. `done` is called once, later. A negative errno: it is not called.
int post_send(struct post *p, uint8_t *bytes, size_t n, const char *const *headers);

// The seconds or the date of a header Retry-After, as milliseconds from now_s on, at most a day; 0: neither.
uint64_t post_retry_after_ms(const char *value, int64_t now_s);
