// SPDX-License-Identifier: Apache-2.0
// Requests to the gateway: what they call, with whose credential, and their bodies.
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "gateway_private.h"
#include "guard.h"
#include "json_request.h"

static void
refuse_err(struct http_request *r, const struct err *from)
{
    struct stockade_error e = {.code = from->code};
    (void)snprintf(e.text, sizeof e.text, "%s", from->text);
    (void)snprintf(e.subject, sizeof e.subject, "%s", from->subject);
    gateway_answer_error(r, &e);
}

// The credential for a call of this method. False: it was refused.
static bool
choose_credential(struct gateway *g, struct http_request *r, bool acts, const char **bearer)
{
    const char *given = http_header(r, "Authorization");
    if (given[0] != '\0' && !guard_bearer(given)) {
        gateway_refuse(r, STOCKADE_UNAUTHENTICATED,
                       "the header Authorization is not 'Bearer CREDENTIAL'", "");
        return false;
    }
    *bearer = given[0] != '\0' ? given : g->own;
    if (given[0] != '\0' || (g->open && !acts))
        return true;
    gateway_refuse(r, STOCKADE_UNAUTHENTICATED,
                   acts ? "this needs a credential" : "this dashboard needs a credential",
                   "an API key or a token: 'stockade key create'");
    return false;
}

void
gateway_call(struct gateway *g, struct http_request *r)
{
    static const char prefix[] = "/api/call/";
    const char *path = http_path(r) + sizeof prefix - 1, *bearer = NULL;
    const struct gateway_method *m = gateway_method(path, strlen(path));
    ProtobufCMessage *request = NULL;
    struct stockade_error failed;
    struct err e;
    size_t n = 0;
    if (m == NULL || m->stream) {
        gateway_refuse(r, STOCKADE_UNIMPLEMENTED, "the dashboard calls no such method", "");
        return;
    }
    if (!choose_credential(g, r, m->acts, &bearer))
        return;
    const char *body = http_body(r, &n);
    arena_reset(g->arena);
    if (json_request(body, n, m->request, g->arena, &request, &e) < 0) {
        refuse_err(r, &e);
        return;
    }
    struct gateway_exchange *x = gateway_exchange_new(g, r, false);
    if (x == NULL)
        return;
    http_set_cookie(r, x);
    x->part[0].method = m;
    if (gateway_begin(&x->part[0], request, bearer, &failed) == 0)
        return;
    gateway_exchange_free(x);
    http_set_cookie(r, NULL);
    gateway_answer_error(r, &failed);
}

static bool
is_name(const char *text)
{
    const size_t n = strlen(text);
    return n > 0 && n < GATEWAY_NAME_BYTES && strspn(text, "abcdefghijklmnopqrstuvwxyz") == n &&
           strcmp(text, "end") != 0 && strcmp(text, "cut") != 0;
}

// One stream of /api/watch: its name, method and request.
struct wanted {
    const char *name; // borrowed from the body's tree
    const struct gateway_method *method;
    ProtobufCMessage *request;
};

static int
read_wanted(struct gateway *g, const char *name, json_t *o, struct wanted *to, struct err *e)
{
    const char *path = json_string_value(json_object_get(o, "method"));
    json_t *request = json_object_get(o, "request");
    to->name = name;
    to->method = path != NULL ? gateway_method(path, strlen(path)) : NULL;
    if (!is_name(name))
        return err_field(e, name, "a name of a stream has up to 15 small letters");
    if (to->method == NULL || !to->method->stream)
        return err_field(e, "method", "the dashboard follows no such method");
    char *auto_free text = request != NULL ? json_dumps(request, JSON_COMPACT) : strdup("{}");
    if (text == NULL)
        return err_sys(e, ENOMEM, "read the request");
    return json_request(text, strlen(text), to->method->request, g->arena, &to->request, e);
}

static int
read_all_wanted(struct gateway *g, json_t *body, struct wanted *to, size_t *n, struct err *e)
{
    const char *name = NULL;
    json_t *o = NULL;
    if (json_object_size(body) == 0 || json_object_size(body) > GATEWAY_PARTS)
        return err_set(e, ERR_INVALID_ARGUMENT, "the body is an object of 1 to %d streams",
                       GATEWAY_PARTS);
    *n = 0;
    arena_reset(g->arena);
    json_object_foreach(body, name, o)
    {
        int rc = read_wanted(g, name, o, &to[(*n)++], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

// A stream that cannot begin ends at once, and its client gets the reason.
static void
begin_parts(struct gateway_exchange *x, const struct wanted *wanted, size_t n, const char *bearer)
{
    struct stockade_error failed;
    x->open++; // so none that fails ends the stream before the others have begun
    for (size_t i = 0; i < n && x->r != NULL; i++) {
        struct gateway_part *p = &x->part[i];
        p->method = wanted[i].method;
        (void)snprintf(p->name, sizeof p->name, "%s", wanted[i].name);
        if (gateway_begin(p, wanted[i].request, bearer, &failed) < 0)
            gateway_end_part(p, &failed);
    }
    x->open--;
    if (x->open == 0 && x->r != NULL)
        gateway_end_stream(x);
    gateway_free_if_over(x);
}

static void
watch(struct gateway *g, struct http_request *r, const struct wanted *wanted, size_t n)
{
    const char *bearer = NULL;
    bool acts = false;
    for (size_t i = 0; i < n; i++)
        acts |= wanted[i].method == NULL || wanted[i].method->acts;
    if (!choose_credential(g, r, acts, &bearer))
        return;
    struct gateway_exchange *x = gateway_exchange_new(g, r, true);
    if (x == NULL)
        return;
    if (!http_stream(r, "text/event-stream; charset=utf-8", GATEWAY_STREAM_BYTES)) {
        gateway_exchange_free(x);
        gateway_refuse(r, STOCKADE_UNAVAILABLE, "out of memory", "");
        return;
    }
    http_set_cookie(r, x);
    begin_parts(x, wanted, n, bearer);
}

void
gateway_watch(struct gateway *g, struct http_request *r)
{
    struct wanted wanted[GATEWAY_PARTS] = {0};
    struct err e;
    json_error_t why;
    size_t n = 0, wanted_n = 0;
    const char *bytes = http_body(r, &n);
    json_t *body = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &why);
    int rc = body == NULL ? err_set(&e, ERR_INVALID_ARGUMENT, "the body is no JSON: %s", why.text)
                          : read_all_wanted(g, body, wanted, &wanted_n, &e);
    if (rc < 0)
        refuse_err(r, &e);
    else
        watch(g, r, wanted, wanted_n);
    json_decref(body);
}
