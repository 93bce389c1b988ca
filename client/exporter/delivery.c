// SPDX-License-Identifier: Apache-2.0
// See delivery.h.
#include "delivery.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"

enum { STATUS_TOO_LARGE = 413, STATUS_TIMEOUT = 408, STATUS_EARLY = 425, STATUS_MANY = 429 };
enum { STATUS_GATEWAY = 502, STATUS_UNAVAILABLE = 503, STATUS_GATEWAY_TIME = 504 };
enum { STATE_FINE = 0, STATE_SILENT = 1, STATE_PARTIAL = 2 };
enum { MINUTE_MS = 60000, LINES_PER_MINUTE = 20 };
enum { OK_FIRST = 200, OK_LAST = 299, SERVER_FIRST = 500, SERVER_LAST = 599 };

struct delivery {
    const char *name;
    struct queue *queue;
    const struct delivery_format *format;
    void *cookie;
    struct post *post;
    uv_timer_t timer;
    bool sending, closing;
    int state;          // that was reported
    uint64_t minute_ms; // the begin of one
    unsigned lines;     // that were reported in it
    size_t records;     // of the request that is under way
    size_t records_max; // of the next one
    uint64_t again_ms;
    struct delivery_numbers numbers;
};

enum delivery_verdict
delivery_judge(unsigned status, bool otlp, size_t records)
{
    if (status >= OK_FIRST && status <= OK_LAST)
        return DELIVERY_OK;
    if (status == STATUS_TOO_LARGE && records > 1)
        return DELIVERY_SMALLER;
    if (status == 0 || status == STATUS_MANY || status == STATUS_GATEWAY ||
        status == STATUS_UNAVAILABLE || status == STATUS_GATEWAY_TIME)
        return DELIVERY_AGAIN;
    if (!otlp && (status == STATUS_TIMEOUT || status == STATUS_EARLY ||
                  (status >= SERVER_FIRST && status <= SERVER_LAST)))
        return DELIVERY_AGAIN;
    return DELIVERY_NEVER;
}

static void send_next(struct delivery *d);

static void
on_time(uv_timer_t *timer)
{
    send_next(timer->data);
}

static void
send_in(struct delivery *d, uint64_t ms)
{
    if (!d->closing)
        (void)uv_timer_start(&d->timer, on_time, ms, 0);
}

// ---- Ends of requests

// Each change once, and a few lines per minute, so that a receiver that is away for an hour is two lines. Text from a receiver is
// made printable. state: a status of HTTP, or less.
static void
report(struct delivery *d, int state, const char *what)
{
    const uint64_t now = uv_now(d->timer.loop);
    if (d->state == state)
        return;
    if (now - d->minute_ms > MINUTE_MS) {
        d->minute_ms = now;
        d->lines = 0;
    }
    if (d->lines++ >= LINES_PER_MINUTE)
        return;
    d->state = state;
    (void)fprintf(stderr, "stockade-exporter: %s: ", d->name);
    for (const char *c = what; *c != '\0'; c++)
        (void)fputc(*c >= ' ' && *c <= '~' ? *c : '?', stderr);
    (void)fputc('\n', stderr);
}

static void
report_status(struct delivery *d, const struct post_result *r, const char *what)
{
    char text[512];
    if (r->status == 0)
        (void)snprintf(text, sizeof text, "%s%s", r->error, what);
    else
        (void)snprintf(text, sizeof text, "HTTP status %u%s", r->status, what);
    report(d, r->status == 0 ? STATE_SILENT : (int)r->status, text);
}

static void
accepted(struct delivery *d, const struct post_result *r)
{
    char why[256] = "";
    uint64_t rejected =
        d->format->rejected != NULL ? d->format->rejected(r->body, r->n, why, sizeof why) : 0;
    if (rejected > d->records)
        rejected = d->records;
    d->numbers.sent += d->records - rejected;
    d->numbers.refused += rejected;
    d->numbers.reachable = true;
    d->again_ms = DELIVERY_AGAIN_MS;
    if (d->records_max < d->format->records_max)
        d->records_max *= 2;
    queue_done(d->queue);
    if (rejected == 0) {
        report(d, STATE_FINE, "the receiver accepts again");
        return;
    }
    char text[512];
    (void)snprintf(text, sizeof text, "the receiver accepted a part only: %s", why);
    report(d, STATE_PARTIAL, text);
}

// Half of the time is random, so that many exporters do not return at once.
static void
again_later(struct delivery *d, const struct post_result *r)
{
    uint64_t ms = d->again_ms / 2 + randombytes_uniform((uint32_t)(d->again_ms / 2 + 1));
    d->again_ms = d->again_ms * 2 < DELIVERY_AGAIN_MAX_MS ? d->again_ms * 2 : DELIVERY_AGAIN_MAX_MS;
    d->numbers.retries++;
    queue_again(d->queue);
    send_in(d, ms > r->wait_ms ? ms : r->wait_ms);
}

static void
on_done(void *cookie, const struct post_result *r)
{
    struct delivery *d = cookie;
    d->sending = false;
    d->numbers.reachable = false;
    switch (delivery_judge(r->status, d->format->otlp, d->records)) {
    case DELIVERY_OK:
        accepted(d, r);
        send_in(d, 0);
        return;
    case DELIVERY_SMALLER:
        d->records_max = d->records / 2;
        d->numbers.retries++;
        queue_again(d->queue);
        send_in(d, 0);
        return;
    case DELIVERY_AGAIN:
        report_status(d, r, ", will try again");
        again_later(d, r);
        return;
    case DELIVERY_NEVER:
        report_status(d, r, ", the records are dropped");
        d->numbers.refused += d->records;
        queue_done(d->queue);
        send_in(d, 0);
        return;
    }
}

// ---- Requests

static int
begin(struct delivery *d, uint8_t **bytes, size_t n)
{
    struct delivery_headers h = {.n = 0};
    const char *lines[DELIVERY_HEADERS_MAX + 1] = {NULL};
    int r = d->format->wrap != NULL ? d->format->wrap(d->cookie, bytes, &n) : 0;
    if (r < 0)
        return r;
    if (d->format->headers != NULL)
        d->format->headers(d->cookie, *bytes, n, &h);
    for (size_t i = 0; i < h.n; i++)
        lines[i] = h.line[i];
    return post_send(d->post, take_ptr(*bytes), n, h.n > 0 ? lines : NULL);
}

static void
send_next(struct delivery *d)
{
    uint8_t *auto_free bytes = NULL;
    size_t n = 0;
    if (d->sending || d->closing)
        return;
    d->records = queue_take(d->queue, d->records_max, DELIVERY_BATCH_BYTES, &bytes, &n);
    if (d->records == 0) {
        if (queue_numbers(d->queue)->records > 0) // out of memory, or damage was skipped
            send_in(d, DELIVERY_LINGER_MS);
        return;
    }
    d->sending = true;
    d->numbers.requests++;
    if (begin(d, &bytes, n) == 0)
        return;
    const struct post_result none = {.error = "out of memory"};
    on_done(d, &none);
}

void
delivery_wake(struct delivery *d)
{
    if (d->sending || uv_is_active((uv_handle_t *)&d->timer))
        return;
    send_in(d, d->format->records_max > 1 ? DELIVERY_LINGER_MS : 0);
}

// ---- Begin and end

struct delivery *
delivery_new(uv_loop_t *loop, struct poster *poster, const struct delivery_settings *s,
             struct err *e)
{
    struct delivery *auto_free d = calloc(1, sizeof *d);
    if (d == NULL) {
        (void)err_sys(e, ENOMEM, "open %s", s->name);
        return NULL;
    }
    d->name = s->name;
    d->queue = s->queue;
    d->format = s->format;
    d->cookie = s->cookie;
    d->records_max = s->format->records_max;
    d->again_ms = DELIVERY_AGAIN_MS;
    d->post = post_new(poster, s->post, on_done, d, e);
    if (d->post == NULL)
        return NULL;
    (void)uv_timer_init(loop, &d->timer); // cannot fail
    d->timer.data = d;
    send_in(d, 0); // what an earlier start left
    return take_ptr(d);
}

void
delivery_close(struct delivery *d)
{
    if (d == NULL || d->closing)
        return;
    d->closing = true;
    post_free(take_ptr(d->post));
    uv_close((uv_handle_t *)&d->timer, NULL);
}

void
delivery_free(struct delivery *d)
{
    if (d != NULL)
        post_free(d->post);
    free(d);
}

const struct delivery_numbers *
delivery_numbers(const struct delivery *d)
{
    return &d->numbers;
}
