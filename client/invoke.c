// SPDX-License-Identifier: Apache-2.0
// See invoke.h; and stockade_call(), the same with bytes for request and response.
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
    if (wire_unpack(type, bytes, n, a, out, &e) == 0)
        return 0;
    if (e.code != ERR_RESOURCE_EXHAUSTED)
        e.code = ERR_DATA_LOSS;
    (void)err_wrap(&e, "the broker's response cannot be decoded");
    return error_from_err(error, &e);
}

static int
call_one(struct stockade *s, const struct call_spec *spec, uint8_t **out, size_t *n,
         struct stockade_error *error)
{
    struct call *auto_call c = NULL;
    int rc = call_begin(&c, s, spec, error);
    if (rc == 0)
        rc = call_next(c, out, n, error);
    if (rc > 0)
        return 0;
    if (rc < 0)
        return rc;
    struct err e;
    (void)err_set(&e, ERR_DATA_LOSS, "the broker ended the call without a response");
    return error_from_err(error, &e);
}

// Converts the response, and passes it on with its arena.
static int
read_answer(const struct invocation *i, const uint8_t *bytes, size_t n, void *out,
            struct stockade_error *e)
{
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    if (a == NULL)
        return invoke_too_large(e);
    ProtobufCMessage *m = NULL;
    int rc = invoke_unpack(i->response, bytes, n, a, &m, e);
    if (rc < 0 || out == NULL || i->size == 0)
        return rc;
    void *to = hand_out(a, i->size);
    if (to == NULL || !i->read(to, a, m))
        return invoke_too_large(e);
    memcpy(out, &to, sizeof to);
    (void)take_ptr(a);
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
    uint8_t *auto_free request = NULL, *auto_free response = NULL;
    struct call_spec spec = {.method = i->method, .options = &options};
    int rc = invoke_pack(i->request, &request, &spec.request_n, error);
    if (rc < 0)
        return rc;
    spec.request = request;
    size_t n = 0;
    rc = call_one(s, &spec, &response, &n, error);
    return rc < 0 ? rc : read_answer(i, response, n, out, error);
}

// ---- stockade_call

static int
hand_out_bytes(const struct stockade_bytes **out, const uint8_t *bytes, size_t n,
               struct stockade_error *e)
{
    struct arena *auto_arena a = arena_new(n + 4096);
    struct stockade_bytes *b = a != NULL ? hand_out(a, sizeof *b) : NULL;
    char *copy = b != NULL ? arena_copy(a, bytes, n) : NULL;
    if (copy == NULL)
        return invoke_too_large(e);
    *b = (struct stockade_bytes){.bytes = copy, .n = n};
    *out = b;
    (void)take_ptr(a);
    return 0;
}

static int
call_stream(struct call *c, const struct stockade_request *r, struct stockade_error *e)
{
    for (bool wanted = true;;) {
        uint8_t *auto_free bytes = NULL;
        size_t n = 0;
        int rc = call_next(c, &bytes, &n, e);
        if (rc <= 0)
            return rc;
        if (wanted && r->on_message(r->cookie, bytes, n) != 0) {
            wanted = false;
            call_cancel(c);
        }
    }
}

int
stockade_call(struct stockade *s, const struct stockade_request *given,
              const struct stockade_bytes **response, struct stockade_error *error)
{
    struct err e;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    if (request_options(&r, sizeof r, given, &e) < 0 ||
        (r.call != NULL && request_options(&options, sizeof options, r.call, &e) < 0))
        return error_from_err(error, &e);
    struct call_spec spec = {.method = r.method,
                             .request = r.body.bytes,
                             .request_n = r.body.n,
                             .stream = r.on_message != NULL,
                             .options = &options};
    if (r.on_message == NULL) {
        uint8_t *auto_free bytes = NULL;
        size_t n = 0;
        int rc = call_one(s, &spec, &bytes, &n, error);
        return rc < 0 || response == NULL ? rc : hand_out_bytes(response, bytes, n, error);
    }
    struct call *auto_call c = NULL;
    int rc = call_begin(&c, s, &spec, error);
    return rc < 0 ? rc : call_stream(c, &r, error);
}

int
invoke_empty(struct stockade *s, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *response, struct stockade_error *e)
{
    const struct invocation i = {.method = method, .request = request, .response = response};
    return invoke(s, &i, NULL, e);
}
