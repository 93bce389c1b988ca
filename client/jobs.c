// SPDX-License-Identifier: Apache-2.0
// Runs, processes and their streams (stockade.h, "Jobs").
//
// Run, Start and Attach are one loop: each message carries a ProcessEvent, `exited` is the last and becomes the result.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "calls.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/process_service.pb-c.h"

#define SERVICE "/stockade.v1.ProcessService/"

// The three responses have the same form, so one function reads them.
#define IS_LIKE_RUN(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__RunResponse) &&                            \
                       offsetof(type, event) == offsetof(Stockade__V1__RunResponse, event),        \
                   "a response with one event")
IS_LIKE_RUN(Stockade__V1__StartResponse);
IS_LIKE_RUN(Stockade__V1__AttachResponse);

// A stream of events in progress.
struct stream {
    struct call *call;
    const ProtobufCMessageDescriptor *type; // of its messages
    const struct stockade_handlers *handlers;
    bool detach;                          // until `started`
    bool cancelled;                       // by a handler, or because it is detached
    bool detached;                        // `started` came
    const struct stockade_result *result; // handed out, once `exited` came
};

static int
deliver_started(struct stream *st, const Stockade__V1__ProcessEvent__Started *m)
{
    const struct stockade_handlers *h = st->handlers;
    st->detached = st->detach;
    int rc =
        h->on_started != NULL ? h->on_started(h->cookie, m->process_id, m->sandbox_id, m->pid) : 0;
    return st->detach ? 1 : rc;
}

static int
deliver_output(const struct stream *st, const Stockade__V1__ProcessEvent__Output *m)
{
    const struct stockade_handlers *h = st->handlers;
    int stream =
        m->stream == STOCKADE__V1__STREAM__STREAM_STDERR ? STOCKADE_STDERR : STOCKADE_STDOUT;
    return h->on_output != NULL
               ? h->on_output(h->cookie, stream, m->data.data, m->data.len, m->offset)
               : 0;
}

static int
deliver_gap(const struct stream *st, const Stockade__V1__ProcessEvent__Gap *m)
{
    const struct stockade_handlers *h = st->handlers;
    return h->on_gap != NULL ? h->on_gap(h->cookie, m->offset, m->bytes, m->limit) : 0;
}

// Handles one event and returns the handler's value; skips unknown events of a newer broker.
static int
deliver(struct stream *st, const Stockade__V1__ProcessEvent *event)
{
    if (event == NULL || st->cancelled)
        return 0;
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_STARTED)
        return deliver_started(st, event->started);
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_OUTPUT)
        return deliver_output(st, event->output);
    if (event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_GAP)
        return deliver_gap(st, event->gap);
    return 0;
}

// Keeps the result, with its arena.
static int
keep_result(struct stream *st, struct arena **arena, const Stockade__V1__Result *from,
            struct stockade_error *e)
{
    struct stockade_result *r = hand_out(*arena, sizeof *r);
    if (r == NULL || !result_from(r, *arena, from))
        return invoke_too_large(e);
    stockade_free(st->result);
    st->result = r;
    *arena = NULL;
    return 0;
}

// Reads one message; reuses *arena unless the result is in it.
static int
one_message(struct stream *st, struct arena **arena, const uint8_t *bytes, size_t n,
            struct stockade_error *e)
{
    if (*arena == NULL)
        *arena = arena_new(WIRE_ARENA_BYTES_MAX);
    if (*arena == NULL)
        return invoke_too_large(e);
    arena_reset(*arena);
    ProtobufCMessage *m = NULL;
    int rc = invoke_unpack(st->type, bytes, n, *arena, &m, e);
    if (rc < 0)
        return rc;
    const Stockade__V1__ProcessEvent *event = ((const Stockade__V1__RunResponse *)m)->event;
    if (event != NULL && event->event_case == STOCKADE__V1__PROCESS_EVENT__EVENT_EXITED)
        return keep_result(st, arena, event->exited->result, e);
    if (deliver(st, event) != 0) {
        st->cancelled = true;
        call_cancel(st->call);
    }
    return 0;
}

static int
read_stream(struct stream *st, struct stockade_error *e)
{
    struct arena *auto_arena arena = NULL;
    for (;;) {
        uint8_t *auto_free bytes = NULL;
        size_t n = 0;
        int rc = call_next(st->call, &bytes, &n, e);
        if (rc <= 0)
            return rc;
        rc = one_message(st, &arena, bytes, n, e);
        if (rc < 0)
            return rc;
    }
}

// The result of a whole stream.
static int
conclude(struct stream *st, int rc, const struct stockade_result **out,
         struct stockade_error *error)
{
    if (st->result != NULL && !st->detach) {
        if (out != NULL)
            *out = st->result;
        else
            stockade_free(st->result);
        return 0;
    }
    stockade_free(st->result);
    if (st->detached)
        return 0;
    if (rc < 0)
        return rc;
    struct err e;
    if (st->cancelled)
        (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    else
        (void)err_set(&e, ERR_DATA_LOSS, "the broker ended the stream without a result");
    return error_from_err(error, &e);
}

struct following {
    const char *method;
    const ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *type;
    const struct stockade_call_options *options;
    bool detach;
};

static int
follow(struct stockade *s, const struct following *f, const struct stockade_handlers *h,
       const struct stockade_result **out, struct stockade_error *error)
{
    static const struct stockade_handlers nobody;
    struct err e;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    if (f->options != NULL && request_options(&options, sizeof options, f->options, &e) < 0)
        return error_from_err(error, &e);
    uint8_t *auto_free request = NULL;
    struct call_spec spec = {.method = f->method, .stream = true, .options = &options};
    int rc = invoke_pack(f->request, &request, &spec.request_n, error);
    if (rc < 0)
        return rc;
    spec.request = request;
    struct call *auto_call call = NULL;
    rc = call_begin(&call, s, &spec, error);
    if (rc < 0)
        return rc;
    struct stream st = {
        .call = call, .type = f->type, .handlers = h != NULL ? h : &nobody, .detach = f->detach};
    rc = read_stream(&st, error);
    return conclude(&st, rc, out, error);
}

// ---- The calls

static int
run_request(Stockade__V1__RunRequest *m, struct arena *a, const struct stockade_run_options *o,
            struct err *e)
{
    int rc = request_command(&m->command, a, &o->command, e);
    if (rc == 0)
        rc = request_limits(&m->limits, a, &o->limits, e);
    if (rc == 0)
        rc = request_network(&m->network, a, o->network, o->policy, e);
    if (rc == 0)
        rc = request_labels(&m->metadata, &m->n_metadata,
                            &stockade__v1__run_request__metadata_entry__descriptor, a, o->labels,
                            o->labels_n, e);
    m->count_syscalls = o->count_syscalls;
    if (o->template_name != NULL)
        m->template_ = o->template_name;
    if (o->name != NULL)
        m->name = o->name;
    return rc;
}

int
stockade_run(struct stockade *s, const struct stockade_run_options *given,
             const struct stockade_handlers *h, const struct stockade_result **out,
             struct stockade_error *error)
{
    struct err e;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    Stockade__V1__RunRequest m = STOCKADE__V1__RUN_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_options(&o, sizeof o, given, &e) < 0 || run_request(&m, a, &o, &e) < 0)
        return error_from_err(error, &e);
    struct following f = {.method = SERVICE "Run",
                          .request = &m.base,
                          .type = &stockade__v1__run_response__descriptor,
                          .options = o.call};
    return follow(s, &f, h, out, error);
}

int
stockade_start(struct stockade *s, const struct stockade_start_options *given,
               const struct stockade_handlers *h, const struct stockade_result **out,
               struct stockade_error *error)
{
    struct err e;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    Stockade__V1__StartRequest m = STOCKADE__V1__START_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_options(&o, sizeof o, given, &e) < 0 ||
        request_command(&m.command, a, &o.command, &e) < 0 ||
        request_limits(&m.limits, a, &o.limits, &e) < 0)
        return error_from_err(error, &e);
    m.count_syscalls = o.count_syscalls;
    m.foreground = o.foreground;
    if (o.sandbox != NULL)
        m.sandbox_id = o.sandbox;
    struct following f = {.method = SERVICE "Start",
                          .request = &m.base,
                          .type = &stockade__v1__start_response__descriptor,
                          .options = o.call,
                          .detach = o.detach};
    return follow(s, &f, h, out, error);
}

int
stockade_attach(struct stockade *s, const char *process_id, uint64_t offset,
                const struct stockade_handlers *h, const struct stockade_result **out,
                struct stockade_error *e)
{
    Stockade__V1__AttachRequest m = STOCKADE__V1__ATTACH_REQUEST__INIT;
    m.process_id = process_id;
    m.offset = offset;
    struct following f = {.method = SERVICE "Attach",
                          .request = &m.base,
                          .type = &stockade__v1__attach_response__descriptor};
    return follow(s, &f, h, out, e);
}

int
stockade_input(struct stockade *s, const char *process_id, const void *bytes, size_t n,
               struct stockade_error *e)
{
    Stockade__V1__InputRequest m = STOCKADE__V1__INPUT_REQUEST__INIT;
    struct err no;
    if (request_list(bytes, n, "data", &no) < 0)
        return error_from_err(e, &no);
    union { // protobuf-c requires it to be writable, although packing only reads
        const void *from;
        uint8_t *to;
    } data = {.from = bytes};
    m.process_id = process_id;
    m.data.data = data.to;
    m.data.len = n;
    return invoke_empty(s, SERVICE "Input", &m.base, &stockade__v1__input_response__descriptor, e);
}

int
stockade_close_input(struct stockade *s, const char *process_id, struct stockade_error *e)
{
    Stockade__V1__CloseInputRequest m = STOCKADE__V1__CLOSE_INPUT_REQUEST__INIT;
    m.process_id = process_id;
    return invoke_empty(s, SERVICE "CloseInput", &m.base,
                        &stockade__v1__close_input_response__descriptor, e);
}

int
stockade_signal(struct stockade *s, const char *process_id, int signal, bool group,
                struct stockade_error *e)
{
    Stockade__V1__SignalRequest m = STOCKADE__V1__SIGNAL_REQUEST__INIT;
    m.process_id = process_id;
    m.signal = signal > 0 ? (uint32_t)signal : 0;
    m.group = group;
    return invoke_empty(s, SERVICE "Signal", &m.base, &stockade__v1__signal_response__descriptor,
                        e);
}

int
stockade_resize(struct stockade *s, const char *process_id, uint32_t rows, uint32_t columns,
                struct stockade_error *e)
{
    Stockade__V1__TerminalSize size = STOCKADE__V1__TERMINAL_SIZE__INIT;
    Stockade__V1__ResizeRequest m = STOCKADE__V1__RESIZE_REQUEST__INIT;
    size.rows = rows;
    size.columns = columns;
    m.process_id = process_id;
    m.size = &size;
    return invoke_empty(s, SERVICE "Resize", &m.base, &stockade__v1__resize_response__descriptor,
                        e);
}

static bool
waited_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return result_from(to, a, ((const Stockade__V1__WaitResponse *)from)->result);
}

int
stockade_wait(struct stockade *s, const char *process_id, uint32_t deadline_ms,
              const struct stockade_result **out, struct stockade_error *e)
{
    Stockade__V1__WaitRequest m = STOCKADE__V1__WAIT_REQUEST__INIT;
    m.process_id = process_id;
    const struct invocation i = {.method = SERVICE "Wait",
                                 .request = &m.base,
                                 .response = &stockade__v1__wait_response__descriptor,
                                 .deadline_ms = deadline_ms != 0 ? deadline_ms : INVOKE_FOREVER,
                                 .size = sizeof **out,
                                 .read = waited_from};
    return invoke(s, &i, out, e);
}

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return process_from(to, a, (const Stockade__V1__Process *)from);
}

static bool
processes_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ProcessServiceListResponse *m =
        (const Stockade__V1__ProcessServiceListResponse *)from;
    struct stockade_processes *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->processes, m->n_processes, one_from);
}

int
stockade_processes(struct stockade *s, const char *sandbox, const char *page,
                   const struct stockade_processes **out, struct stockade_error *e)
{
    Stockade__V1__ProcessServiceListRequest m = STOCKADE__V1__PROCESS_SERVICE_LIST_REQUEST__INIT;
    if (sandbox != NULL)
        m.sandbox_id = sandbox;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__process_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = processes_from};
    return invoke(s, &i, out, e);
}
