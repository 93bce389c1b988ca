// Sandboxes and the broker itself (stockade.h).
#include <stddef.h>

#include "../proto/auto.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"

#define SERVICE "/stockade.v1.SandboxService/"

// Four responses are alike: one sandbox.
#define IS_LIKE_GET(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__SandboxServiceGetResponse) &&              \
                       offsetof(type, sandbox) ==                                                  \
                           offsetof(Stockade__V1__SandboxServiceGetResponse, sandbox),             \
                   "a response with one sandbox")
IS_LIKE_GET(Stockade__V1__SandboxServiceCreateResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceUpdateResponse);
IS_LIKE_GET(Stockade__V1__SandboxServicePauseResponse);
IS_LIKE_GET(Stockade__V1__SandboxServiceResumeResponse);

// And four requests: one id.
#define IS_LIKE_GET_REQUEST(type)                                                                  \
    _Static_assert(sizeof(type) == sizeof(Stockade__V1__SandboxServiceGetRequest) &&               \
                       offsetof(type, id) == offsetof(Stockade__V1__SandboxServiceGetRequest, id), \
                   "a request with one id")
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServiceDeleteRequest);
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServicePauseRequest);
IS_LIKE_GET_REQUEST(Stockade__V1__SandboxServiceResumeRequest);

// A call that is answered with a sandbox.
static int
ask(struct stockade *s, const struct invocation *i, const struct stockade_sandbox **out,
    struct stockade_error *e)
{
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    int rc = invoke(s, i, &a, &got, e);
    if (rc < 0 || out == NULL)
        return rc;
    struct stockade_sandbox *box = hand_out(a, sizeof *box);
    if (box == NULL ||
        !sandbox_from(box, a, ((const Stockade__V1__SandboxServiceGetResponse *)got)->sandbox))
        return invoke_too_large(e);
    *out = box;
    (void)take_ptr(a);
    return 0;
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
    if (o->template_name != NULL)
        m->template_ = o->template_name;
    if (o->name != NULL)
        m->name = o->name;
    m->ttl_ms = o->ttl_ms;
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
    struct invocation i = {.method = SERVICE "Create",
                           .request = &m.base,
                           .response = &stockade__v1__sandbox_service_create_response__descriptor,
                           .options = o.call,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return ask(s, &i, out, error);
}

// Get, Delete, Pause, Resume.
static int
by_id(struct stockade *s, const char *method, const char *id,
      const ProtobufCMessageDescriptor *request, const ProtobufCMessageDescriptor *response,
      const struct stockade_sandbox **out, struct stockade_error *e)
{
    Stockade__V1__SandboxServiceGetRequest m;
    protobuf_c_message_init(request, &m);
    m.id = id;
    struct invocation i = {.method = method,
                           .request = &m.base,
                           .response = response,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return ask(s, &i, out, e);
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
    struct invocation i = {.method = SERVICE "Update",
                           .request = &m.base,
                           .response = &stockade__v1__sandbox_service_update_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return ask(s, &i, out, error);
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
    if (request_network(&m.network, a, policy->mode, policy, &e) < 0)
        return error_from_err(error, &e);
    m.id = id;
    struct invocation i = {.method = SERVICE "Update",
                           .request = &m.base,
                           .response = &stockade__v1__sandbox_service_update_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return ask(s, &i, out, error);
}

static bool
sandboxes_from(struct stockade_sandboxes *to, struct arena *a,
               const Stockade__V1__SandboxServiceListResponse *from)
{
    struct stockade_sandbox *items = arena_alloc(a, (from->n_sandboxes + 1) * sizeof *items);
    for (size_t i = 0; items != NULL && i < from->n_sandboxes; i++)
        if (!sandbox_from(&items[i], a, from->sandboxes[i]))
            return false;
    to->items = items;
    to->n = from->n_sandboxes;
    to->next_page = from->next_page_token;
    return items != NULL;
}

static int
ask_list(struct stockade *s, const struct invocation *i, const struct stockade_sandboxes **out,
         struct stockade_error *e)
{
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    int rc = invoke(s, i, &a, &got, e);
    if (rc < 0)
        return rc;
    struct stockade_sandboxes *all = hand_out(a, sizeof *all);
    if (all == NULL ||
        !sandboxes_from(all, a, (const Stockade__V1__SandboxServiceListResponse *)got))
        return invoke_too_large(e);
    *out = all;
    (void)take_ptr(a);
    return 0;
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
    struct invocation i = {.method = SERVICE "List",
                           .request = &m.base,
                           .response = &stockade__v1__sandbox_service_list_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return ask_list(s, &i, out, error);
}

int
stockade_info(struct stockade *s, const struct stockade_info **out, struct stockade_error *e)
{
    Stockade__V1__InfoRequest m = STOCKADE__V1__INFO_REQUEST__INIT;
    struct invocation i = {.method = "/stockade.v1.SystemService/Info",
                           .request = &m.base,
                           .response = &stockade__v1__info_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    int rc = invoke(s, &i, &a, &got, e);
    if (rc < 0)
        return rc;
    struct stockade_info *info = hand_out(a, sizeof *info);
    if (info == NULL || !info_from(info, a, (const Stockade__V1__InfoResponse *)got))
        return invoke_too_large(e);
    *out = info;
    (void)take_ptr(a);
    return 0;
}
