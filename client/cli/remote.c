// SPDX-License-Identifier: Apache-2.0
// See remote.h. A transfer is a stream and calls of Send beside it, all in this thread:
//
//   OpenWrite -> transfer id        Send, Send, Send (at most WINDOW without an answer) ... Finish        last message, end
#include "remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/wire.h"

enum { ARENA_MAX = 512 * 1024, PIECE = 60 * 1024, WINDOW = 12 };

static int
pack(const ProtobufCMessage *m, uint8_t **out, struct stockade_bytes *body,
     struct stockade_error *e)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);
    if (bytes == NULL) {
        *e = (struct stockade_error){.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
        return -ENOMEM;
    }
    (void)protobuf_c_message_pack(m, bytes);
    *body = (struct stockade_bytes){bytes, n};
    *out = bytes;
    return 0;
}

static int
unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t n, struct arena *a,
       ProtobufCMessage **out, struct stockade_error *e)
{
    struct err why;
    if (wire_unpack(type, bytes, n, a, out, &why) == 0)
        return 0;
    *e = (struct stockade_error){.code = STOCKADE_DATA_LOSS};
    (void)snprintf(e->text, sizeof e->text, "read a response: %s", why.text);
    return -EPROTO;
}

int
remote_call(struct stockade *s, const char *method, const ProtobufCMessage *request,
            const ProtobufCMessageDescriptor *response, struct arena *a, ProtobufCMessage **out,
            struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    const struct stockade_bytes *answer = NULL;
    uint8_t *auto_free body = NULL;
    ProtobufCMessage *m = NULL;
    if (pack(request, &body, &r.body, e) < 0)
        return -ENOMEM;
    r.method = method;
    int rc = stockade_call(s, &r, &answer, e);
    if (rc < 0)
        return rc;
    rc = unpack(response, answer->bytes, answer->n, a, &m, e);
    stockade_free(answer);
    if (rc == 0 && out != NULL)
        *out = m;
    return rc;
}

int
remote_watch(struct stockade *s, const char *method, const ProtobufCMessage *request,
             int (*on_message)(void *cookie, const void *bytes, size_t n), void *cookie,
             struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    uint8_t *auto_free body = NULL;
    if (pack(request, &body, &r.body, e) < 0)
        return -ENOMEM;
    r.method = method;
    r.on_message = on_message;
    r.cookie = cookie;
    return stockade_call(s, &r, NULL, e);
}

// ---- a stream of bytes

struct reading {
    const struct remote_sink *sink;
    struct arena *arena;
    bool counted; // an archive: its last message came
    uint64_t skipped;
    bool binary; // a patch
    bool stopped;
    int rc; // of a message that is not valid
    struct stockade_error error;
};

static int
on_read(void *cookie, const void *bytes, size_t n)
{
    struct reading *r = cookie;
    ProtobufCMessage *m = NULL;
    arena_reset(r->arena);
    r->rc = unpack(&stockade__v1__file_service_read_response__descriptor, bytes, n, r->arena, &m,
                   &r->error);
    if (r->rc < 0)
        return 1;
    const Stockade__V1__FileServiceReadResponse *part =
        (const Stockade__V1__FileServiceReadResponse *)m;
    if (part->file != NULL && r->sink->about != NULL)
        r->stopped = r->sink->about(r->sink->cookie, part->file) != 0;
    if (!r->stopped && part->data.len > 0)
        r->stopped = r->sink->data(r->sink->cookie, part->data.data, part->data.len) != 0;
    return r->stopped;
}

static int
on_archive(void *cookie, const void *bytes, size_t n)
{
    struct reading *r = cookie;
    ProtobufCMessage *m = NULL;
    arena_reset(r->arena);
    r->rc = unpack(&stockade__v1__file_service_download_response__descriptor, bytes, n, r->arena,
                   &m, &r->error);
    if (r->rc < 0)
        return 1;
    const Stockade__V1__FileServiceDownloadResponse *part =
        (const Stockade__V1__FileServiceDownloadResponse *)m;
    if (part->counts != NULL) {
        r->counted = true;
        r->skipped = part->counts->skipped;
    }
    if (part->data.len > 0)
        r->stopped = r->sink->data(r->sink->cookie, part->data.data, part->data.len) != 0;
    return r->stopped;
}

static int
on_pushed(void *cookie, const void *bytes, size_t n)
{
    struct reading *r = cookie;
    ProtobufCMessage *m = NULL;
    arena_reset(r->arena);
    r->rc = unpack(&stockade__v1__template_service_push_response__descriptor, bytes, n, r->arena,
                   &m, &r->error);
    if (r->rc < 0)
        return 1;
    const ProtobufCBinaryData *data = &((const Stockade__V1__TemplateServicePushResponse *)m)->data;
    if (data->len > 0)
        r->stopped = r->sink->data(r->sink->cookie, data->data, data->len) != 0;
    return r->stopped;
}

static int
on_patch(void *cookie, const void *bytes, size_t n)
{
    struct reading *r = cookie;
    ProtobufCMessage *m = NULL;
    arena_reset(r->arena);
    r->rc = unpack(&stockade__v1__snapshot_service_diff_file_response__descriptor, bytes, n,
                   r->arena, &m, &r->error);
    if (r->rc < 0)
        return 1;
    const Stockade__V1__SnapshotServiceDiffFileResponse *part =
        (const Stockade__V1__SnapshotServiceDiffFileResponse *)m;
    r->binary = r->binary || part->binary;
    if (part->data.len > 0)
        r->stopped = r->sink->data(r->sink->cookie, part->data.data, part->data.len) != 0;
    return r->stopped;
}

static int
stream(struct stockade *s, struct stockade_request *r, const ProtobufCMessage *request,
       struct reading *reading, struct stockade_error *e)
{
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    uint8_t *auto_free body = NULL;
    if (a == NULL || pack(request, &body, &r->body, e) < 0)
        return -ENOMEM;
    reading->arena = a;
    r->cookie = reading;
    int rc = stockade_call(s, r, NULL, e);
    if (reading->rc < 0) {
        *e = reading->error;
        return reading->rc;
    }
    return reading->stopped ? 1 : rc;
}

int
remote_read(struct stockade *s, const Stockade__V1__FileServiceReadRequest *request,
            const struct remote_sink *sink, struct stockade_error *e)
{
    struct reading reading = {.sink = sink};
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = REMOTE_METHOD("Read");
    r.on_message = on_read;
    return stream(s, &r, &request->base, &reading, e);
}

int
remote_download(struct stockade *s, const Stockade__V1__FileServiceDownloadRequest *request,
                const struct remote_sink *sink, uint64_t *skipped, struct stockade_error *e)
{
    struct reading reading = {.sink = sink};
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = REMOTE_METHOD("Download");
    r.on_message = on_archive;
    int rc = stream(s, &r, &request->base, &reading, e);
    *skipped = reading.skipped;
    if (rc != 0 || reading.counted)
        return rc;
    *e = (struct stockade_error){.code = STOCKADE_DATA_LOSS,
                                 .text = "the archive ended without a result"};
    return -EPROTO;
}

int
remote_push(struct stockade *s, const Stockade__V1__TemplateServicePushRequest *request,
            const struct remote_sink *sink, struct stockade_error *e)
{
    struct reading reading = {.sink = sink};
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = "/stockade.v1.TemplateService/Push";
    r.on_message = on_pushed;
    return stream(s, &r, &request->base, &reading, e);
}

int
remote_patch(struct stockade *s, const Stockade__V1__SnapshotServiceDiffFileRequest *request,
             const struct remote_sink *sink, bool *binary, struct stockade_error *e)
{
    struct reading reading = {.sink = sink};
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    r.method = "/stockade.v1.SnapshotService/DiffFile";
    r.on_message = on_patch;
    int rc = stream(s, &r, &request->base, &reading, e);
    *binary = reading.binary;
    return rc;
}

// ---- a transfer

ssize_t
remote_read_fd(void *cookie, void *bytes, size_t n)
{
    const int fd = *(const int *)cookie;
    ssize_t r = 0;
    do
        r = read(fd, bytes, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

// All responses of a transfer begin like this.
struct begun {
    ProtobufCMessage base;
    const char *transfer_id;
};

struct sending {
    struct stockade *s;
    const ProtobufCMessageDescriptor *response;
    struct arena *arena;
    ProtobufCMessage *last;
    uint64_t stream;
    char id[64];
    uint64_t sent;
    size_t filled;    // bytes of the next piece
    unsigned waiting; // calls of Send without an answer
    bool failed;      // one of them failed: the stream will say why
    bool at_end, finished, ended;
    int rc;
    struct stockade_error error;
};

static int
on_progress(void *cookie, const void *bytes, size_t n)
{
    struct sending *t = cookie;
    if (t->id[0] == '\0') {
        ProtobufCMessage *m = NULL;
        t->rc = unpack(t->response, bytes, n, t->arena, &m, &t->error);
        if (t->rc == 0)
            (void)snprintf(t->id, sizeof t->id, "%s", ((const struct begun *)m)->transfer_id);
    } else {
        arena_reset(t->arena);
        t->rc = unpack(t->response, bytes, n, t->arena, &t->last, &t->error);
    }
    return t->rc < 0;
}

static void
on_stream_end(void *cookie, const struct stockade_end *end)
{
    struct sending *t = cookie;
    t->ended = true;
    if (end->error == NULL || t->rc < 0)
        return;
    t->rc = -EIO;
    t->error = *end->error;
}

static void
on_sent(void *cookie, const struct stockade_end *end)
{
    struct sending *t = cookie;
    t->waiting--;
    t->failed = t->failed || end->error != NULL;
    // a failure that does not end the stream by itself
    if (end->error != NULL && end->error->code != STOCKADE_NOT_FOUND && !t->ended && t->rc == 0) {
        t->rc = -EIO;
        t->error = *end->error;
        (void)stockade_cancel(t->s, t->stream, NULL);
    }
}

static int
begin_call(struct sending *t, const char *method, const ProtobufCMessage *m,
           struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    uint8_t *auto_free body = NULL;
    if (pack(m, &body, &r.body, e) < 0)
        return -ENOMEM;
    r.method = method;
    a.on_end = on_sent;
    a.cookie = t;
    int rc = stockade_begin(t->s, &r, &a, NULL, e);
    t->waiting += rc == 0;
    return rc;
}

static uint8_t piece[PIECE]; // one transfer at a time

static int
give_up(struct sending *t, struct remote_source *source, int sys, struct stockade_error *e)
{
    source->failed = sys;
    t->rc = -ECANCELED;
    t->error = (struct stockade_error){.code = STOCKADE_CANCELLED, .text = "the source failed"};
    return stockade_cancel(t->s, t->stream, e) < 0 && e->code != STOCKADE_NOT_FOUND ? -EIO : 0;
}

// Waits for the source and for the connection: a source that gives nothing, such as a terminal, must not hide the end of the
// transfer. 1: the source can be read. 0: the connection has something.
static int
wait_for_source(struct sending *t, const struct remote_source *source, struct stockade_error *e)
{
    struct pollfd p[2] = {{.fd = source->fd, .events = POLLIN},
                          {.fd = stockade_fd(t->s, e), .events = POLLIN}};
    if (p[1].fd < 0)
        return -EIO;
    (void)poll(p, 2, -1);
    return p[0].revents != 0;
}

// Fills the next piece, as far as that is possible without a wait of which the connection would know nothing.
static int
fill(struct sending *t, struct remote_source *source, struct stockade_error *e)
{
    while (t->filled < PIECE && !t->at_end) {
        const int ready = wait_for_source(t, source, e);
        if (ready <= 0)
            return ready < 0 ? ready : stockade_pump(t->s, 0, e);
        const ssize_t n = source->read(source->cookie, piece + t->filled, PIECE - t->filled);
        if (n < 0)
            return give_up(t, source, (int)-n, e);
        t->filled += (size_t)n;
        t->at_end = n == 0;
    }
    return 0;
}

// Sends the next piece, or the end.
static int
send_next(struct sending *t, struct remote_source *source, struct stockade_error *e)
{
    Stockade__V1__FileServiceSendRequest m = STOCKADE__V1__FILE_SERVICE_SEND_REQUEST__INIT;
    Stockade__V1__FileServiceFinishRequest end = STOCKADE__V1__FILE_SERVICE_FINISH_REQUEST__INIT;
    const bool whole = t->filled == PIECE || t->at_end;
    if (!whole)
        return fill(t, source, e);
    if (t->filled == 0) {
        end.transfer_id = t->id;
        end.bytes = t->sent;
        t->finished = true;
        return begin_call(t, REMOTE_METHOD("Finish"), &end.base, e);
    }
    m.transfer_id = t->id;
    m.offset = t->sent;
    m.data = (ProtobufCBinaryData){t->filled, piece};
    t->sent += t->filled;
    t->filled = 0;
    return begin_call(t, REMOTE_METHOD("Send"), &m.base, e);
}

static int
carry(struct sending *t, struct remote_source *source, struct stockade_error *e)
{
    int rc = 0;
    while (rc >= 0 && (!t->ended || t->waiting > 0)) {
        bool may = t->id[0] != '\0' && !t->ended && !t->failed && t->rc == 0 && !t->finished;
        if (may && t->waiting < WINDOW)
            rc = send_next(t, source, e);
        else
            rc = stockade_pump(t->s, -1, e);
    }
    return rc < 0 ? rc : 0;
}

static int
begin(struct sending *t, const struct remote_transfer *transfer, struct stockade_error *e)
{
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async async = STOCKADE_ASYNC_INIT;
    uint8_t *auto_free body = NULL;
    if (pack(transfer->request, &body, &r.body, e) < 0)
        return -ENOMEM;
    r.method = transfer->method;
    r.on_message = on_progress;
    r.cookie = t;
    async.on_end = on_stream_end;
    async.cookie = t;
    return stockade_begin(t->s, &r, &async, &t->stream, e);
}

int
remote_send(struct stockade *s, const struct remote_transfer *transfer,
            struct remote_source *source, struct arena *a, ProtobufCMessage **out,
            struct stockade_error *e)
{
    struct sending t = {.s = s, .response = transfer->response, .arena = a};
    int rc = begin(&t, transfer, e);
    if (rc == 0)
        rc = carry(&t, source, e);
    if (rc < 0)
        return rc;
    if (t.rc == 0 && t.last == NULL) {
        t.rc = -EPROTO;
        t.error = (struct stockade_error){.code = STOCKADE_DATA_LOSS,
                                          .text = "the transfer ended without a result"};
    }
    if (t.rc < 0)
        *e = t.error;
    else
        *out = t.last;
    return t.rc;
}
