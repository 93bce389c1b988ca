// SPDX-License-Identifier: Apache-2.0
// Carries the records of a queue to a receiver over HTTP: one batch at a time, tried again as long as the receiver is away.
//
//   queue --take--> wrap --> POST --2xx--> done          batches grow up to format.records_max
//                             |--413-----> a batch of half the size
//                             |--429, 502, 503, 504, no response--> again, after Retry-After or 0.5 to 30 s
//                             `--other status--> given up, and counted
//
// These are the rules of OTLP over HTTP (opentelemetry.io/docs/specs/otlp, "Failures"); other receivers are asked again after
// 408, 425 and every 5xx too. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "post.h"
#include "queue.h"

enum {
    DELIVERY_BATCH_BYTES = 1024 * 1024,
    DELIVERY_LINGER_MS = 200, // a batch waits for more records
    DELIVERY_AGAIN_MS = 500,
    DELIVERY_AGAIN_MAX_MS = 30000,
    DELIVERY_HEADERS_MAX = 4,
    DELIVERY_HEADER_BYTES = 160,
};

// Headers of one request.
struct delivery_headers {
    char line[DELIVERY_HEADERS_MAX][DELIVERY_HEADER_BYTES];
    size_t n;
};

// What a kind of receiver expects. Functions may be NULL.
struct delivery_format {
    const char *content_type;
    size_t records_max; // of one request; 1: no waiting for more
    bool otlp;          // which statuses are tried again
    // Makes the body of the records' bytes, which it replaces. A negative errno: out of memory.
    int (*wrap)(void *cookie, uint8_t **bytes, size_t *n);
    void (*headers)(void *cookie, const uint8_t *bytes, size_t n, struct delivery_headers *out);
    // Of a response with status 2xx: the number of records that the receiver refused, and its reason.
    uint64_t (*rejected)(const uint8_t *body, size_t n, char *why, size_t why_size);
};

struct delivery_numbers {
    uint64_t sent;     // records that the receiver has accepted
    uint64_t refused;  // records that it has not, and that are not tried again
    uint64_t requests; // also those without a response
    uint64_t retries;  // requests that were begun again
    bool reachable;    // the last request had a response with status 2xx
};

struct delivery;

struct delivery_settings {
    const char *name; // for messages
    struct queue *queue;
    const struct delivery_format *format;
    void *cookie; // of the format
    const struct post_settings *post;
};

// What the settings point to is borrowed, `post` until the return only. NULL: *e says why.
struct delivery *delivery_new(uv_loop_t *loop, struct poster *poster,
                              const struct delivery_settings *s, struct err *e);
// Closes its handle on the loop: run the loop until it is empty, then free it.
void delivery_close(struct delivery *d);
void delivery_free(struct delivery *d);

// Something was put into the queue.
void delivery_wake(struct delivery *d);

const struct delivery_numbers *delivery_numbers(const struct delivery *d);

// What a status means.
enum delivery_verdict { DELIVERY_OK, DELIVERY_AGAIN, DELIVERY_SMALLER, DELIVERY_NEVER };
enum delivery_verdict delivery_judge(unsigned status, bool otlp, size_t records);
