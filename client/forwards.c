// SPDX-License-Identifier: Apache-2.0
// Connections to ports of a sandbox (stockade.h): a stream for incoming data, calls for outgoing data.
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "calls.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "stockade/v1/sandbox_service.pb-c.h"

#define SERVICE "/stockade.v1.SandboxService/"

// One message. A handler that returns a value other than 0 closes the connection.
static int
take(void *cookie, struct delivery *d, struct stockade_error *e)
{
    const struct stockade_forward_handlers *h = cookie;
    ProtobufCMessage *got = NULL;
    struct arena *a = call_arena(d);
    int rc = invoke_unpack(&stockade__v1__sandbox_service_forward_response__descriptor, d->bytes,
                           d->n, a, &got, e);
    if (rc < 0)
        return rc;
    const Stockade__V1__SandboxServiceForwardResponse *m =
        (const Stockade__V1__SandboxServiceForwardResponse *)got;
    int stop = 0;
    if (m->connection_id[0] != '\0' && h->on_open != NULL)
        stop = h->on_open(h->cookie, m->connection_id);
    if (stop == 0 && m->data.len > 0 && h->on_data != NULL)
        stop = h->on_data(h->cookie, m->data.data, m->data.len);
    return stop != 0;
}

int
stockade_forward(struct stockade *s, const char *id, uint32_t port,
                 const struct stockade_forward_handlers *h, struct stockade_error *e)
{
    Stockade__V1__SandboxServiceForwardRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_REQUEST__INIT;
    struct err no;
    if (request_list(h, 1, "handlers", &no) < 0)
        return error_from_err(e, &no);
    m.id = id;
    m.port = port;
    static const struct call_sink sink = {.on_message = take};
    struct stockade_forward_handlers handlers = *h;
    uint8_t *auto_free request = NULL;
    struct call_spec spec = {
        .method = SERVICE "Forward", .stream = true, .sink = &sink, .cookie = &handlers};
    int rc = invoke_pack(&m.base, &request, &spec.request_n, e);
    if (rc < 0)
        return rc;
    spec.request = request;
    return call_do(s, &spec, e);
}

int
stockade_forward_input(struct stockade *s, const char *connection_id, const void *bytes, size_t n,
                       struct stockade_error *e)
{
    Stockade__V1__SandboxServiceForwardInputRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_INPUT_REQUEST__INIT;
    struct err no;
    if (request_list(bytes, n, "data", &no) < 0)
        return error_from_err(e, &no);
    m.connection_id = connection_id;
    m.data = wire_bytes(bytes, n);
    return invoke_empty(s, SERVICE "ForwardInput", &m.base,
                        &stockade__v1__sandbox_service_forward_input_response__descriptor, e);
}

int
stockade_forward_close(struct stockade *s, const char *connection_id, struct stockade_error *e)
{
    Stockade__V1__SandboxServiceForwardCloseRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_FORWARD_CLOSE_REQUEST__INIT;
    m.connection_id = connection_id;
    return invoke_empty(s, SERVICE "ForwardClose", &m.base,
                        &stockade__v1__sandbox_service_forward_close_response__descriptor, e);
}
