// SPDX-License-Identifier: Apache-2.0
// stockade_call() and stockade_begin(): any method, with bytes on both sides.
#include <stdlib.h>

#include "proto/auto.h"
#include "async.h"
#include "calls.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "pump.h"
#include "requests.h"

// A call in progress.
struct raw {
    struct stockade_request r;
    struct stockade_async a;  // of one that was begun
    struct message *response; // of a unary call; owned
    bool refused;             // the program wants no more messages
};

static int
take(void *cookie, struct delivery *d, struct stockade_error *e)
{
    struct raw *raw = cookie;
    (void)e;
    if (raw->r.on_message == NULL) {
        raw->response = *d->message;
        *d->message = NULL;
    } else if (!raw->refused) {
        raw->refused = raw->r.on_message(raw->r.cookie, d->bytes, d->n) != 0;
    }
    return raw->refused ? 1 : 0;
}

static void
end(void *cookie, uint64_t id, int rc, const struct stockade_error *error)
{
    struct raw *raw = cookie;
    struct stockade_error no;
    struct stockade_bytes response = {0};
    if (raw->response != NULL) {
        response = (struct stockade_bytes){raw->response->bytes, raw->response->n};
    } else if (rc == 0 && raw->r.on_message == NULL) {
        rc = invoke_no_response(&no);
        error = &no;
    }
    async_end(&raw->a, id, rc, error, NULL, &response);
    free(raw->response);
    free(raw);
}

static const struct call_sink sink = {.on_message = take, .on_end = end};

// The options of both, copied.
static int
fill(struct raw *raw, struct call_spec *spec, struct stockade_call_options *options,
     const struct stockade_request *given, struct stockade_error *error)
{
    struct err e;
    if (request_options(&raw->r, sizeof raw->r, given, &e) < 0 ||
        (raw->r.call != NULL && request_options(options, sizeof *options, raw->r.call, &e) < 0))
        return error_from_err(error, &e);
    *spec = (struct call_spec){.method = raw->r.method,
                               .request = raw->r.body.bytes,
                               .request_n = raw->r.body.n,
                               .stream = raw->r.on_message != NULL,
                               .options = options,
                               .sink = &sink,
                               .cookie = raw};
    return 0;
}

static int
hand_out_bytes(const struct stockade_bytes **out, const struct message *m, struct stockade_error *e)
{
    struct arena *auto_arena a = arena_new(m->n + 4096);
    struct stockade_bytes *b = a != NULL ? hand_out(a, sizeof *b) : NULL;
    char *copy = b != NULL ? arena_copy(a, m->bytes, m->n) : NULL;
    if (copy == NULL)
        return invoke_too_large(e);
    *b = (struct stockade_bytes){.bytes = copy, .n = m->n};
    *out = b;
    (void)take_ptr(a);
    return 0;
}

int
stockade_call(struct stockade *s, const struct stockade_request *given,
              const struct stockade_bytes **response, struct stockade_error *e)
{
    struct raw raw = {0};
    struct call_spec spec;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    int rc = fill(&raw, &spec, &options, given, e);
    if (rc == 0)
        rc = call_do(s, &spec, e);
    if (rc == 0 && raw.r.on_message == NULL) {
        if (raw.response == NULL)
            rc = invoke_no_response(e);
        else if (response != NULL)
            rc = hand_out_bytes(response, raw.response, e);
    }
    free(raw.response);
    return rc;
}

int
stockade_begin(struct stockade *s, const struct stockade_request *given,
               const struct stockade_async *a, uint64_t *call, struct stockade_error *e)
{
    struct call_spec spec;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    struct raw *auto_free raw = calloc(1, sizeof *raw);
    if (raw == NULL)
        return invoke_too_large(e);
    int rc = async_options(&raw->a, a, e);
    if (rc == 0)
        rc = fill(raw, &spec, &options, given, e);
    if (rc == 0)
        rc = async_begin(s, &spec, &raw->a, call, e);
    if (rc == 0)
        (void)take_ptr(raw);
    return rc;
}
