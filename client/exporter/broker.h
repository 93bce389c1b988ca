// SPDX-License-Identifier: Apache-2.0
// The exporter's connection to the broker: one handle of libstockade on the loop, which never waits.
//
//   broker_fetch()  -> MetricsService.Get -> done(metrics)         one call at a time, which later waiters share
//   events          -> broker_events.on_event, on_gap               begun again, after a pause, when they end
//
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "client/stockade.h"

struct broker;

enum { BROKER_INSTANCE = 17 };

// What the exporter does with events.
struct broker_events {
    void (*on_event)(void *cookie, const struct stockade_event *event);
    // Events that are missing, up to this one; to 0: to the end of an earlier run of the broker; count 0: unknown.
    void (*on_gap)(void *cookie, uint64_t to, uint64_t count, const char *reason);
    // The event to begin with, and the run of the broker that it belongs to; "": the current one. False: unknown, so with the
    // event behind the last one that came.
    bool (*position)(void *cookie, char instance[BROKER_INSTANCE], uint64_t *next);
    const char *const *kinds; // only these
    size_t kinds_n;           // 0: all
    void *cookie;
};

struct broker_numbers {
    bool connected;    // the last call succeeded
    uint64_t failures; // calls and subscriptions that failed
    uint64_t events, gaps, missed;
    double fetch_s; // time that the last fetch took
};

// address "": the default. events NULL: none are read. Borrowed.
struct broker *broker_new(uv_loop_t *loop, const char *address, const struct broker_events *events,
                          struct err *e);

// Closes its handles on the loop: run the loop until it is empty, then free it with broker_free(). Waiters of a fetch are
// called with NULL.
void broker_close(struct broker *b);
void broker_free(struct broker *b);

// Its handle of libstockade, for other calls on the same loop. Borrowed until broker_close().
struct stockade *broker_handle(struct broker *b);

// Requests the events again, from events.position on. Not inside a callback.
void broker_rewind(struct broker *b);

// One who waits for metrics. Embedded in its owner.
struct broker_waiter {
    // metrics: borrowed for the call. NULL: the broker does not answer.
    void (*done)(struct broker_waiter *w, const struct stockade_metrics *metrics);
    struct broker_waiter *next;
};

// Gets the metrics: those of a fetch that is at most BROKER_FRESH_MS old, or of the next one. `done` is called once, perhaps
// before this returns.
enum { BROKER_FRESH_MS = 100, BROKER_DEADLINE_MS = 5000 };
void broker_fetch(struct broker *b, struct broker_waiter *w);

// The waiter is not called any more.
void broker_unfetch(struct broker *b, struct broker_waiter *w);

const struct broker_numbers *broker_numbers(const struct broker *b);
