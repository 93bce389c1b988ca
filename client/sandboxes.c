// SPDX-License-Identifier: Apache-2.0
// Sandboxes and the broker itself (stockade.h).
#include <stddef.h>

#include "proto/auto.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"

#define SERVICE "/stockade.v1.SandboxService/"

// These responses have the same form: one sandbox.
#define IS_LIKE_GET(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__SandboxServiceGetResponse) &&              \
                       offsetof(type, sandbox) ==                                                  \
                           offsetof(Stockade__V1__SandboxServiceGetResponse, sandbox),             \
                   "a response with one sandbox")
IS_LIKE_GET(Stockade__V1__SandboxServiceCreateResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceUpdateResponse);
IS_LIKE_GET(Stockade__V1__SandboxServicePauseResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceResumeResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceSleepResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceWakeResponse);

// And these requests: one id.
#define IS_LIKE_GET_REQUEST(type)                                                                  \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__SandboxServiceGetRequest) &&               \
                       offsetof(type, id) == offsetof(Stockade__V1__SandboxServiceGetRequest, id), \
                   "a request with one id")
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServiceDeleteRequest);
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServicePauseRequest);
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServiceResumeRequest);
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServiceWakeRequest);

static bool
answer_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return sandbox_from(to, a, ((const Stockade__V1__SandboxServiceGetResponse *)from)->sandbox);
}

// A call that returns a sandbox.
static int
ask(struct stockade *s, const char *method, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *response, const struct stockade_call_options *options,
    const struct stockade_sandbox **out, struct stockade_error *e)
{
    const struct invocation i = {.method = method,
                                 .request = request,
                                 .response = response,
                                 .options = options,
                                 .size = sizeof **out,
                                 .read = answer_from};
    return invoke(s, &i, out, e);
}

static int
create_request(Stockade__V1__SandboxServiceCreateRequest *m, struct arena *a,
               const struct stockade_create_options *o, struct err *e)
{
    int rc = request_limits(&m->limits, a, &o->limits, e);
    if (rc == 0)
        rc = request_network(&m->network, a, o->network, o->policy, e);
    if (rc == 0)
        rc = request_labels(
            &m->metadata, &m->n_metadata,
            &stockade__v1__sandbox_service_create_request__metadata_entry__descriptor, a, o->labels,
            o->labels_n, e);
    if (rc == 0)
        rc = request_mounts(&m->volumes, &m->n_volumes, a, o->mounts, o->mounts_n, e);
    if (o->template_name != NULL)
        m->template_ = o->template_name;
    if (o->name != NULL)
        m->name = o->name;
    if (o->snapshot != NULL)
        m->snapshot = o->snapshot;
    m->ttl_ms = o->ttl_ms;
    m->sleep_after_ms = o->sleep_after_ms;
    return rc;
}

int
stockade_create(struct stockade *s, const struct stockade_create_options *given,
                const struct stockade_sandbox **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    Stockade__V1__SandboxServiceCreateRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_CREATE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if ((given != NULL && request_options(&o, sizeof o, given, &e) < 0) ||
        create_request(&m, a, &o, &e) < 0)
        return error_from_err(error, &e);
    return ask(s, SERVICE "Create", &m.base,
               &stockade__v1__sandbox_service_create_response__descriptor, o.call, out, error);
}

// Get, Delete, Pause, Resume, Wake.
static int
by_id(struct stockade *s, const char *method, const char *id,
      const ProtobufCMessageDescriptor *request, const ProtobufCMessageDescriptor *response,
      const struct stockade_sandbox **out, struct stockade_error *e)
{
    Stockade__V1__SandboxServiceGetRequest m;
    protobuf_c_message_init(request, &m);
    m.id = id;
    return ask(s, method, &m.base, response, NULL, out, e);
}

int
stockade_get(struct stockade *s, const char *id, const struct stockade_sandbox **out,
             struct stockade_error *e)
{
    return by_id(s, SERVICE "Get", id, &stockade__v1__sandbox_service_get_request__descriptor,
                 &stockade__v1__sandbox_service_get_response__descriptor, out, e);
}

int
stockade_delete(struct stockade *s, const char *id, struct stockade_error *e)
{
    return by_id(s, SERVICE "Delete", id, &stockade__v1__sandbox_service_delete_request__descriptor,
                 &stockade__v1__sandbox_service_delete_response__descriptor, NULL, e);
}

int
stockade_pause(struct stockade *s, const char *id, const struct stockade_sandbox **out,
               struct stockade_error *e)
{
    return by_id(s, SERVICE "Pause", id, &stockade__v1__sandbox_service_pause_request__descriptor,
                 &stockade__v1__sandbox_service_pause_response__descriptor, out, e);
}

int
stockade_resume(struct stockade *s, const char *id, const struct stockade_sandbox **out,
                struct stockade_error *e)
{
    return by_id(s, SERVICE "Resume", id, &stockade__v1__sandbox_service_resume_request__descriptor,
                 &stockade__v1__sandbox_service_resume_response__descriptor, out, e);
}

int
stockade_wake(struct stockade *s, const char *id, const struct stockade_sandbox **out,
              struct stockade_error *e)
{
    return by_id(s, SERVICE "Wake", id, &stockade__v1__sandbox_service_wake_request__descriptor,
                 &stockade__v1__sandbox_service_wake_response__descriptor, out, e);
}

int
stockade_sleep(struct stockade *s, const char *id, bool stop, const struct stockade_sandbox **out,
               struct stockade_error *e)
{
    Stockade__V1__SandboxServiceSleepRequest m = STOCKADE__V1__SANDBOX_SERVICE_SLEEP_REQUEST__INIT;
    m.id = id;
    m.stop = stop;
    return ask(s, SERVICE "Sleep", &m.base,
               &stockade__v1__sandbox_service_sleep_response__descriptor, NULL, out, e);
}

int
stockade_update(struct stockade *s, const char *id, uint64_t ttl_ms,
                const struct stockade_pair *labels, size_t labels_n,
                const struct stockade_sandbox **out, struct stockade_error *error)
{
    struct err e;
    Stockade__V1__SandboxServiceUpdateRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_UPDATE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_labels(&m.metadata, &m.n_metadata,
                       &stockade__v1__sandbox_service_update_request__metadata_entry__descriptor, a,
                       labels, labels_n, &e) < 0)
        return error_from_err(error, &e);
    m.id = id;
    m.ttl_ms = ttl_ms;
    return ask(s, SERVICE "Update", &m.base,
               &stockade__v1__sandbox_service_update_response__descriptor, NULL, out, error);
}

int
stockade_set_policy(struct stockade *s, const char *id, const struct stockade_policy *policy,
                    const struct stockade_sandbox **out, struct stockade_error *error)
{
    struct err e;
    Stockade__V1__SandboxServiceUpdateRequest m =
        STOCKADE__V1__SANDBOX_SERVICE_UPDATE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_list(policy, 1, "network", &e) < 0 ||
        request_network(&m.network, a, policy->mode, policy, &e) < 0)
        return error_from_err(error, &e);
    m.id = id;
    return ask(s, SERVICE "Update", &m.base,
               &stockade__v1__sandbox_service_update_response__descriptor, NULL, out, error);
}

static bool
one_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return sandbox_from(to, a, (const Stockade__V1__Sandbox *)from);
}

static bool
sandboxes_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SandboxServiceListResponse *m =
        (const Stockade__V1__SandboxServiceListResponse *)from;
    struct stockade_sandboxes *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->sandboxes, m->n_sandboxes, one_from);
}

int
stockade_list(struct stockade *s, const struct stockade_pair *labels, size_t labels_n,
              const char *page, const struct stockade_sandboxes **out, struct stockade_error *error)
{
    struct err e;
    Stockade__V1__SandboxServiceListRequest m = STOCKADE__V1__SANDBOX_SERVICE_LIST_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if (request_labels(&m.metadata, &m.n_metadata,
                       &stockade__v1__sandbox_service_list_request__metadata_entry__descriptor, a,
                       labels, labels_n, &e) < 0)
        return error_from_err(error, &e);
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "List",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__sandbox_service_list_response__descriptor,
                                 .size = sizeof **out,
                                 .read = sandboxes_from};
    return invoke(s, &i, out, error);
}

static bool
broker_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    return info_from(to, a, (const Stockade__V1__InfoResponse *)from);
}

int
stockade_info(struct stockade *s, const struct stockade_info **out, struct stockade_error *e)
{
    return stockade_info_of(s, NULL, out, e);
}

int
stockade_info_of(struct stockade *s, const char *tenant, const struct stockade_info **out,
                 struct stockade_error *e)
{
    Stockade__V1__InfoRequest m = STOCKADE__V1__INFO_REQUEST__INIT;
    m.tenant = tenant != NULL ? tenant : "";
    const struct invocation i = {.method = "/stockade.v1.SystemService/Info",
                                 .request = &m.base,
                                 .response = &stockade__v1__info_response__descriptor,
                                 .size = sizeof **out,
                                 .read = broker_from};
    return invoke(s, &i, out, e);
}
