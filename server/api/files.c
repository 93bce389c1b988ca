// SPDX-License-Identifier: Apache-2.0
// stockade.v1.FileService: translation between its messages and server/files. What comes from the sandbox is unpacked and
// checked like a client's message.
#include "api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "server/base/list.h"
#include "server/base/server.h"
#include "server/files/files.h"
#include "server/policy/network.h"
#include "server/sandbox/sandbox.h"
#include "convert.h"
#include "stockade/v1/file_service.pb-c.h"
#include "template_message.h"

// All requests but those of a transfer begin like this.
struct of_sandbox {
    ProtobufCMessage base;
    const char *sandbox_id;
};
#define BEGINS_LIKE_IT(name)                                                                       \
    _Static_assert(offsetof(Stockade__V1__FileService##name##Request, sandbox_id) ==               \
                       offsetof(struct of_sandbox, sandbox_id),                                    \
                   "its first field is the sandbox")
BEGINS_LIKE_IT(Upload);
BEGINS_LIKE_IT(Download);
BEGINS_LIKE_IT(Stat);
BEGINS_LIKE_IT(List);
BEGINS_LIKE_IT(Read);
BEGINS_LIKE_IT(Write);
BEGINS_LIKE_IT(OpenWrite);
BEGINS_LIKE_IT(MakeDir);
BEGINS_LIKE_IT(Move);
BEGINS_LIKE_IT(Copy);
BEGINS_LIKE_IT(Remove);
BEGINS_LIKE_IT(SetMode);
BEGINS_LIKE_IT(Watch);

// The responses of a transfer begin like this.
struct begun {
    ProtobufCMessage base;
    const char *transfer_id;
};
_Static_assert(offsetof(Stockade__V1__FileServiceOpenWriteResponse, transfer_id) ==
                       offsetof(struct begun, transfer_id) &&
                   offsetof(Stockade__V1__FileServiceUploadResponse, transfer_id) ==
                       offsetof(struct begun, transfer_id),
               "their first field is the transfer");

enum { ARENA_MAX = 512 * 1024 };

// A call that an operation answers.
struct work {
    struct server *server;
    struct call *call;
    enum files_method method;
    const ProtobufCMessage *request;            // borrowed from the call
    const ProtobufCMessageDescriptor *response; // that the sandbox sends
    struct files_wait *wait;                    // for a sandbox, if it is about a volume
    struct files_op *op;                        // NULL: not yet
    bool stream;
    bool unsent_id;      // of a transfer
    struct list senders; // calls of Send that wait until the sandbox has their bytes
};

struct sender {
    struct list node;
    struct call *call;
    uint64_t until; // bytes of the transfer
};

static void
work_free(struct work *w)
{
    struct err e;
    list_each(it, &w->senders)
    {
        struct sender *s = list_entry(it, struct sender, node);
        (void)err_set(&e, ERR_NOT_FOUND, "the transfer has ended");
        err_detail(&e, "TRANSFER_UNKNOWN", "transfer_id", "its stream has the reason");
        call_fail(s->call, &e);
        free(s);
    }
    free(w);
}

static int
send_id(struct work *w)
{
    union {
        struct begun begun;
        Stockade__V1__FileServiceOpenWriteResponse write;
        Stockade__V1__FileServiceUploadResponse upload;
    } m;
    w->response->message_init(&m.begun.base);
    m.begun.transfer_id = files_id(w->op);
    int r = call_send(w->call, &m.begun.base);
    w->unsent_id = r < 0;
    return r;
}

// The response of Write is that of OpenWrite under another number.
static void
reply(struct work *w, const ProtobufCMessage *m)
{
    Stockade__V1__FileServiceWriteResponse written =
        STOCKADE__V1__FILE_SERVICE_WRITE_RESPONSE__INIT;
    struct files_op *op = w->op;
    if (w->response == &stockade__v1__file_service_open_write_response__descriptor) {
        written.file = ((const Stockade__V1__FileServiceOpenWriteResponse *)m)->file;
        m = &written.base;
    }
    call_reply(w->call, m);
    files_drop(op);
    work_free(w);
}

static int
on_message(void *cookie, const void *bytes, size_t n, struct err *e)
{
    struct work *w = cookie;
    struct arena *auto_arena a = arena_new(ARENA_MAX);
    ProtobufCMessage *m = NULL;
    int r = convert_unpack(w->response, bytes, n, a, &m, e);
    if (r < 0)
        return r;
    if (w->unsent_id && send_id(w) < 0)
        return -EAGAIN;
    if (w->stream)
        return call_send(w->call, m);
    reply(w, m);
    return 0;
}

static int
on_data(void *cookie, const void *bytes, size_t n, struct err *e)
{
    const struct work *w = cookie;
    Stockade__V1__FileServiceReadResponse m = STOCKADE__V1__FILE_SERVICE_READ_RESPONSE__INIT;
    Stockade__V1__FileServiceDownloadResponse part =
        STOCKADE__V1__FILE_SERVICE_DOWNLOAD_RESPONSE__INIT;
    part.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
    if (w->response == &stockade__v1__file_service_download_response__descriptor)
        return call_send(w->call, &part.base);
    if (w->response != &stockade__v1__file_service_read_response__descriptor)
        return err_set(e, ERR_INTERNAL, "stockade-files sent bytes that were not requested");
    m.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
    return call_send(w->call, &m.base);
}

static void
on_accepted(void *cookie, uint64_t bytes)
{
    const Stockade__V1__FileServiceSendResponse answer =
        STOCKADE__V1__FILE_SERVICE_SEND_RESPONSE__INIT;
    struct work *w = cookie;
    list_each(it, &w->senders)
    {
        struct sender *s = list_entry(it, struct sender, node);
        if (s->until > bytes)
            return;
        list_remove(it);
        call_reply(s->call, &answer.base);
        free(s);
    }
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct work *w = cookie;
    convert_end(w->call, w->stream, why);
    work_free(w);
}

static const struct files_events events = {
    .message = on_message, .data = on_data, .accepted = on_accepted, .ended = on_ended};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct work *w = cookie;
    (void)why;
    if (w->wait != NULL)
        files_unwait(w->wait);
    if (w->op != NULL)
        files_drop(w->op);
    work_free(w);
}

static void
on_writable(void *cookie)
{
    struct work *w = cookie;
    if (w->op == NULL || (w->unsent_id && send_id(w) < 0))
        return;
    files_go_on(w->op);
}

static void
fail(struct work *w, const struct err *e)
{
    call_fail(w->call, e);
    work_free(w);
}

// An OpenWrite, all bytes of it, and its end.
static int
begin_write(struct work *w, struct sandbox *sb, struct err *e)
{
    const Stockade__V1__FileServiceWriteRequest *m =
        (const Stockade__V1__FileServiceWriteRequest *)w->request;
    Stockade__V1__FileServiceOpenWriteRequest open =
        STOCKADE__V1__FILE_SERVICE_OPEN_WRITE_REQUEST__INIT;
    open.sandbox_id = m->sandbox_id;
    open.path = m->path;
    open.options = m->options;
    w->op = files_begin(w->server->files, sb, w->method, &open.base, &events, w, e);
    if (w->op == NULL)
        return err_errno(e);
    int r = files_put(w->op, m->data.data, m->data.len, e);
    if (r < 0)
        files_drop(w->op);
    return r;
}

// The sandbox is there, or cannot be had.
static void
go(void *cookie, struct sandbox *sb, const struct err *failed)
{
    struct work *w = cookie;
    const bool transfer = w->method == FILES_WRITE || w->method == FILES_UPLOAD;
    struct err e;
    if (failed != NULL) {
        fail(w, failed);
        return;
    }
    if (w->method == FILES_WRITE && !w->stream) {
        if (begin_write(w, sb, &e) < 0)
            fail(w, &e);
        return;
    }
    w->op = files_begin(w->server->files, sb, w->method, w->request, &events, w, &e);
    if (w->op == NULL)
        fail(w, &e);
    else if (transfer)
        (void)send_id(w);
}

// A sandbox for the files of a volume: one of the default template, without a network.
static int
spec_of_volume(const struct server *s, const char *tenant, const char *name,
               struct sandbox_spec *spec, struct err *e)
{
    int r = convert_spec(s, tenant, "", NULL, NULL, spec, e);
    if (r < 0)
        return r;
    network_unref(spec->network);
    spec->network = NULL;
    r = convert_mount(s, tenant, name, FILES_VOLUME_AT, false, spec, e);
    if (r == 0)
        r = convert_labels_begin(spec, 1, e);
    if (r == 0)
        convert_label(spec, "stockade.volume", name);
    else
        sandbox_spec_clear(spec);
    return r;
}

// Finds the sandbox, or has one made for a volume, and begins.
static void
find_and_go(struct work *w)
{
    static const char volume[] = "volume:";
    const char *target = ((const struct of_sandbox *)w->request)->sandbox_id;
    const char *tenant = call_tenant(w->call);
    struct sandbox_spec spec;
    struct err e;
    if (strncmp(target, volume, sizeof volume - 1) != 0) {
        struct sandbox *sb = sandbox_find(w->server->sandboxes, tenant, target, &e);
        go(w, sb, sb == NULL ? &e : NULL);
        return;
    }
    if (spec_of_volume(w->server, tenant, target + sizeof volume - 1, &spec, &e) < 0 ||
        files_hold(w->server->files, tenant, &spec, go, w, &w->wait, &e) < 0)
        fail(w, &e);
}

// Begins an operation that answers the call.
static void
begin(struct server *s, struct call *c, enum files_method method, const ProtobufCMessage *request,
      const ProtobufCMessageDescriptor *response, bool stream)
{
    struct work *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    *w = (struct work){.server = s,
                       .call = c,
                       .method = method,
                       .request = request,
                       .response = response,
                       .stream = stream};
    list_init(&w->senders);
    call_watch(c, on_cancel, on_writable, w);
    if (method == FILES_WATCH)
        call_only_watches(c);
    find_and_go(w);
}

#define FORWARDED(name, method, type, stream)                                                      \
    static void name(struct server *s, struct call *c, const ProtobufCMessage *req)                \
    {                                                                                              \
        begin(s, c, method, req, &stockade__v1__file_service_##type##_response__descriptor,        \
              stream);                                                                             \
    }
FORWARDED(stat_file, FILES_STAT, stat, false)
FORWARDED(list_files, FILES_LIST, list, false)
FORWARDED(read_file, FILES_READ, read, true)
FORWARDED(write_file, FILES_WRITE, open_write, false)
FORWARDED(open_write, FILES_WRITE, open_write, true)
FORWARDED(make_dir, FILES_MAKE_DIR, make_dir, false)
FORWARDED(move_file, FILES_MOVE, move, false)
FORWARDED(copy_files, FILES_COPY, copy, false)
FORWARDED(remove_files, FILES_REMOVE, remove, false)
FORWARDED(upload, FILES_UPLOAD, upload, true)
FORWARDED(download, FILES_DOWNLOAD, download, true)
FORWARDED(set_mode, FILES_SET_MODE, set_mode, false)
FORWARDED(watch_files, FILES_WATCH, watch, true)

static void
on_send_cancel(void *cookie, enum call_cancel why)
{
    struct sender *s = cookie;
    (void)why;
    list_remove(&s->node);
    free(s);
}

static void
send_bytes(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__FileServiceSendRequest *m =
        (const Stockade__V1__FileServiceSendRequest *)req;
    const Stockade__V1__FileServiceSendResponse answer =
        STOCKADE__V1__FILE_SERVICE_SEND_RESPONSE__INIT;
    struct err e;
    uint64_t until = 0;
    if (template_send(s, c, req))
        return;
    struct files_op *op = files_find(s->files, call_tenant(c), m->transfer_id, &e);
    struct sender *sender = op != NULL ? calloc(1, sizeof *sender) : NULL;
    if (op != NULL && sender == NULL)
        (void)err_sys(&e, ENOMEM, "send bytes");
    if (sender == NULL || files_send(op, m->offset, m->data.data, m->data.len, &until, &e) < 0) {
        free(sender);
        call_fail(c, &e);
        return;
    }
    if (until == 0) {
        free(sender);
        call_reply(c, &answer.base);
        return;
    }
    sender->call = c;
    sender->until = until;
    list_init(&sender->node);
    list_append(&((struct work *)files_cookie(op))->senders, &sender->node);
    call_watch(c, on_send_cancel, NULL, sender);
}

static void
finish(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__FileServiceFinishRequest *m =
        (const Stockade__V1__FileServiceFinishRequest *)req;
    const Stockade__V1__FileServiceFinishResponse answer =
        STOCKADE__V1__FILE_SERVICE_FINISH_RESPONSE__INIT;
    struct err e;
    if (template_finish(s, c, req))
        return;
    struct files_op *op = files_find(s->files, call_tenant(c), m->transfer_id, &e);
    if (op == NULL || files_finish(op, m->bytes, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, &answer.base);
}

#define METHOD(name, type, handler)                                                                \
    {                                                                                              \
        "/stockade.v1.FileService/" name,                                                          \
            &stockade__v1__file_service_##type##_request__descriptor,                              \
            &stockade__v1__file_service_##type##_response__descriptor, handler                     \
    }

const struct call_method file_methods[] = {
    METHOD("Stat", stat, stat_file),
    METHOD("List", list, list_files),
    METHOD("Read", read, read_file),
    METHOD("Write", write, write_file),
    METHOD("OpenWrite", open_write, open_write),
    METHOD("Send", send, send_bytes),
    METHOD("Finish", finish, finish),
    METHOD("MakeDir", make_dir, make_dir),
    METHOD("Move", move, move_file),
    METHOD("Copy", copy, copy_files),
    METHOD("Remove", remove, remove_files),
    METHOD("Upload", upload, upload),
    METHOD("Download", download, download),
    METHOD("SetMode", set_mode, set_mode),
    METHOD("Watch", watch, watch_files),
    {0},
};
