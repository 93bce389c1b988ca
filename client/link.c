// SPDX-License-Identifier: Apache-2.0
// See link.h. Input is hostile until wire_unpack() has scanned it: the length is checked before memory is allocated for
// it, and a frame is unpacked into one bounded arena, which is reused.
#include "link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "proto/now.h"
#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "dial.h"
#include "stockade/v1/wire.pb-c.h"

enum {
    READ_BYTES = 64 * 1024,
    READS_MAX = 16, // per link_receive, so that a flood does not hold the lock
    HEADER_BYTES_MAX = 9,
};

// A queued frame.
struct out {
    struct out *next;
    uint8_t *bytes;
    size_t n, sent;
};

struct link {
    struct dial *dial;      // while it connects; then NULL
    struct channel channel; // its fd is -1 until then
    unsigned number;        // of the socket
    bool ipc;
    struct out *first, *last;
    size_t queued; // bytes in them
    uint8_t *in;   // bytes of an incomplete frame
    size_t in_n, in_max;
    struct arena *arena;
};

uint64_t
link_now_ns(void)
{
    return (uint64_t)now_ns(CLOCK_MONOTONIC);
}

// 1: connected; 0: wait; negative: it failed.
static int
go_on_connecting(struct link *l, struct err *e)
{
    int rc = dial_step(l->dial, &l->channel, e);
    l->number = dial_sockets(l->dial);
    if (rc > 0) {
        dial_free(l->dial);
        l->dial = NULL;
    }
    return rc;
}

int
link_open(struct link **out, const struct address *a, uint64_t deadline_ns, struct err *e)
{
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return err_sys(e, ENOMEM, "connect");
    l->channel.fd = -1;
    l->ipc = a->ipc;
    l->in_max = READ_BYTES;
    l->in = malloc(l->in_max);
    l->arena = arena_new(WIRE_ARENA_BYTES_MAX);
    int rc = 0;
    if (l->in == NULL || l->arena == NULL)
        rc = err_sys(e, ENOMEM, "connect");
    if (rc == 0)
        rc = dial_begin(&l->dial, a, deadline_ns, e);
    if (rc == 0)
        rc = go_on_connecting(l, e);
    if (rc < 0) {
        link_close(l);
        return rc;
    }
    *out = l;
    return 0;
}

static void
drop_first(struct link *l)
{
    struct out *o = l->first;
    l->first = o->next;
    if (l->first == NULL)
        l->last = NULL;
    l->queued -= o->n;
    free(o->bytes);
    free(o);
}

void
link_close(struct link *l)
{
    if (l == NULL)
        return;
    while (l->first != NULL)
        drop_first(l);
    dial_free(l->dial);
    channel_close(&l->channel);
    arena_free(l->arena);
    free(l->in);
    free(l);
}

int
link_fd(const struct link *l)
{
    return l->dial != NULL ? dial_fd(l->dial) : l->channel.fd;
}

short
link_events(const struct link *l)
{
    if (l->dial != NULL)
        return dial_events(l->dial);
    return l->first != NULL ? POLLIN | POLLOUT : POLLIN;
}

uint64_t
link_due_ns(const struct link *l)
{
    if (l->dial != NULL)
        return dial_due_ns(l->dial);
    return channel_pending(&l->channel) ? 1 : 0; // at once
}

unsigned
link_socket_number(const struct link *l)
{
    return l->number;
}

static int
lost(struct err *e, const char *what)
{
    int rc = err_set(e, ERR_UNAVAILABLE, "%s", what);
    err_detail(e, "CONNECTION_LOST", NULL, NULL);
    return rc;
}

// Sends queued bytes, as many as the socket accepts.
static int
flush(struct link *l, struct err *e)
{
    while (l->first != NULL) {
        struct out *o = l->first;
        ssize_t n = channel_send(&l->channel, o->bytes + o->sent, o->n - o->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0)
            return lost(e, "the connection to the broker broke while sending");
        o->sent += (size_t)n;
        if (o->sent == o->n)
            drop_first(l);
    }
    return 0;
}

int
link_send(struct link *l, uint32_t id, const ProtobufCMessage *frame, bool urgent, struct err *e)
{
    if (l->queued > LINK_QUEUE_BYTES_MAX + (urgent ? (size_t)LINK_URGENT_BYTES_MAX : 0)) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "too many bytes wait to be sent to the broker");
        return -EAGAIN;
    }
    struct out *o = calloc(1, sizeof *o);
    if (o == NULL)
        return err_sys(e, ENOMEM, "send a frame");
    o->bytes = wire_pack_frame(l->ipc, id, frame, &o->n);
    if (o->bytes == NULL) {
        free(o);
        return err_set(e, ERR_INVALID_ARGUMENT, "the request is larger than %d bytes",
                       WIRE_FRAME_BYTES_MAX);
    }
    if (l->last != NULL)
        l->last->next = o;
    else
        l->first = o;
    l->last = o;
    l->queued += o->n;
    return l->dial != NULL ? 0 : flush(l, e);
}

typedef int frame_fn(void *cookie, uint32_t id, const struct Stockade__V1__Frame *f, struct err *e);

static int
one_frame(struct link *l, const uint8_t *body, size_t n, frame_fn *on_frame, void *cookie,
          struct err *e)
{
    uint32_t id =
        (uint32_t)body[0] << 24 | (uint32_t)body[1] << 16 | (uint32_t)body[2] << 8 | body[3];
    ProtobufCMessage *m = NULL;
    arena_reset(l->arena);
    int rc = wire_unpack(&stockade__v1__frame__descriptor, body + 4, n - 4, l->arena, &m, e);
    if (rc < 0) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "the broker sent an invalid frame");
    }
    return on_frame(cookie, id, (const Stockade__V1__Frame *)m, e);
}

// Handles every complete frame in the buffer, and makes room for the incomplete one. Returns the number of frames.
static int
take_frames(struct link *l, frame_fn *on_frame, void *cookie, struct err *e)
{
    size_t at = 0, header = sp_header_bytes(l->ipc), want = 0;
    int frames = 0;
    for (;; frames++) {
        uint64_t body = 0;
        int rc = sp_header_read(l->in + at, l->in_n - at, l->ipc, &body);
        if (rc < 0)
            return err_set(e, ERR_DATA_LOSS, "the broker sent an invalid frame: bad length");
        if (rc == 0) {
            want = HEADER_BYTES_MAX;
            break;
        }
        want = header + (size_t)body;
        if (l->in_n - at < want)
            break;
        rc = one_frame(l, l->in + at + header, (size_t)body, on_frame, cookie, e);
        if (rc < 0)
            return rc;
        at += want;
    }
    memmove(l->in, l->in + at, l->in_n - at);
    l->in_n -= at;
    if (want <= l->in_max)
        return frames;
    uint8_t *grown = realloc(l->in, want);
    if (grown == NULL)
        return err_sys(e, ENOMEM, "receive a frame of %zu bytes", want);
    l->in = grown;
    l->in_max = want;
    return frames;
}

static int
receive(struct link *l, frame_fn *on_frame, void *cookie, struct err *e)
{
    int frames = 0;
    for (int i = 0; i < READS_MAX; i++) {
        size_t room = l->in_max - l->in_n;
        ssize_t n = channel_receive(&l->channel, l->in + l->in_n, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return frames;
        if (n < 0)
            return lost(e, "the connection to the broker broke");
        if (n == 0)
            return lost(e, "the broker closed the connection");
        l->in_n += (size_t)n;
        int rc = take_frames(l, on_frame, cookie, e);
        if (rc < 0)
            return rc;
        frames += rc;
        if ((size_t)n < room && !channel_pending(&l->channel))
            return frames;
    }
    return frames;
}

int
link_work(struct link *l, frame_fn *on_frame, void *cookie, struct err *e)
{
    if (l->dial != NULL) {
        int rc = go_on_connecting(l, e);
        if (rc <= 0)
            return rc;
    }
    int frames =
        receive(l, on_frame, cookie, e); // first, so that what came before the end is not lost
    int rc = frames < 0 ? frames : flush(l, e);
    return rc < 0 ? rc : frames;
}
