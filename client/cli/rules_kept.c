// SPDX-License-Identifier: Apache-2.0
// See rules.h: a dry run of rules over the events that the broker keeps.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "cli.h"
#include "json.h"
#include "rules.h"
#include "text.h"

enum { MESSAGE_MAX = 16 * 1024 * 1024 };

struct replay {
    const struct ruling *r;
    struct detect *d;
    struct arena *arena;
    json_t *found; // NULL: as text
    uint64_t events, findings, missed;
    const Stockade__V1__Event *event; // the current one
    int rc;
};

static void
on_found(void *cookie, const struct detect_finding *f)
{
    struct replay *p = cookie;
    char text[3 * DETECT_TEXT];
    if (f->why == DETECT_REPEATED)
        return;
    p->findings++;
    (void)text_clean(f->text, text, sizeof text);
    if (p->found != NULL)
        (void)json_array_append_new(
            p->found,
            json_pack("{ss ss ss ss sI sI}", "rule", f->rule->id, "sandbox_id",
                      p->event->sandbox_id, "process_id", p->event->process_id, "text", text,
                      "score", (json_int_t)f->score, "sequence", (json_int_t)p->event->sequence));
    else
        (void)printf("event %" PRIu64 "  %s  %s: %s\n", p->event->sequence, p->event->sandbox_id,
                     f->rule->id, text);
}

// Those that the files change; the findings of the others are there already.
static void
on_tripwire(void *cookie, const struct detect_finding *f)
{
    const struct replay *p = cookie;
    struct detect_view v;
    if (detect_view(p->d, f->index, &v) && strcmp(v.file, detect_tripwire_file().name) != 0)
        on_found(cookie, f);
}

static void
give(struct replay *p, const Stockade__V1__Event *m)
{
    struct detect_event ev;
    const uint64_t now_ns = m->time != NULL ? (uint64_t)m->time->seconds * 1000000000 +
                                                  (uint64_t)(uint32_t)m->time->nanos
                                            : 0;
    detect_fill(m, now_ns, &ev);
    p->event = m;
    p->events++;
    detect_event(p->d, &ev, on_found, p);
    detect_tripwires_dry(p->d, &ev, on_tripwire, p);
}

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct replay *p = cookie;
    struct err e;
    ProtobufCMessage *m = NULL;
    arena_reset(p->arena);
    p->rc = wire_unpack(&stockade__v1__subscribe_response__descriptor, bytes, n, p->arena, &m, &e);
    if (p->rc < 0 || m == NULL)
        return 1;
    const Stockade__V1__SubscribeResponse *part = (const Stockade__V1__SubscribeResponse *)m;
    p->missed += part->gap != NULL ? part->gap->count : 0;
    for (size_t i = 0; i < part->n_events; i++)
        give(p, part->events[i]);
    return 0;
}

static int
report(const struct ruling *r, struct replay *p)
{
    struct detect_view v;
    json_t *rules = json_array();
    for (uint32_t i = 0; rules_next(p->d, &i, &v); i++)
        (void)json_array_append_new(
            rules,
            json_pack("{ss sI sI sI sI sI}", "id", v.rule->id, "compared", (json_int_t)v.looked_at,
                      "matched", (json_int_t)v.matched, "excepted", (json_int_t)v.excepted,
                      "findings", (json_int_t)v.findings, "displaced", (json_int_t)v.displaced));
    if (r->o->json)
        return json_put(json_pack("{sI sI so so}", "events", (json_int_t)p->events, "missed",
                                  (json_int_t)p->missed, "rules", rules, "findings", p->found));
    json_decref(rules);
    (void)printf("%" PRIu64 " %s, %" PRIu64 " %s\n", p->events,
                 plural(p->events, "event", "events"), p->findings,
                 plural(p->findings, "finding", "findings"));
    if (p->missed > 0)
        (void)printf("%" PRIu64 " %s no longer kept\n", p->missed,
                     plural(p->missed, "event is", "events are"));
    return EXIT_OK;
}

int
rules_over_kept(const struct ruling *r, struct detect *d)
{
    Stockade__V1__SubscribeRequest m = STOCKADE__V1__SUBSCRIBE_REQUEST__INIT;
    struct stockade_request q = STOCKADE_REQUEST_INIT;
    struct arena *auto_arena arena = arena_new(MESSAGE_MAX);
    struct replay p = {.r = r, .d = d, .arena = arena};
    struct stockade_error e;
    uint8_t body[64];
    int code = EXIT_OK;
    if (arena == NULL) {
        e = (struct stockade_error){.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
        return cli_fail(r->c, "", &e);
    }
    struct stockade *s = cli_open(r->c, r->o, &code);
    if (s == NULL)
        return code;
    m.from_sequence = 1;
    m.kept_only = 1;
    q.method = "/stockade.v1.TelemetryService/Subscribe";
    q.body = (struct stockade_bytes){body, stockade__v1__subscribe_request__pack(&m, body)};
    q.on_message = on_message;
    q.cookie = &p;
    p.found = r->o->json ? json_array() : NULL;
    const int rc = stockade_call(s, &q, NULL, &e);
    if (rc < 0 || p.rc < 0) {
        if (p.rc < 0) {
            e = (struct stockade_error){.code = STOCKADE_DATA_LOSS};
            (void)snprintf(e.text, sizeof e.text, "the broker sent an event that is not valid");
        }
        code = cli_fail(r->c, "", &e);
        json_decref(p.found);
    } else {
        code = report(r, &p);
    }
    stockade_close(s);
    return code;
}
