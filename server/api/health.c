// SPDX-License-Identifier: Apache-2.0
// HealthService: SERVING while the broker can work (alive.h). A watcher gets the status now and at each change.
#include "api.h"

#include <stdlib.h>
#include <string.h>

#include "proto/rules.h"
#include "proto/validate.h"
#include "server/sandbox/alive.h"
#include "server/base/server.h"
#include "server/base/stopping.h"

#include "stockade/v1/system_service.pb-c.h"

// One Watch, in a list of all at server->serving_cookie.
struct watcher {
    struct server *server;
    struct call *call;
    struct watcher *next;
    bool known;    // the service exists
    bool sent_any; // sent_status has been sent
    Stockade__V1__ServingStatus sent_status;
};

// True for "" and for services in the schema: "/NAME/..." is a method's path.
static bool
is_known(const char *service)
{
    const struct method_rules *m;
    size_t n = strlen(service);
    if (n == 0)
        return true;
    for (size_t i = 0; (m = validate_method_at(i)) != NULL; i++)
        if (strncmp(m->path + 1, service, n) == 0 && m->path[1 + n] == '/')
            return true;
    return false;
}

// *why: the reason if it is NOT_SERVING, otherwise "".
static Stockade__V1__ServingStatus
status_now(const struct server *s, struct err *why)
{
    why->text[0] = '\0';
    bool serves = s->alive != NULL ? alive_serves(s->alive, why) : !s->draining;
    return serves ? STOCKADE__V1__SERVING_STATUS__SERVING_STATUS_SERVING
                  : STOCKADE__V1__SERVING_STATUS__SERVING_STATUS_NOT_SERVING;
}

static void
check(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__HealthServiceCheckRequest *r =
        (const Stockade__V1__HealthServiceCheckRequest *)req;
    Stockade__V1__HealthServiceCheckResponse response =
        STOCKADE__V1__HEALTH_SERVICE_CHECK_RESPONSE__INIT;
    struct err e;
    if (!is_known(r->service)) {
        (void)err_set(&e, ERR_NOT_FOUND, "check health: no service \"%s\"", r->service);
        err_detail(&e, "SERVICE_UNKNOWN", r->service, NULL);
        call_fail(c, &e);
        return;
    }
    response.status = status_now(s, &e);
    response.reason = e.text;
    call_reply(c, &response.base);
}

// Sends the status unless the watcher has it; on_writable sends it if it cannot be sent now.
static void
send_status(struct watcher *w)
{
    Stockade__V1__HealthServiceWatchResponse response =
        STOCKADE__V1__HEALTH_SERVICE_WATCH_RESPONSE__INIT;
    struct err why = {.text = ""};
    response.status = w->known ? status_now(w->server, &why)
                               : STOCKADE__V1__SERVING_STATUS__SERVING_STATUS_SERVICE_UNKNOWN;
    response.reason = why.text;
    if (w->sent_any && response.status == w->sent_status)
        return;
    if (call_send(w->call, &response.base) != 0)
        return;
    w->sent_any = true;
    w->sent_status = response.status;
}

static void
on_writable(void *cookie)
{
    send_status(cookie);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    struct watcher *w = cookie;
    struct watcher *first = w->server->serving_cookie;
    if (first == w) {
        w->server->serving_cookie = w->next;
    } else {
        while (first->next != w)
            first = first->next;
        first->next = w->next;
    }
    free(w);
}

// During the shutdown no further change is sent, and an open call would delay the shutdown.
static void
on_serving_change(void *cookie)
{
    struct watcher *next;
    bool draining = cookie != NULL && ((struct watcher *)cookie)->server->draining;
    struct server *s = cookie != NULL ? ((struct watcher *)cookie)->server : NULL;
    for (struct watcher *w = cookie; w != NULL; w = next) {
        struct err e;
        next = w->next;
        send_status(w);
        if (!draining)
            continue;
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        call_fail(w->call, &e);
        free(w);
    }
    if (draining)
        s->serving_cookie = NULL;
}

static void
watch(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__HealthServiceWatchRequest *r =
        (const Stockade__V1__HealthServiceWatchRequest *)req;
    struct watcher *w = calloc(1, sizeof *w);
    struct err e;
    if (w == NULL) {
        (void)err_set(&e, ERR_RESOURCE_EXHAUSTED, "watch health: no memory");
        call_fail(c, &e);
        return;
    }
    *w = (struct watcher){.server = s, .call = c, .known = is_known(r->service)};
    w->next = s->serving_cookie;
    s->serving_cookie = w;
    s->on_serving_change = on_serving_change;
    call_watch(c, on_cancel, on_writable, w);
    send_status(w);
    if (s->draining)
        on_serving_change(s->serving_cookie);
}

const struct call_method health_methods[] = {
    {"/stockade.v1.HealthService/Check", &stockade__v1__health_service_check_request__descriptor,
     &stockade__v1__health_service_check_response__descriptor, check},
    {"/stockade.v1.HealthService/Watch", &stockade__v1__health_service_watch_request__descriptor,
     &stockade__v1__health_service_watch_response__descriptor, watch},
    {0},
};
