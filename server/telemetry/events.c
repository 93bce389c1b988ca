// SPDX-License-Identifier: Apache-2.0
// See events.h.
#include "events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "proto/now.h"
#include "events_kept.h"
#include "server/base/list.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"

struct events {
    uv_loop_t *loop;
    char instance[EVENTS_INSTANCE];
    uint64_t last;
    struct events_kept kept;
    struct list readers, dirty;
    uint32_t readers_n;
    struct loop_timer *wake;
    struct event_sinks sinks;
};

// An event in a subscriber's ring, and the gap before it.
struct entry {
    struct event_packed *event;
    struct event_gap gap;
};

struct events_reader {
    struct list node, dirty;
    struct events *hub;
    struct event_filter filter;
    char owner[32];
    void (*wake)(void *cookie);
    void *cookie;
    uint64_t replay;         // the next kept event to read, by number; 0: only new events
    uint64_t forgotten;      // it knows which events up to this number are not kept any more
    struct event_gap missed; // the gap after the ring's last event
    size_t bytes;
    uint32_t first, n;
    struct entry ring[EVENTS_QUEUED];
};

static void
name_kinds(void)
{
    _Static_assert((int)EVENT_KIND_MAX < (int)METRIC_VALUES_KIND, "a value for each kind");
    for (uint32_t i = 1; i <= EVENT_KIND_MAX; i++)
        if (protobuf_c_enum_descriptor_get_value(&stockade__v1__event_kind__descriptor, (int)i) !=
            NULL)
            metrics_name_value(METRIC_BY_KIND, i, event_kind_name(i));
}

struct events *
events_new(uv_loop_t *loop)
{
    struct events *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        free(h);
        return NULL;
    }
    (void)snprintf(h->instance, sizeof h->instance, "%016" PRIx64, random);
    h->loop = loop;
    events_kept_init(&h->kept);
    list_init(&h->readers);
    list_init(&h->dirty);
    event_sinks_init(&h->sinks);
    name_kinds();
    return h;
}

void
events_free(struct events *h)
{
    if (h == NULL)
        return;
    loop_timer_stop(&h->wake);
    events_kept_clear(&h->kept);
    free(h);
}

const char *
events_instance(const struct events *h)
{
    return h->instance;
}

uint64_t
events_last(const struct events *h)
{
    return h->last;
}

int
events_sink_add(struct events *h, struct events_sink *s, struct err *e)
{
    return event_sinks_add(&h->sinks, s, e);
}

void
events_sink_remove(struct events *h, struct events_sink *s)
{
    event_sinks_remove(&h->sinks, s);
}

// ---- names

const char *
event_kind_name(uint32_t kind)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&stockade__v1__event_kind__descriptor, (int)kind);
    return v != NULL ? v->name + strlen("EVENT_KIND_") : "OTHER";
}

const char *
event_severity_name(uint32_t severity)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&stockade__v1__severity__descriptor, (int)severity);
    return v != NULL ? v->name + strlen("SEVERITY_") : "OTHER";
}

// ---- packing

static uint32_t
put_varint(uint8_t *out, size_t v)
{
    uint32_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

static void
copy_id(char *to, size_t n, const char *from)
{
    size_t have = strnlen(from, n - 1);
    memcpy(to, from, have);
    to[have] = '\0';
}

static struct event_packed *
pack(const Stockade__V1__Event *m)
{
    uint8_t head[10];
    size_t body = protobuf_c_message_get_packed_size(&m->base);
    if (body > EVENT_BYTES)
        return NULL;
    uint32_t head_n = put_varint(head, body);
    struct event_packed *e = malloc(sizeof *e + head_n + body);
    if (e == NULL)
        return NULL;
    *e = (struct event_packed){
        .refs = 1,
        .n = head_n + (uint32_t)body,
        .head_n = head_n,
        .kind = (uint32_t)m->kind,
        .severity = (uint32_t)m->severity,
        .sequence = m->sequence,
    };
    copy_id(e->sandbox_id, sizeof e->sandbox_id, m->sandbox_id);
    copy_id(e->process_id, sizeof e->process_id, m->process_id);
    copy_id(e->tenant, sizeof e->tenant, m->tenant);
    memcpy(e->bytes, head, head_n);
    (void)protobuf_c_message_pack(&m->base, e->bytes + head_n);
    return e;
}

// ---- filters

bool
event_passes(const struct event_filter *f, const struct event_packed *e)
{
    if (e->severity < f->severity || (f->tenant[0] != '\0' && strcmp(f->tenant, e->tenant) != 0) ||
        (f->process_id[0] != '\0' && strcmp(f->process_id, e->process_id) != 0))
        return false;
    if ((f->kinds[0] | f->kinds[1]) != 0 &&
        (e->kind > EVENT_KIND_MAX || (f->kinds[e->kind / 64] >> e->kind % 64 & 1) == 0))
        return false;
    for (uint32_t i = 0; i < f->sandboxes_n; i++)
        if (strcmp(f->sandbox_id[i], e->sandbox_id) == 0)
            return true;
    return f->sandboxes_n == 0;
}

static void
on_wake(void *cookie)
{
    struct events *h = cookie;
    while (!list_empty(&h->dirty)) {
        struct events_reader *r = list_entry(h->dirty.next, struct events_reader, dirty);
        list_remove(&r->dirty);
        r->wake(r->cookie);
    }
}

static void
mark(struct events_reader *r)
{
    struct events *h = r->hub;
    if (list_empty(&h->dirty))
        (void)loop_timer_start(h->loop, &h->wake, 0, on_wake, h);
    list_remove(&r->dirty);
    list_append(&h->dirty, &r->dirty);
}

void
events_wake_all(struct events *h)
{
    list_each(it, &h->readers) mark(list_entry(it, struct events_reader, node));
}

static void
miss(struct event_gap *g, uint64_t sequence, const char *reason)
{
    if (g->from == 0)
        *g = (struct event_gap){.from = sequence, .reason = reason};
    g->to = sequence;
    g->count++;
}

static void
give(struct events_reader *r, struct event_packed *e)
{
    if (r->replay == 0) {
        if (r->n == EVENTS_QUEUED || r->bytes + e->n > EVENTS_QUEUED_BYTES) {
            miss(&r->missed, e->sequence, "slow-reader");
            metrics_add(METRIC_EVENTS_MISSED, 1);
            return;
        }
        r->ring[(r->first + r->n++) % EVENTS_QUEUED] = (struct entry){e, r->missed};
        r->missed = (struct event_gap){0};
        r->bytes += e->n;
        e->refs++;
    }
    mark(r);
}

void
events_publish(struct events *h, Stockade__V1__Event *m)
{
    Google__Protobuf__Timestamp now = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    m->sequence = ++h->last;
    m->instance = h->instance;
    if (m->time == NULL) {
        const int64_t ns = now_ns(CLOCK_REALTIME);
        now.seconds = ns / 1000000000;
        now.nanos = (int32_t)(ns % 1000000000);
        m->time = &now;
    }
    struct event_packed *e = pack(m);
    if (m->time == &now)
        m->time = NULL;
    if (e == NULL) {
        metrics_add(METRIC_EVENTS_FAILED, 1);
        return;
    }
    metrics_add_by(METRIC_EVENTS, e->kind, 0, 1);
    events_kept_add(&h->kept, e);
    list_each(it, &h->readers)
    {
        struct events_reader *r = list_entry(it, struct events_reader, node);
        if (event_passes(&r->filter, e))
            give(r, e);
    }
    event_sinks_give(&h->sinks, e);
    event_drop(e);
}

// ---- subscribers

static int
check_room(const struct events *h, const char *owner, struct err *e)
{
    uint32_t own = 0;
    for (struct list *it = h->readers.next; it != &h->readers; it = it->next)
        own += strcmp(list_entry(it, struct events_reader, node)->owner, owner) == 0;
    if (h->readers_n < EVENTS_READERS && own < EVENTS_READERS_PER_TENANT)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "%u subscriptions of %s, %u in total; at most %d and %d are allowed", own,
                    owner, h->readers_n, EVENTS_READERS_PER_TENANT, EVENTS_READERS);
    err_detail(e, "SUBSCRIPTIONS", owner, "close one of them, or use one for several sandboxes");
    return r;
}

static int
check_number(const struct events *h, uint64_t from, struct err *e)
{
    if (from <= h->last + 1)
        return 0;
    int r = err_set(e, ERR_OUT_OF_RANGE, "event %llu does not exist; the last one is %llu",
                    (unsigned long long)from, (unsigned long long)h->last);
    err_detail(
        e, "SEQUENCE", "from_sequence",
        "if the broker was restarted since you received this number, pass the instance that it "
        "belongs to");
    return r;
}

int
events_subscribe(struct events *h, const struct event_filter *f, uint64_t from,
                 const char *instance, const struct events_listener *l, struct events_reader **out,
                 struct err *e)
{
    bool earlier = from != 0 && instance[0] != '\0' && strcmp(instance, h->instance) != 0;
    int failed = earlier ? 0 : check_number(h, from, e);
    if (failed == 0)
        failed = check_room(h, l->owner, e);
    if (failed < 0)
        return failed;
    struct events_reader *r = calloc(1, sizeof *r);
    if (r == NULL)
        return err_sys(e, ENOMEM, "subscribe");
    r->hub = h;
    r->filter = *f;
    copy_id(r->owner, sizeof r->owner, l->owner);
    r->wake = l->wake;
    r->cookie = l->cookie;
    if (earlier)
        r->missed = (struct event_gap){.from = from, .reason = "restarted"};
    from = earlier ? 1 : from;
    r->replay = from <= h->last ? from : 0;
    list_init(&r->dirty);
    list_append(&h->readers, &r->node);
    h->readers_n++;
    metrics_move(METRIC_SUBSCRIPTIONS, 0, 1);
    if (r->replay != 0 || earlier)
        mark(r);
    *out = r;
    return 0;
}

void
events_unsubscribe(struct events_reader *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->n; i++)
        event_drop(r->ring[(r->first + i) % EVENTS_QUEUED].event);
    list_remove(&r->node);
    list_remove(&r->dirty);
    r->hub->readers_n--;
    metrics_move(METRIC_SUBSCRIPTIONS, 0, -1);
    free(r);
}

// Notes a gap for events from r->replay on that are not kept any more, until the subscriber has received it. With
// several tenants, some events of that range may still follow.
static void
note_forgotten(struct events_reader *r)
{
    uint64_t forgotten = events_kept_forgotten(&r->hub->kept, r->filter.tenant);
    if (forgotten < r->replay || forgotten <= r->forgotten)
        return;
    r->forgotten = forgotten;
    // otherwise all events of an earlier run are missing anyway
    if (r->missed.from == 0 || r->missed.to != 0)
        r->missed = (struct event_gap){r->missed.from != 0 ? r->missed.from : r->replay, forgotten,
                                       0, "forgotten"};
}

// Reads kept events from r->replay on. After the last one, new events are put into the subscriber's ring.
static bool
peek_kept(struct events_reader *r, struct events_batch *out)
{
    struct events *h = r->hub;
    struct events_walk walk;
    const struct event_packed *e = NULL;
    size_t bytes = 0;
    note_forgotten(r);
    out->gap = r->missed;
    events_walk_begin(&walk, &h->kept, r->filter.tenant, r->replay);
    while (out->n < EVENTS_BATCH && (e = events_walk_next(&walk)) != NULL) {
        if (!event_passes(&r->filter, e))
            continue;
        if (bytes + e->n > EVENTS_BATCH_BYTES)
            break;
        bytes += e->n;
        out->event[out->n++] = e;
    }
    if (out->n == 0)
        r->replay = out->gap.from == 0 ? 0 : h->last + 1;
    return out->n > 0 || out->gap.from != 0;
}

bool
events_peek(struct events_reader *r, struct events_batch *out)
{
    size_t bytes = 0;
    out->gap = (struct event_gap){0};
    out->n = 0;
    if (r->replay != 0 && peek_kept(r, out))
        return true;
    if (r->replay != 0)
        return false;
    out->gap = r->n > 0 ? r->ring[r->first].gap : r->missed;
    while (out->n < r->n && out->n < EVENTS_BATCH) {
        const struct entry *entry = &r->ring[(r->first + out->n) % EVENTS_QUEUED];
        if (bytes + entry->event->n > EVENTS_BATCH_BYTES || (out->n > 0 && entry->gap.from != 0))
            break;
        bytes += entry->event->n;
        out->event[out->n++] = entry->event;
    }
    return out->n > 0 || out->gap.from != 0;
}

bool
events_caught_up(const struct events_reader *r)
{
    return r->replay == 0 && r->n == 0 && r->missed.from == 0;
}

void
events_taken(struct events_reader *r, const struct events_batch *b)
{
    if (r->replay != 0) {
        r->missed = (struct event_gap){0};
        if (b->n > 0)
            r->replay = b->event[b->n - 1]->sequence + 1;
        if (r->replay > r->hub->last)
            r->replay = 0;
        return;
    }
    if (b->n == 0)
        r->missed = (struct event_gap){0};
    for (uint32_t i = 0; i < b->n; i++) {
        struct entry *entry = &r->ring[r->first];
        r->bytes -= entry->event->n;
        event_drop(entry->event);
        r->first = (r->first + 1) % EVENTS_QUEUED;
        r->n--;
    }
}
