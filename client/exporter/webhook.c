// SPDX-License-Identifier: Apache-2.0
// See webhook.h. Texts of the requester are in members of their own (data.untrusted), and jansson escapes control characters and
// all beyond ASCII.
#include "webhook.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "cloudevents.h"
#include "position.h"
#include "signature.h"

enum {
    EVENT_ARENA = 1024 * 1024,
    AGAIN_MIN_MS = 100,
    AGAIN_MAX_MS = 5000,
    ID_BYTES = 80,
    TIME_BYTES = 32,
    SECOND_NS = 1000000000,
    REQUEST_MAX = 64,
};

struct webhook {
    struct stockade *s; // borrowed
    int (*store)(void *cookie, const char *bytes, size_t n);
    void *cookie;
    uv_timer_t again;
    uint64_t again_ms;
    bool closing;
    struct signature *signature;
    struct position position; // `sequence` is the revision
};

// Revisions go on over restarts of the broker, so there is one run of it; a position needs the form of its name.
static const char instance[] = "00000000000000aa";
_Static_assert(sizeof instance == POSITION_INSTANCE, "as position.c reads it");

// ---- The event

static void
time_text(int64_t seconds, char out[TIME_BYTES])
{
    struct tm tm;
    const time_t t = (time_t)seconds;
    if (gmtime_r(&t, &tm) == NULL || strftime(out, TIME_BYTES, "%FT%TZ", &tm) == 0)
        out[0] = '\0';
}

static const char *
state_name(Stockade__V1__ApprovalState state)
{
    static const char *const all[] = {"unknown", "pending", "approved",
                                      "denied",  "expired", "cancelled"};
    return (size_t)state < sizeof all / sizeof all[0] ? all[state] : all[0];
}

static json_t *
data_of(const Stockade__V1__Approval *a)
{
    char created[TIME_BYTES] = "", expires[TIME_BYTES] = "", digest[2 * 32 + 1] = "";
    json_t *approvers = json_array(), *votes = json_array();
    if (a->create_time != NULL)
        time_text(a->create_time->seconds, created);
    if (a->expire_time != NULL)
        time_text(a->expire_time->seconds, expires);
    if (a->digest.len == sizeof digest / 2)
        (void)sodium_bin2hex(digest, sizeof digest, a->digest.data, a->digest.len);
    for (size_t i = 0; i < a->n_approvers; i++)
        (void)json_array_append_new(approvers, json_string(a->approvers[i]));
    for (size_t i = 0; i < a->n_votes; i++)
        (void)json_array_append_new(votes, json_pack("{ss sb}", "approver", a->votes[i]->approver,
                                                     "agreed", (int)a->votes[i]->agreed));
    return json_pack("{ss ss ss ss ss ss ss ss ss so si so s{ss ss}}", "id", a->id, "state",
                     state_name(a->state), "tenant", a->tenant, "requester", a->requester, "method",
                     a->method, "rule", a->rule, "digest", digest, "create_time", created,
                     "expire_time", expires, "approvers", approvers, "needed", (int)a->needed,
                     "votes", votes, "untrusted", "subject", a->subject, "reason", a->reason);
}

char *
webhook_event(const void *bytes, size_t n, int64_t now, uint64_t *revision)
{
    char id[ID_BYTES], type[ID_BYTES], at[TIME_BYTES];
    struct err e;
    ProtobufCMessage *m = NULL;
    struct arena *auto_arena arena = arena_new(EVENT_ARENA);
    if (arena == NULL || wire_unpack(&stockade__v1__approval_service_watch_response__descriptor,
                                     bytes, n, arena, &m, &e) < 0)
        return NULL;
    const Stockade__V1__Approval *a =
        ((const Stockade__V1__ApprovalServiceWatchResponse *)m)->approval;
    if (a == NULL)
        return NULL;
    *revision = a->revision;
    (void)snprintf(id, sizeof id, "%.48s-%" PRIu64, a->id, a->revision);
    (void)snprintf(type, sizeof type, "dev.stockade.approval.%s", state_name(a->state));
    time_text(now / SECOND_NS, at);
    json_t *event = json_pack("{ss ss ss ss ss ss ss so}", "specversion", "1.0", "id", id, "source",
                              "/stockade/approvals", "type", type, "subject", a->id, "time", at,
                              "datacontenttype", "application/json", "data", data_of(a));
    char *text = event != NULL ? json_dumps(event, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(event);
    return text;
}

// ---- Its delivery

static void
headers_of(void *webhook, const uint8_t *bytes, size_t n, struct delivery_headers *out)
{
    struct webhook *w = webhook;
    signature_headers(w->signature, bytes, n, out);
}

const struct delivery_format webhook_format = {
    .content_type = CLOUDEVENTS_TYPE,
    .records_max = 1,
    .headers = headers_of,
};

// ---- The watch

static void begin(struct webhook *w);

static void
on_again(uv_timer_t *timer)
{
    begin(timer->data);
}

static void
again_later(struct webhook *w)
{
    if (w->closing)
        return;
    (void)uv_timer_start(&w->again, on_again, w->again_ms, 0);
    w->again_ms = w->again_ms * 2 < AGAIN_MAX_MS ? w->again_ms * 2 : AGAIN_MAX_MS;
}

// What cannot be stored ends the watch, and comes again with the next one.
static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct webhook *w = cookie;
    uint64_t revision = 0;
    char *auto_free event = webhook_event(bytes, n, now_ns(CLOCK_REALTIME), &revision);
    if (event == NULL || w->store(w->cookie, event, strlen(event)) < 0)
        return 1;
    w->again_ms = AGAIN_MIN_MS;
    (void)position_note(&w->position, instance, revision);
    return 0;
}

static void
on_end(void *cookie, const struct stockade_end *end)
{
    (void)end;
    again_later(cookie);
}

static void
begin(struct webhook *w)
{
    uint8_t body[REQUEST_MAX];
    struct stockade_error e;
    struct stockade_request r = STOCKADE_REQUEST_INIT;
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    char all[] = "*";
    Stockade__V1__ApprovalServiceWatchRequest m =
        STOCKADE__V1__APPROVAL_SERVICE_WATCH_REQUEST__INIT;
    m.tenant = all;
    m.after_revision = w->position.sequence;
    r.body =
        (struct stockade_bytes){body, stockade__v1__approval_service_watch_request__pack(&m, body)};
    r.method = "/stockade.v1.ApprovalService/Watch";
    r.on_message = on_message;
    r.cookie = w;
    a.on_end = on_end;
    a.cookie = w;
    if (stockade_begin(w->s, &r, &a, NULL, &e) < 0)
        again_later(w);
}

// ---- Begin and end

int
webhook_open(const char *secret_file, const char *folder, struct webhook **out, struct err *e)
{
    char path[POSITION_PATH_MAX + 16];
    if (secret_file[0] == '\0')
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "approvals.secret_file: is missing, the file with the key that signs");
    struct webhook *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "open the webhook");
    w->position.fd = -1;
    w->again_ms = AGAIN_MIN_MS;
    int r = signature_open(secret_file, &w->signature, e);
    (void)snprintf(path, sizeof path, "%s/revision", folder);
    if (r == 0)
        r = position_open(&w->position, path, e);
    if (r < 0) {
        webhook_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void
webhook_begin(struct webhook *w, uv_loop_t *loop, struct stockade *s,
              int (*store)(void *cookie, const char *bytes, size_t n), void *cookie)
{
    w->s = s;
    w->store = store;
    w->cookie = cookie;
    (void)uv_timer_init(loop, &w->again); // cannot fail
    w->again.data = w;
    begin(w);
}

void
webhook_close(struct webhook *w)
{
    if (w == NULL || w->closing)
        return;
    w->closing = true;
    if (w->s != NULL)
        uv_close((uv_handle_t *)&w->again, NULL);
}

void
webhook_free(struct webhook *w)
{
    if (w == NULL)
        return;
    position_close(&w->position);
    signature_free(w->signature);
    free(w);
}
