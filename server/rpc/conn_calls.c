// SPDX-License-Identifier: Apache-2.0
// See conn_private.h: the open calls of a connection, by id, and the calls that wait for room in the queue.
#include "conn_private.h"

static size_t
bucket_of(uint32_t id)
{
    return (id * 2654435761u) >> 16 & (CALL_BUCKETS - 1);
}

struct call *
conn_find(const struct conn *c, uint32_t id)
{
    struct call *call = c->buckets[bucket_of(id)];
    while (call != NULL && call->id != id)
        call = call->bucket_next;
    return call;
}

void
conn_add(struct conn *c, struct call *call)
{
    struct call **bucket = &c->buckets[bucket_of(call->id)];
    call->bucket_next = *bucket;
    *bucket = call;
    c->calls++;
    if (call->id > c->last_id) // calls up to this id count as started in a GOAWAY
        c->last_id = call->id;
}

static void
stop_waiting(struct conn *c, struct call *call)
{
    if (!call->wants_queue)
        return;
    call->wants_queue = false;
    *(call->waiting_prev != NULL ? &call->waiting_prev->waiting_next : &c->waiting_first) =
        call->waiting_next;
    *(call->waiting_next != NULL ? &call->waiting_next->waiting_prev : &c->waiting_last) =
        call->waiting_prev;
}

void
conn_remove(struct conn *c, struct call *call)
{
    struct call **link = &c->buckets[bucket_of(call->id)];
    while (*link != call)
        link = &(*link)->bucket_next;
    *link = call->bucket_next;
    c->calls--;
    if (call->counted_stream)
        c->streams--;
    call->counted_stream = false;
    stop_waiting(c, call);
}

void
conn_count_stream(struct conn *c, struct call *call)
{
    call->counted_stream = true;
    c->streams++;
}

void
conn_wait_for_room(struct conn *c, struct call *call)
{
    if (call->wants_queue)
        return;
    call->wants_queue = true;
    call->waiting_next = NULL;
    call->waiting_prev = c->waiting_last;
    *(c->waiting_last != NULL ? &c->waiting_last->waiting_next : &c->waiting_first) = call;
    c->waiting_last = call;
}

void
conn_wake_waiting(struct conn *c)
{
    while (c->waiting_first != NULL && !conn_is_full(c) && conn_has_turn(c)) {
        struct call *call = c->waiting_first;
        stop_waiting(c, call);
        call_room(call);
    }
}
