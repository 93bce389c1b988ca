// SPDX-License-Identifier: Apache-2.0
// Runs and processes (stockade.h, "Jobs"). follow.c has the streams.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "follow.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/process_service.pb-c.h"

#define SERVICE "/stockade.v1.ProcessService/"

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
    if (rc == 0)
        rc = request_mounts(&m->volumes, &m->n_volumes, a, o->mounts, o->mounts_n, e);
    if (rc == 0 && o->simulate != NULL)
        rc = request_simulate(&m->answers, &m->n_answers, a, o->simulate, e);
    if (o->simulate != NULL)
        m->mode = STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE;
    m->count_syscalls = o->count_syscalls;
    if (o->template_name != NULL)
        m->template_ = o->template_name;
    if (o->name != NULL)
        m->name = o->name;
    return rc;
}

// Where a stream goes to: a caller that waits, or callbacks (`begin`).
struct destination {
    const struct stockade_handlers *handlers;
    const struct stockade_result **out;
    const struct stockade_async *async;
    uint64_t *call;
    bool begin;
};

static int
follow_to(struct stockade *s, struct following *f, const struct destination *to,
          struct stockade_error *e)
{
    f->handlers = to->handlers;
    return to->begin ? follow_begin(s, f, to->async, to->call, e) : follow(s, f, to->out, e);
}

static int
run(struct stockade *s, const struct stockade_run_options *given, const struct destination *to,
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
    return follow_to(s, &f, to, error);
}

static int
start(struct stockade *s, const struct stockade_start_options *given, const struct destination *to,
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
        request_limits(&m.limits, a, &o.limits, &e) < 0 ||
        (o.simulate != NULL && request_simulate(&m.answers, &m.n_answers, a, o.simulate, &e) < 0))
        return error_from_err(error, &e);
    if (o.simulate != NULL)
        m.mode = STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE;
    m.count_syscalls = o.count_syscalls;
    m.foreground = o.foreground;
    m.transaction = (Stockade__V1__TransactionPolicy)o.transaction;
    if (o.sandbox != NULL)
        m.sandbox_id = o.sandbox;
    struct following f = {.method = SERVICE "Start",
                          .request = &m.base,
                          .type = &stockade__v1__start_response__descriptor,
                          .options = o.call,
                          .detach = o.detach};
    return follow_to(s, &f, to, error);
}

static int
attach(struct stockade *s, const char *process_id, uint64_t offset, const struct destination *to,
       struct stockade_error *e)
{
    Stockade__V1__AttachRequest m = STOCKADE__V1__ATTACH_REQUEST__INIT;
    m.process_id = process_id;
    m.offset = offset;
    struct following f = {.method = SERVICE "Attach",
                          .request = &m.base,
                          .type = &stockade__v1__attach_response__descriptor};
    return follow_to(s, &f, to, e);
}

int
stockade_run(struct stockade *s, const struct stockade_run_options *o,
             const struct stockade_handlers *h, const struct stockade_result **out,
             struct stockade_error *e)
{
    return run(s, o, &(struct destination){.handlers = h, .out = out}, e);
}

int
stockade_begin_run(struct stockade *s, const struct stockade_run_options *o,
                   const struct stockade_handlers *h, const struct stockade_async *a,
                   uint64_t *call, struct stockade_error *e)
{
    return run(s, o, &(struct destination){.handlers = h, .async = a, .call = call, .begin = true},
               e);
}

int
stockade_start(struct stockade *s, const struct stockade_start_options *o,
               const struct stockade_handlers *h, const struct stockade_result **out,
               struct stockade_error *e)
{
    return start(s, o, &(struct destination){.handlers = h, .out = out}, e);
}

int
stockade_begin_start(struct stockade *s, const struct stockade_start_options *o,
                     const struct stockade_handlers *h, const struct stockade_async *a,
                     uint64_t *call, struct stockade_error *e)
{
    return start(s, o,
                 &(struct destination){.handlers = h, .async = a, .call = call, .begin = true}, e);
}

int
stockade_attach(struct stockade *s, const char *process_id, uint64_t offset,
                const struct stockade_handlers *h, const struct stockade_result **out,
                struct stockade_error *e)
{
    return attach(s, process_id, offset, &(struct destination){.handlers = h, .out = out}, e);
}

int
stockade_begin_attach(struct stockade *s, const char *process_id, uint64_t offset,
                      const struct stockade_handlers *h, const struct stockade_async *a,
                      uint64_t *call, struct stockade_error *e)
{
    return attach(s, process_id, offset,
                  &(struct destination){.handlers = h, .async = a, .call = call, .begin = true}, e);
}

int
stockade_input(struct stockade *s, const char *process_id, const void *bytes, size_t n,
               struct stockade_error *e)
{
    Stockade__V1__InputRequest m = STOCKADE__V1__INPUT_REQUEST__INIT;
    struct err no;
    if (request_list(bytes, n, "data", &no) < 0)
        return error_from_err(e, &no);
    m.process_id = process_id;
    m.data = wire_bytes(bytes, n);
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
