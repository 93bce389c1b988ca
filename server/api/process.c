// SPDX-License-Identifier: Apache-2.0
// stockade.v1.ProcessService: translation between its messages and server/sandbox/job.h. The streams: process_stream.c.
#include "api.h"

#include <stdlib.h>

#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "server/sleep/sleepers.h"
#include "server/base/server.h"
#include "convert.h"
#include "page.h"
#include "server/sandbox/job_message.h"
#include "process_batch.h"
#include "process_stream.h"

// A pending Wait.
struct waiting {
    struct call *call;
    struct job_follower follower;
};

static struct job *
find(const struct server *s, struct call *c, const char *id)
{
    struct err e;
    struct job *j = job_find(s->jobs, call_tenant(c), id, &e);
    if (j == NULL)
        call_fail(c, &e);
    return j;
}

// The end of most methods: an empty response, or the failure.
static void
done(struct call *c, int r, const struct err *e, const ProtobufCMessage *answer)
{
    if (r < 0)
        call_fail(c, e);
    else
        call_reply(c, answer);
}

static void
input(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__InputRequest *m = (const Stockade__V1__InputRequest *)req;
    const Stockade__V1__InputResponse answer = STOCKADE__V1__INPUT_RESPONSE__INIT;
    struct err e;
    struct job *j = find(s, c, m->process_id);
    if (j != NULL)
        done(c, job_input(j, m->data.data, m->data.len, &e), &e, &answer.base);
}

static void
close_input(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__CloseInputRequest *m = (const Stockade__V1__CloseInputRequest *)req;
    const Stockade__V1__CloseInputResponse answer = STOCKADE__V1__CLOSE_INPUT_RESPONSE__INIT;
    struct err e;
    struct job *j = find(s, c, m->process_id);
    if (j != NULL)
        done(c, job_close_input(j, &e), &e, &answer.base);
}

static void
signal_it(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SignalRequest *m = (const Stockade__V1__SignalRequest *)req;
    const Stockade__V1__SignalResponse answer = STOCKADE__V1__SIGNAL_RESPONSE__INIT;
    struct err e;
    struct job *j = find(s, c, m->process_id);
    if (j != NULL)
        done(c, job_signal(j, m->signal, m->group, &e), &e, &answer.base);
}

static void
resize(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ResizeRequest *m = (const Stockade__V1__ResizeRequest *)req;
    const Stockade__V1__ResizeResponse answer = STOCKADE__V1__RESIZE_RESPONSE__INIT;
    struct err e;
    struct job *j = find(s, c, m->process_id);
    if (j == NULL)
        return;
    if (m->size->rows == 0 || m->size->columns == 0) {
        (void)err_field(&e, "size", "rows and columns must both be set");
        call_fail(c, &e);
        return;
    }
    done(c, job_resize(j, m->size->rows, m->size->columns, &e), &e, &answer.base);
}

static void
on_wait_cancel(void *cookie, enum call_cancel why)
{
    struct waiting *w = cookie;
    (void)why;
    job_unfollow(&w->follower);
    free(w);
}

static void
on_wait_wake(void *cookie)
{
    struct waiting *w = cookie;
    if (job_next(&w->follower).kind != JOB_ENDED)
        return;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__WaitResponse answer = STOCKADE__V1__WAIT_RESPONSE__INIT;
    struct job_view v;
    job_view(w->follower.job, &v);
    answer.result = a != NULL ? job_message_result(a, v.result) : NULL;
    if (answer.result == NULL)
        convert_no_memory(w->call);
    else
        call_reply(w->call, &answer.base);
    job_unfollow(&w->follower);
    free(w);
}

static void
wait_for(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct job *j = find(s, c, ((const Stockade__V1__WaitRequest *)req)->process_id);
    if (j == NULL)
        return;
    struct waiting *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    w->call = c;
    w->follower = (struct job_follower){.no_output = true, .wake = on_wait_wake, .cookie = w};
    call_watch(c, on_wait_cancel, NULL, w);
    job_follow(j, &w->follower, 0, false);
    on_wait_wake(w);
}

static bool
add_to_page(void *cookie, struct job *j)
{
    struct page *p = cookie;
    struct job_view v;
    job_view(j, &v);
    return page_has_room(p) && page_add(p, v.order, job_message_process(p->arena, j));
}

static void
list_page(struct server *s, struct call *c, const char *sandbox_id, struct page *p)
{
    Stockade__V1__ProcessServiceListResponse response =
        STOCKADE__V1__PROCESS_SERVICE_LIST_RESPONSE__INIT;
    jobs_each(s->jobs, call_tenant(c), sandbox_id, p->last, add_to_page, p);
    response.processes = p->elements;
    response.n_processes = p->n;
    response.next_page_token = p->token;
    page_reply(p, c, &response.base);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ProcessServiceListRequest *m =
        (const Stockade__V1__ProcessServiceListRequest *)req;
    const char *id = NULL;
    struct page auto_page p = {0};
    struct err e;
    int r = page_begin(&p, m->page_size, m->page_token, &e);
    if (r == 0 && m->sandbox_id[0] != '\0') {
        id = sleepers_id(s->sleepers, call_tenant(c), m->sandbox_id, &e);
        r = id == NULL ? err_errno(&e) : 0;
    }
    if (r < 0)
        call_fail(c, &e);
    else
        list_page(s, c, id, &p);
}

#define METHOD(name, request, response, handler)                                                   \
    {                                                                                              \
        "/stockade.v1.ProcessService/" name, &stockade__v1__##request##__descriptor,               \
            &stockade__v1__##response##__descriptor, handler                                       \
    }

const struct call_method process_methods[] = {
    METHOD("Run", run_request, run_response, process_run),
    METHOD("Start", start_request, start_response, process_start),
    METHOD("Attach", attach_request, attach_response, process_attach),
    METHOD("Input", input_request, input_response, input),
    METHOD("CloseInput", close_input_request, close_input_response, close_input),
    METHOD("Signal", signal_request, signal_response, signal_it),
    METHOD("Resize", resize_request, resize_response, resize),
    METHOD("Wait", wait_request, wait_response, wait_for),
    METHOD("RunBatch", run_batch_request, run_batch_response, process_run_batch),
    METHOD("AddToBatch", add_to_batch_request, add_to_batch_response, process_add_to_batch),
    METHOD("List", process_service_list_request, process_service_list_response, list),
    {0},
};
