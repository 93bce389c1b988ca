// SPDX-License-Identifier: Apache-2.0
// See gateway.h: the handle, exchanges, and their calls.
#include "gateway_private.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "client/invoke.h"

enum {
    ARENA_BYTES = 8 * 1024 * 1024,
    DEADLINE_MS = 10000,
    ALIVE_MS = 1000,
    CREDIT = 4, // messages that the broker sends in advance
    TURNS_MAX = 64,
    LAST_BYTES = 256, // of a stream's buffer, for what ends it
};

static const char content_type[] = "application/json";

// ---- Answers

static unsigned
status_of(int code)
{
    static const unsigned statuses[] = {
        [STOCKADE_INVALID_ARGUMENT] = 400,    [STOCKADE_DEADLINE_EXCEEDED] = 504,
        [STOCKADE_NOT_FOUND] = 404,           [STOCKADE_ALREADY_EXISTS] = 409,
        [STOCKADE_PERMISSION_DENIED] = 403,   [STOCKADE_RESOURCE_EXHAUSTED] = 429,
        [STOCKADE_FAILED_PRECONDITION] = 409, [STOCKADE_ABORTED] = 409,
        [STOCKADE_OUT_OF_RANGE] = 400,        [STOCKADE_UNIMPLEMENTED] = 501,
        [STOCKADE_UNAVAILABLE] = 503,         [STOCKADE_UNAUTHENTICATED] = 401,
    };
    const bool known = code > 0 && (size_t)code < sizeof statuses / sizeof statuses[0];
    return known && statuses[code] != 0 ? statuses[code] : 500;
}

// *owned*: an error as JSON; NULL: out of memory.
static char *
error_text(const char *name, const struct stockade_error *e)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s}", "code", stockade_code_name(e->code), "text",
                          e->text, "reason", e->reason, "subject", e->subject, "hint", e->hint);
    if (name != NULL && o != NULL)
        (void)json_object_set_new(o, "name", json_string(name));
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    return text;
}

void
gateway_answer_error(struct http_request *r, const struct stockade_error *e)
{
    char *text = error_text(NULL, e);
    http_answer(r, status_of(e->code), content_type, text, text != NULL ? strlen(text) : 0);
}

void
gateway_refuse(struct http_request *r, int code, const char *text, const char *hint)
{
    struct stockade_error e = {.code = code};
    (void)snprintf(e.text, sizeof e.text, "%s", text);
    (void)snprintf(e.hint, sizeof e.hint, "%s", hint);
    gateway_answer_error(r, &e);
}

// ---- Exchanges

void
gateway_exchange_free(struct gateway_exchange *x)
{
    struct gateway *g = x->g;
    list_remove(&x->node);
    g->streams -= x->stream;
    free(x);
}

void
gateway_free_if_over(struct gateway_exchange *x)
{
    if (x->open == 0 && x->r == NULL)
        gateway_exchange_free(x);
}

static void
cancel_parts(struct gateway_exchange *x)
{
    struct stockade_error e;
    for (size_t i = 0; i < GATEWAY_PARTS; i++)
        if (x->part[i].call != 0)
            (void)stockade_cancel(x->g->s, x->part[i].call, &e);
}

static void
hold_parts(struct gateway_exchange *x, bool hold)
{
    struct stockade_error e;
    if (x->held == hold)
        return;
    x->held = hold;
    for (size_t i = 0; i < GATEWAY_PARTS; i++)
        if (x->part[i].call != 0)
            (void)stockade_hold(x->g->s, x->part[i].call, hold, &e);
}

// The HTTP side ends; what is left of the calls ends later.
static void
let_go(struct gateway_exchange *x)
{
    http_set_cookie(x->r, NULL);
    x->r = NULL;
}

void
gateway_end_stream(struct gateway_exchange *x)
{
    struct http_request *r = x->r;
    let_go(x);
    http_stream_end(r);
}

// *owned*: a message as an event of a stream; NULL: out of memory.
static char *
event_text(const char *name, const char *json, size_t *n)
{
    char *text = NULL;
    const int length = asprintf(&text, "event: %s\ndata: %s\n\n", name, json);
    *n = length > 0 ? (size_t)length : 0;
    return length > 0 ? text : NULL;
}

// An event for the client; if it does not fit, its stream ends with the reason.
static void
send_event(struct gateway_exchange *x, const char *name, const char *json)
{
    static const char cut[] = "event: cut\ndata: {\"reason\":\"slow\"}\n\n";
    size_t n = 0;
    char *auto_free text = json != NULL ? event_text(name, json, &n) : NULL;
    if (x->r == NULL)
        return;
    const bool fits = text != NULL &&
                      http_stream_waiting(x->r) + n + LAST_BYTES <= GATEWAY_STREAM_BYTES &&
                      http_stream_write(x->r, text, n);
    if (fits) {
        if (http_stream_waiting(x->r) > GATEWAY_STREAM_BYTES / 2)
            hold_parts(x, true);
        return;
    }
    x->g->count[GATEWAY_COUNT_CUT]++;
    (void)http_stream_write(x->r, cut, sizeof cut - 1);
    gateway_end_stream(x);
    cancel_parts(x);
}

void
gateway_gone(struct http_request *r)
{
    struct gateway_exchange *x = http_cookie(r);
    if (x == NULL)
        return;
    x->r = NULL;
    cancel_parts(x);
    gateway_free_if_over(x);
}

void
gateway_drained(struct http_request *r)
{
    struct gateway_exchange *x = http_cookie(r);
    if (x != NULL)
        hold_parts(x, false);
}

struct gateway_exchange *
gateway_exchange_new(struct gateway *g, struct http_request *r, bool stream)
{
    struct gateway_exchange *x = NULL;
    if (g->calls >= GATEWAY_CALLS || (stream && g->streams >= g->streams_max))
        gateway_refuse(r, STOCKADE_RESOURCE_EXHAUSTED,
                       stream ? "too many pages are open" : "too many calls are in progress",
                       stream ? "dashboard.streams of the exporter" : "");
    else if (g->closing || (x = calloc(1, sizeof *x)) == NULL)
        gateway_refuse(r, STOCKADE_UNAVAILABLE, "the exporter stops, or has no memory", "");
    if (x == NULL)
        return NULL;
    x->g = g;
    x->r = r;
    x->stream = stream;
    g->streams += stream;
    list_append(&g->exchanges, &x->node);
    for (size_t i = 0; i < GATEWAY_PARTS; i++)
        x->part[i].x = x;
    return x;
}

// ---- Calls

// The message as JSON; NULL: it is none, or memory is out. Release with stockade_free().
static const char *
message_json(struct gateway *g, const struct gateway_method *m, const struct stockade_bytes *bytes)
{
    ProtobufCMessage *message = NULL;
    struct stockade_error e;
    arena_reset(g->arena);
    if (invoke_unpack(m->response, bytes->bytes, bytes->n, g->arena, &message, &e) < 0)
        return NULL;
    return stockade_json(message);
}

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct gateway_part *p = cookie;
    struct gateway_exchange *x = p->x;
    if (x->r == NULL)
        return 1;
    const struct stockade_bytes message = {bytes, n};
    const char *json = message_json(x->g, p->method, &message);
    send_event(x, p->name, json);
    stockade_free(json);
    return x->r == NULL;
}

// A unary call has ended.
static void
answer_call(struct gateway_part *p, const struct stockade_error *why,
            const struct stockade_bytes *response)
{
    struct gateway_exchange *x = p->x;
    struct http_request *r = x->r;
    let_go(x);
    if (why != NULL) {
        gateway_answer_error(r, why);
        return;
    }
    const char *json = message_json(x->g, p->method, response);
    http_answer_text(
        r, json != NULL ? 200 : 500, content_type,
        json != NULL ? json : "{\"code\":\"INTERNAL\",\"text\":\"the response is too large\"}");
    stockade_free(json);
}

void
gateway_end_part(struct gateway_part *p, const struct stockade_error *e)
{
    struct gateway_exchange *x = p->x;
    char *auto_free text = error_text(p->name, e);
    send_event(x, "end", text);
    if (x->open == 0 && x->r != NULL)
        gateway_end_stream(x);
}

static void
on_end(void *cookie, const struct stockade_end *end)
{
    struct gateway_part *p = cookie;
    struct gateway_exchange *x = p->x;
    const struct stockade_error none = {.code = STOCKADE_OK};
    const struct stockade_error stops = {.code = STOCKADE_UNAVAILABLE,
                                         .text = "the exporter stops"};
    const struct stockade_error *why = p->x->g->closing ? &stops : end->error;
    p->call = 0;
    x->open--;
    x->g->calls--;
    if (x->r != NULL && x->stream)
        gateway_end_part(p, why != NULL ? why : &none);
    else if (x->r != NULL)
        answer_call(p, why, &end->response);
    gateway_free_if_over(x);
}

int
gateway_begin(struct gateway_part *p, const ProtobufCMessage *request, const char *bearer,
              struct stockade_error *e)
{
    struct gateway *g = p->x->g;
    char path[128];
    uint8_t *auto_free body = NULL;
    struct stockade_pair credential = {"authorization", bearer};
    struct stockade_call_options call = STOCKADE_CALL_OPTIONS_INIT;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    int rc = invoke_pack(request, &body, &r.body.n, e);
    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof path, "/stockade.v1.%s", p->method->path);
    call.deadline_ms = p->method->stream ? 0 : DEADLINE_MS;
    call.metadata = &credential;
    call.metadata_n = bearer != NULL;
    r.method = path;
    r.body.bytes = body;
    r.call = &call;
    r.on_message = p->method->stream ? on_message : NULL;
    r.cookie = a.cookie = p;
    a.on_end = on_end;
    a.credit = CREDIT;
    rc = stockade_begin(g->s, &r, &a, &p->call, e);
    if (rc < 0)
        return rc;
    p->x->open++;
    g->calls++;
    g->count[GATEWAY_COUNT_CALLS]++;
    return 0;
}

// ---- The loop

static void close_now(struct gateway *g);

static void
on_readable(uv_poll_t *poll_handle, int status, int events)
{
    struct gateway *g = poll_handle->data;
    struct stockade_error e;
    (void)status;
    (void)events;
    if (g->pumping || g->s == NULL)
        return;
    g->pumping = true;
    struct pollfd ready = {.fd = stockade_fd(g->s, &e), .events = POLLIN};
    for (int i = 0; i < TURNS_MAX; i++)
        if (stockade_pump(g->s, 0, &e) < 0 || poll(&ready, 1, 0) <= 0)
            break;
    g->pumping = false;
    if (g->closing)
        close_now(g);
}

// Says to each page that the exporter lives, and finds clients that have gone.
static void
on_alive(uv_timer_t *timer)
{
    static const char comment[] = ":\n\n";
    struct gateway *g = timer->data;
    list_each(it, &g->exchanges)
    {
        struct gateway_exchange *x = list_entry(it, struct gateway_exchange, node);
        if (x->stream && x->r != NULL && http_stream_waiting(x->r) == 0)
            (void)http_stream_write(x->r, comment, sizeof comment - 1);
    }
}

static int
begin_loop(struct gateway *g, struct err *e)
{
    struct stockade_error failed;
    int fd = stockade_fd(g->s, &failed);
    if (fd < 0)
        return err_set(e, ERR_INTERNAL, "%s", failed.text);
    int r = uv_poll_init(g->loop, &g->poll, fd);
    if (r == 0)
        r = uv_timer_init(g->loop, &g->alive);
    if (r == 0)
        r = uv_poll_start(&g->poll, UV_READABLE, on_readable);
    if (r == 0)
        r = uv_timer_start(&g->alive, on_alive, ALIVE_MS, ALIVE_MS);
    g->poll.data = g->alive.data = g;
    return r < 0 ? err_sys(e, r, "watch the broker") : 0;
}

// The handle has no credential: each call has its own.
static int
open_handle(struct gateway *g, const char *address, struct err *e)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade_error failed;
    const char *own = getenv("STOCKADE_TOKEN");
    if (own != NULL && own[0] != '\0' && asprintf(&g->own, "Bearer %s", own) < 0)
        return err_sys(e, ENOMEM, "open the broker");
    o.address = address[0] != '\0' ? address : NULL;
    o.token = "";
    if (stockade_open(&g->s, &o, &failed) < 0)
        return err_set(e, ERR_UNAVAILABLE, "%s", failed.text);
    return 0;
}

struct gateway *
gateway_new(uv_loop_t *loop, const char *address, bool open, uint32_t streams, struct err *e)
{
    struct gateway *g = calloc(1, sizeof *g);
    if (g != NULL)
        g->arena = arena_new(ARENA_BYTES);
    if (g == NULL || g->arena == NULL) {
        gateway_free(g);
        (void)err_sys(e, ENOMEM, "open the broker");
        return NULL;
    }
    g->loop = loop;
    g->open = open;
    g->streams_max = streams;
    list_init(&g->exchanges);
    if (open_handle(g, address, e) < 0 || begin_loop(g, e) < 0) {
        stockade_close(g->s);
        gateway_free(g);
        return NULL;
    }
    return g;
}

// Not inside a callback of the handle.
static void
close_now(struct gateway *g)
{
    uv_close((uv_handle_t *)&g->poll, NULL);
    uv_close((uv_handle_t *)&g->alive, NULL);
    stockade_close(take_ptr(g->s)); // ends the calls, and so the exchanges
}

void
gateway_close(struct gateway *g)
{
    if (g == NULL || g->closing)
        return;
    g->closing = true;
    if (!g->pumping)
        close_now(g);
}

void
gateway_free(struct gateway *g)
{
    if (g == NULL)
        return;
    arena_free(g->arena);
    free(g->own);
    free(g);
}

uint64_t
gateway_count(const struct gateway *g, enum gateway_count which)
{
    return which == GATEWAY_COUNT_STREAMS ? g->streams : g->count[which];
}
