// SPDX-License-Identifier: Apache-2.0
// See broker.h. The last metrics are kept for a moment, so a flood of scrapes costs the broker a few calls per second.
#include "broker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "client/results.h"
#include "stockade/v1/metrics_service.pb-c.h"

enum {
    RESPONSE_ARENA_BYTES = 8 * 1024 * 1024,
    AGAIN_MIN_MS = 100, // from a failure until the events are requested again
    AGAIN_MAX_MS = 5000,
    TURNS_MAX = 64, // of the pump, in one turn of the loop
};

struct broker {
    uv_loop_t *loop;
    struct stockade *s;
    uv_poll_t poll;
    uv_timer_t again; // events
    bool closing, pumping, rewinding;
    struct broker_numbers numbers;

    struct broker_waiter *waiting;
    bool fetching;
    uint64_t fetch_ns, fresh_until_ns;
    struct arena *arena; // of `last`
    struct stockade_metrics last;

    const struct broker_events *events;
    uint64_t again_ms;
    bool lost;            // a subscription has ended: the next one begins with what the broker kept
    uint64_t events_call; // 0: none
    uint64_t next_sequence;
    char instance[BROKER_INSTANCE];
};

static int
from_error(const struct stockade_error *from, struct err *e)
{
    return err_set(e, from->code > 0 ? (enum err_code)from->code : ERR_INTERNAL, "%s", from->text);
}

// ---- The pump

static void close_now(struct broker *b);

static void
pump(struct broker *b)
{
    struct stockade_error e;
    if (b->pumping || b->s == NULL)
        return;
    b->pumping = true;
    struct pollfd ready = {.fd = stockade_fd(b->s, &e), .events = POLLIN};
    for (int i = 0; i < TURNS_MAX; i++)
        if (stockade_pump(b->s, 0, &e) < 0 || poll(&ready, 1, 0) <= 0)
            break;
    b->pumping = false;
    if (b->closing)
        close_now(b);
}

static void
on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    pump(poll->data);
}

// ---- Metrics

static void
call_waiters(struct broker *b, const struct stockade_metrics *metrics)
{
    struct broker_waiter *w = b->waiting;
    b->waiting = NULL;
    while (w != NULL) {
        struct broker_waiter *next = w->next;
        w->next = NULL;
        w->done(w, metrics);
        w = next;
    }
}

// Unpacks the response into b->last.
static int
keep(struct broker *b, const struct stockade_bytes *bytes)
{
    ProtobufCMessage *m = NULL;
    struct stockade_error e;
    if (b->arena == NULL)
        b->arena = arena_new(RESPONSE_ARENA_BYTES);
    if (b->arena == NULL)
        return -ENOMEM;
    arena_reset(b->arena);
    b->last = (struct stockade_metrics){0};
    b->fresh_until_ns = 0;
    int rc = invoke_unpack(&stockade__v1__metrics_service_get_response__descriptor, bytes->bytes,
                           bytes->n, b->arena, &m, &e);
    return rc == 0 && !metrics_from(&b->last, b->arena, m) ? -ENOMEM : rc;
}

static void begin_events(struct broker *b);

// A broker that answers has its events too: does not wait until the next attempt is due.
static void
fetched(struct broker *b, uint64_t now_ns)
{
    b->fresh_until_ns = now_ns + BROKER_FRESH_MS * UINT64_C(1000000);
    if (b->closing || !uv_is_active((uv_handle_t *)&b->again))
        return;
    (void)uv_timer_stop(&b->again);
    begin_events(b);
}

static void
on_fetched(void *cookie, const struct stockade_end *end)
{
    struct broker *b = cookie;
    const uint64_t now_ns = uv_hrtime();
    b->fetching = false;
    b->numbers.fetch_s = (double)(now_ns - b->fetch_ns) / 1e9;
    b->numbers.connected = end->error == NULL && keep(b, &end->response) == 0;
    if (b->numbers.connected)
        fetched(b, now_ns);
    else
        b->numbers.failures++;
    call_waiters(b, b->numbers.connected ? &b->last : NULL);
}

static void
begin_fetch(struct broker *b)
{
    struct stockade_error e;
    struct stockade_call_options call = STOCKADE_CALL_OPTIONS_INIT;
    call.deadline_ms = BROKER_DEADLINE_MS;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = "/stockade.v1.MetricsService/Get";
    r.call = &call;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    a.on_end = on_fetched;
    a.cookie = b;
    b->fetching = true;
    b->fetch_ns = uv_hrtime();
    if (stockade_begin(b->s, &r, &a, NULL, &e) == 0)
        return;
    b->fetching = false;
    b->numbers.connected = false;
    b->numbers.failures++;
    call_waiters(b, NULL);
}

void
broker_fetch(struct broker *b, struct broker_waiter *w)
{
    if (b->closing || uv_hrtime() < b->fresh_until_ns) {
        w->done(w, b->closing ? NULL : &b->last);
        return;
    }
    w->next = b->waiting;
    b->waiting = w;
    if (!b->fetching)
        begin_fetch(b);
}

void
broker_unfetch(struct broker *b, struct broker_waiter *w)
{
    for (struct broker_waiter **at = &b->waiting; *at != NULL; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            return;
        }
}

// ---- Events

static int
on_event(void *cookie, const struct stockade_event *event)
{
    struct broker *b = cookie;
    b->events->on_event(b->events->cookie, event);
    b->numbers.events++;
    b->again_ms = AGAIN_MIN_MS;
    b->next_sequence = event->sequence + 1;
    (void)snprintf(b->instance, sizeof b->instance, "%s", event->instance);
    return 0;
}

static int
on_gap(void *cookie, uint64_t from, uint64_t to, uint64_t count, const char *reason)
{
    struct broker *b = cookie;
    (void)from;
    b->numbers.gaps++;
    b->numbers.missed += count;
    b->events->on_gap(b->events->cookie, to, count, reason);
    return 0;
}

static void
on_again(uv_timer_t *timer)
{
    begin_events(timer->data);
}

static void
again_later(struct broker *b)
{
    b->numbers.failures++;
    b->lost = true;
    if (b->closing)
        return;
    (void)uv_timer_start(&b->again, on_again, b->again_ms, 0);
    b->again_ms = b->again_ms * 2 < AGAIN_MAX_MS ? b->again_ms * 2 : AGAIN_MAX_MS;
}

static void
on_events_end(void *cookie, const struct stockade_end *end)
{
    struct broker *b = cookie;
    (void)end;
    b->events_call = 0;
    if (b->rewinding && !b->closing) {
        b->rewinding = false;
        (void)uv_timer_start(&b->again, on_again, 0, 0);
        return;
    }
    again_later(b);
}

void
broker_rewind(struct broker *b)
{
    struct stockade_error e;
    if (b->events_call != 0 && !b->closing)
        b->rewinding = stockade_cancel(b->s, b->events_call, &e) == 0;
}

// Continues after the last event that was taken; the broker reports what is missing.
static void
begin_events(struct broker *b)
{
    struct stockade_error e;
    struct stockade_events_options o = STOCKADE_EVENTS_OPTIONS_INIT;
    o.tenant = "*";
    o.kinds = b->events->kinds;
    o.kinds_n = b->events->kinds_n;
    (void)b->events->position(b->events->cookie, b->instance, &b->next_sequence);
    o.from_sequence = b->next_sequence != 0 ? b->next_sequence : b->lost ? 1 : 0;
    o.instance = b->next_sequence != 0 && b->instance[0] != '\0' ? b->instance : NULL;
    const struct stockade_event_handlers h = {on_event, on_gap, b};
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    a.on_end = on_events_end;
    a.cookie = b;
    if (stockade_begin_events(b->s, &o, &h, &a, &b->events_call, &e) < 0)
        again_later(b);
}

// ---- Begin and end

static int
watch(struct broker *b, struct err *e)
{
    struct stockade_error failed;
    int fd = stockade_fd(b->s, &failed);
    if (fd < 0)
        return from_error(&failed, e);
    int r = uv_poll_init(b->loop, &b->poll, fd);
    if (r == 0)
        r = uv_timer_init(b->loop, &b->again);
    if (r == 0)
        r = uv_poll_start(&b->poll, UV_READABLE, on_readable);
    b->poll.data = b->again.data = b;
    return r < 0 ? err_sys(e, r, "watch the broker") : 0;
}

struct broker *
broker_new(uv_loop_t *loop, const char *address, const struct broker_events *events, struct err *e)
{
    struct broker *auto_free b = calloc(1, sizeof *b);
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade_error failed;
    if (b == NULL) {
        (void)err_sys(e, ENOMEM, "open the broker");
        return NULL;
    }
    b->loop = loop;
    b->events = events;
    b->again_ms = AGAIN_MIN_MS;
    o.address = address[0] != '\0' ? address : NULL;
    if (stockade_open(&b->s, &o, &failed) < 0) {
        (void)from_error(&failed, e);
        return NULL;
    }
    if (watch(b, e) < 0) {
        stockade_close(b->s);
        return NULL;
    }
    if (events != NULL)
        begin_events(b);
    return take_ptr(b);
}

// Not inside a callback of the handle.
static void
close_now(struct broker *b)
{
    uv_close((uv_handle_t *)&b->poll, NULL);
    uv_close((uv_handle_t *)&b->again, NULL);
    stockade_close(take_ptr(b->s)); // ends the calls
    call_waiters(b, NULL);
}

void
broker_close(struct broker *b)
{
    if (b == NULL || b->closing)
        return;
    b->closing = true;
    if (!b->pumping)
        close_now(b);
}

void
broker_free(struct broker *b)
{
    if (b == NULL)
        return;
    arena_free(b->arena);
    free(b);
}

struct stockade *
broker_handle(struct broker *b)
{
    return b->s;
}

const struct broker_numbers *
broker_numbers(const struct broker *b)
{
    return &b->numbers;
}
