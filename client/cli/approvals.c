// SPDX-License-Identifier: Apache-2.0
// approvals: calls that wait for the agreement of others. ls, show, approve, deny, cancel, watch.
#include "approvals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/arena.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "actions.h"
#include "commands.h"
#include "feed.h"
#include "json.h"
#include "remote.h"
#include "sink.h"
#include "units.h"

#define METHOD(name) "/stockade.v1.ApprovalService/" name

enum { ANSWER_MAX = 4 * 1024 * 1024, STATE_MAX = 64, CELL_MAX = 2048 };

// Makes a call whose response has one approval; NULL: the failure was reported.
static const Stockade__V1__Approval *
call(const struct acting *a, const char *method, const ProtobufCMessage *request,
     const ProtobufCMessageDescriptor *response, struct arena *arena, int *code)
{
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    if (remote_call(a->s, method, request, response, arena, &m, &e) < 0) {
        *code = actions_fail(a, &e, "id");
        return NULL;
    }
    const Stockade__V1__Approval *one =
        ((const Stockade__V1__ApprovalServiceGetResponse *)m)->approval; // all look like this one
    if (one == NULL)
        *code = actions_no_memory(a);
    return one;
}

static const Stockade__V1__Approval *
get(const struct acting *a, struct arena *arena, int *code)
{
    Stockade__V1__ApprovalServiceGetRequest m = STOCKADE__V1__APPROVAL_SERVICE_GET_REQUEST__INIT;
    m.id = a->name;
    return call(a, METHOD("Get"), &m.base, &stockade__v1__approval_service_get_response__descriptor,
                arena, code);
}

static int
put(const struct acting *a, const Stockade__V1__Approval *one)
{
    char state[STATE_MAX];
    if (a->o->json)
        return json_put(approval_json(one));
    (void)printf("%s\n", approval_state(one, state, sizeof state));
    return EXIT_OK;
}

static int
show(const struct acting *a)
{
    int code = EXIT_OK;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    const Stockade__V1__Approval *one = arena != NULL ? get(a, arena, &code) : NULL;
    if (one == NULL)
        return arena == NULL ? actions_no_memory(a) : code;
    if (a->o->json)
        return json_put(approval_json(one));
    approval_print(one);
    return EXIT_OK;
}

// What the broker approves is what was shown: the digest goes with the answer.
static int
approve(const struct acting *a)
{
    int code = EXIT_OK;
    Stockade__V1__ApproveRequest m = STOCKADE__V1__APPROVE_REQUEST__INIT;
    Stockade__V1__ApprovalGrant grant = STOCKADE__V1__APPROVAL_GRANT__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    const Stockade__V1__Approval *one = arena != NULL ? get(a, arena, &code) : NULL;
    if (one == NULL)
        return arena == NULL ? actions_no_memory(a) : code;
    m.id = a->name;
    m.digest = one->digest;
    m.comment = a->o->name != NULL ? a->o->name : "";
    m.grant = &grant;
    grant.ttl_ms = a->o->ttl_ms;
    if (a->o->ttl_ms != 0)
        grant.reach = STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_SESSION;
    if (a->o->glob != NULL) {
        grant.reach = STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_PATTERN;
        grant.pattern = a->o->glob;
    }
    if (!a->o->json)
        (void)fprintf(stderr, "%s: %s %s\n", one->requester, one->method, one->subject);
    one = call(a, METHOD("Approve"), &m.base, &stockade__v1__approve_response__descriptor, arena,
               &code);
    return one != NULL ? put(a, one) : code;
}

static int
deny(const struct acting *a)
{
    int code = EXIT_OK;
    Stockade__V1__DenyRequest m = STOCKADE__V1__DENY_REQUEST__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return actions_no_memory(a);
    m.id = a->name;
    m.comment = a->o->name != NULL ? a->o->name : "";
    const Stockade__V1__Approval *one =
        call(a, METHOD("Deny"), &m.base, &stockade__v1__deny_response__descriptor, arena, &code);
    return one != NULL ? put(a, one) : code;
}

static int
cancel(const struct acting *a)
{
    int code = EXIT_OK;
    Stockade__V1__ApprovalServiceCancelRequest m =
        STOCKADE__V1__APPROVAL_SERVICE_CANCEL_REQUEST__INIT;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return actions_no_memory(a);
    m.id = a->name;
    const Stockade__V1__Approval *one =
        call(a, METHOD("Cancel"), &m.base,
             &stockade__v1__approval_service_cancel_response__descriptor, arena, &code);
    return one != NULL ? put(a, one) : code;
}

// ---- ls

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__ApprovalServiceListRequest request =
        STOCKADE__V1__APPROVAL_SERVICE_LIST_REQUEST__INIT;
    if (arena == NULL)
        return actions_no_memory(a);
    request.page_token = l->page;
    request.tenant = a->o->tenant != NULL ? a->o->tenant : "";
    if (!a->o->all)
        request.state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
    if (remote_call(a->s, METHOD("List"), &request.base,
                    &stockade__v1__approval_service_list_response__descriptor, arena, &m, &e) < 0)
        return actions_fail(a, &e, "id");
    const Stockade__V1__ApprovalServiceListResponse *all =
        (const Stockade__V1__ApprovalServiceListResponse *)m;
    for (size_t i = 0; i < all->n_approvals && l->table != NULL; i++) {
        const Stockade__V1__Approval *one = all->approvals[i];
        char age[16], state[STATE_MAX];
        (void)json_array_append_new(l->array, approval_json(one));
        (void)table_row(
            l->table,
            (const char *[]){
                one->id, one->requester,
                units_show_age(now_wall_ms() - approval_ms(one->create_time), age, sizeof age),
                approval_state(one, state, sizeof state), one->method, one->subject});
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page_token);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"APPROVAL", "REQUESTER", "AGE",
                                       "STATE",    "METHOD",    "SUBJECT"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

// ---- watch

struct view {
    const struct acting *a;
    struct arena *arena;
    uint64_t revision; // of the last one that was printed
    int code;
    bool damaged;
};

static int
on_message(void *cookie, const void *bytes, size_t n)
{
    struct view *v = cookie;
    char state[STATE_MAX], text[CELL_MAX];
    struct err e;
    ProtobufCMessage *m = NULL;
    arena_reset(v->arena);
    if (wire_unpack(&stockade__v1__approval_service_watch_response__descriptor, bytes, n, v->arena,
                    &m, &e) < 0) {
        v->damaged = true;
        return 1;
    }
    const Stockade__V1__Approval *one =
        ((const Stockade__V1__ApprovalServiceWatchResponse *)m)->approval;
    if (one == NULL)
        return 0;
    v->revision = one->revision;
    if (v->a->o->json) {
        v->code = json_put(approval_json(one));
    } else {
        (void)printf("%s  %s  %s  ", one->id, approval_state(one, state, sizeof state),
                     one->requester);
        (void)printf("%s  %s\n", one->method, text_clean(one->subject, text, sizeof text));
    }
    if (v->code == EXIT_OK)
        v->code = cli_flush(v->a->c);
    return v->code;
}

static int
watch_once(struct view *v, struct stockade_error *e)
{
    Stockade__V1__ApprovalServiceWatchRequest m =
        STOCKADE__V1__APPROVAL_SERVICE_WATCH_REQUEST__INIT;
    m.id = v->a->name != NULL ? v->a->name : "";
    m.tenant = v->a->o->tenant != NULL ? v->a->o->tenant : "";
    m.after_revision = v->revision;
    return remote_watch(v->a->s, METHOD("Watch"), &m.base, on_message, v, e);
}

// A broker that is restarted has all approvals: the watch goes on after the last one that was printed.
static int
watch(const struct acting *a)
{
    const struct feed_options feeding = {.s = a->s, .outlet = true};
    const struct timespec pause = {.tv_nsec = 200 * 1000000L};
    struct stockade_error e = {0};
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    struct view v = {.a = a, .arena = arena};
    struct feed *feed = arena != NULL ? feed_start(&feeding) : NULL;
    bool away = false;
    if (feed == NULL)
        return EXIT_PROBLEM;
    int rc = watch_once(&v, &e);
    while (rc < 0 && e.code == STOCKADE_UNAVAILABLE && v.revision > 0 && v.code == EXIT_OK &&
           !sink_is_gone()) {
        if (!away)
            cli_connection(a->c, &e);
        away = true;
        (void)nanosleep(&pause, NULL);
        rc = watch_once(&v, &e);
    }
    (void)feed_stop(feed);
    if (v.damaged) {
        e = (struct stockade_error){.code = STOCKADE_DATA_LOSS, .text = "a response is damaged"};
        return actions_fail(a, &e, "id");
    }
    if (v.code != EXIT_OK)
        return v.code;
    if (rc < 0 && sink_is_gone())
        return EXIT_PIPE;
    return rc < 0 ? actions_fail(a, &e, "id") : EXIT_OK;
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    if ((o->ttl_ms != 0 || o->glob != NULL) && a->run != approve)
        return cli_usage(c, "--for and --pattern need the action approve", "");
    if (o->name != NULL && a->run != approve && a->run != deny)
        return cli_usage(c, "--comment needs the action approve or deny", "");
    if (o->all && a->run != list)
        return cli_usage(c, "--all needs the action ls", "");
    if (o->tenant != NULL && a->run != list && a->run != watch)
        return cli_usage(c, "--tenant needs the action ls or watch", "");
    return EXIT_OK;
}

static const struct action all[] = {
    {"ls", 1, 1, NULL, list},
    {"show", 2, 2, "APPROVAL", show},
    {"approve", 2, 2, "APPROVAL", approve},
    {"deny", 2, 2, "APPROVAL", deny},
    {"cancel", 2, 2, "APPROVAL", cancel},
    {"watch", 1, 2, NULL, watch},
    {0},
};

int
cli_approvals(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are ls, show, approve, deny, cancel APPROVAL and watch [APPROVAL]",
        .check = check,
    };
    return actions_run(&actions, c, o);
}
