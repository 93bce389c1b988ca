// SPDX-License-Identifier: Apache-2.0
// See forward.h: translation to server/sandbox/forward.h. The stream is the connection; the caller's bytes arrive as
// calls.
#include "forward.h"

#include <stdlib.h>

#include "server/sandbox/forward.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "convert.h"

struct stream {
    struct call *call;
    struct forward *forward;
    const char *id; // not sent yet
};

static int
send_message(const struct stream *st, const char *id, const void *bytes, size_t n)
{
    Stockade__V1__SandboxServiceForwardResponse m =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_RESPONSE__INIT;
    m.connection_id = id;
    m.data = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)bytes};
    return call_send(st->call, &m.base);
}

static void
on_opened(void *cookie, const char *id)
{
    struct stream *st = cookie;
    st->id = send_message(st, id, NULL, 0) == 0 ? NULL : id;
}

static int
on_data(void *cookie, const void *bytes, size_t n)
{
    struct stream *st = cookie;
    if (st->id != NULL) {
        int r = send_message(st, st->id, NULL, 0);
        if (r < 0)
            return r;
        st->id = NULL;
    }
    return send_message(st, "", bytes, n);
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct stream *st = cookie;
    if (why != NULL)
        call_fail(st->call, why);
    else
        call_end(st->call);
    free(st);
}

static const struct forward_events events = {
    .opened = on_opened, .data = on_data, .ended = on_ended};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct stream *st = cookie;
    (void)why;
    if (st->forward != NULL)
        forward_drop(st->forward);
    free(st);
}

static void
on_writable(void *cookie)
{
    struct stream *st = cookie;
    if (st->id != NULL && send_message(st, st->id, NULL, 0) == 0)
        st->id = NULL;
    forward_go_on(st->forward);
}

void
sandbox_forward(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceForwardRequest *m =
        (const Stockade__V1__SandboxServiceForwardRequest *)req;
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    struct stream *st = calloc(1, sizeof *st);
    if (st == NULL) {
        convert_no_memory(c);
        return;
    }
    st->call = c;
    call_watch(c, on_cancel, on_writable, st);
    if (forward_open(s->forwards, sb, (uint16_t)m->port, &events, st, &st->forward, &e) < 0) {
        call_fail(c, &e);
        free(st);
    }
}

void
sandbox_forward_input(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceForwardInputRequest *m =
        (const Stockade__V1__SandboxServiceForwardInputRequest *)req;
    const Stockade__V1__SandboxServiceForwardInputResponse answer =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_INPUT_RESPONSE__INIT;
    struct err e;
    struct forward *f = forward_find(s->forwards, call_tenant(c), m->connection_id, &e);
    if (f == NULL || forward_write(f, m->data.data, m->data.len, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, &answer.base);
}

void
sandbox_forward_close(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceForwardCloseRequest *m =
        (const Stockade__V1__SandboxServiceForwardCloseRequest *)req;
    const Stockade__V1__SandboxServiceForwardCloseResponse answer =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_CLOSE_RESPONSE__INIT;
    struct err e;
    struct forward *f = forward_find(s->forwards, call_tenant(c), m->connection_id, &e);
    if (f == NULL) {
        call_fail(c, &e);
        return;
    }
    forward_close(f);
    call_reply(c, &answer.base);
}
