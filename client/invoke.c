// SPDX-License-Identifier: Apache-2.0
// See invoke.h.
#include "invoke.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "calls.h"
#include "errors.h"
#include "handout.h"
#include "requests.h"

enum { UNARY_DEADLINE_MS = 60000 }; // the default if neither the caller nor the method sets one

int
invoke_too_large(struct stockade_error *error)
{
    struct err e;
    (void)err_set(&e, ERR_RESOURCE_EXHAUSTED, "the broker's response is too large");
    return error_from_err(error, &e);
}

int
invoke_pack(const ProtobufCMessage *m, uint8_t **out, size_t *n, struct stockade_error *error)
{
    struct err e;
    size_t size = protobuf_c_message_get_packed_size(m);
    if (size > WIRE_FRAME_BYTES_MAX) {
        (void)err_set(&e, ERR_INVALID_ARGUMENT, "the request is larger than %d bytes",
                      WIRE_FRAME_BYTES_MAX);
        return error_from_err(error, &e);
    }
    uint8_t *bytes = malloc(size + 1);
    if (bytes == NULL) {
        (void)err_sys(&e, ENOMEM, "pack a request");
        return error_from_err(error, &e);
    }
    *n = protobuf_c_message_pack(m, bytes);
    *out = bytes;
    return 0;
}

int
invoke_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n,
              struct arena *a, ProtobufCMessage **out, struct stockade_error *error)
{
    struct err e;
    if (a == NULL)
        return invoke_too_large(error);
    if (wire_unpack(type, bytes, n, a, out, &e) == 0)
        return 0;
    if (e.code != ERR_RESOURCE_EXHAUSTED)
        e.code = ERR_DATA_LOSS;
    (void)err_wrap(&e, "the broker's response cannot be decoded");
    return error_from_err(error, &e);
}

int
invoke_no_response(struct stockade_error *error)
{
    struct err e;
    (void)err_set(&e, ERR_DATA_LOSS, "the broker ended the call without a response");
    return error_from_err(error, &e);
}

// An invocation in progress.
struct answer {
    const struct invocation *i;
    void *out;
    bool came;
};

// Converts the response, and hands it out with its arena.
static int
take_answer(void *cookie, struct delivery *d, struct stockade_error *e)
{
    struct answer *answer = cookie;
    const struct invocation *i = answer->i;
    struct arena *a = call_arena(d);
    ProtobufCMessage *m = NULL;
    int rc = invoke_unpack(i->response, d->bytes, d->n, a, &m, e);
    if (rc < 0)
        return rc;
    answer->came = true;
    if (answer->out == NULL || i->size == 0)
        return 0;
    void *to = hand_out(a, i->size);
    if (to == NULL || !i->read(to, a, m))
        return invoke_too_large(e);
    memcpy(answer->out, &to, sizeof to);
    *d->arena = NULL;
    return 0;
}

int
invoke(struct stockade *s, const struct invocation *i, void *out, struct stockade_error *error)
{
    struct err e;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    if (i->options != NULL && request_options(&options, sizeof options, i->options, &e) < 0)
        return error_from_err(error, &e);
    if (options.deadline_ms == 0 && i->deadline_ms != INVOKE_FOREVER)
        options.deadline_ms = i->deadline_ms != 0 ? i->deadline_ms : UNARY_DEADLINE_MS;
    static const struct call_sink sink = {.on_message = take_answer};
    struct answer answer = {.i = i, .out = out};
    uint8_t *auto_free request = NULL;
    struct call_spec spec = {
        .method = i->method, .options = &options, .sink = &sink, .cookie = &answer};
    int rc = invoke_pack(i->request, &request, &spec.request_n, error);
    if (rc < 0)
        return rc;
    spec.request = request;
    rc = call_do(s, &spec, error);
    return rc < 0 || answer.came ? rc : invoke_no_response(error);
}

int
invoke_empty(struct stockade *s, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *response, struct stockade_error *e)
{
    const struct invocation i = {.method = method, .request = request, .response = response};
    return invoke(s, &i, NULL, e);
}
