// SPDX-License-Identifier: Apache-2.0
// See sleep.h: translation between messages and server/sleep/sleepers.h. A call that needs a sandbox which is asleep waits before it
// comes here (dispatch_gate), so Wake only says how it is.
#include "sleep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "convert.h"
#include "server/access/tokens.h"
#include "server/base/server.h"
#include "server/sleep/sleepers.h"

struct pending {
    struct server *s;
    struct call *call; // NULL: nobody waits
    struct sleep_waiter *waiter;
    char id[65];
    bool absent; // Delete: it is not here, only on the disk
    void (*delete_box)(struct server *s, struct call *c, const char *id);
};

static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, struct arena *a,
      Stockade__V1__Sandbox *m)
{
    Stockade__V1__SandboxServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__SandboxServiceSleepResponse) &&
                       sizeof response == sizeof(Stockade__V1__SandboxServiceWakeResponse),
                   "they are filled in the same way");
    if (a == NULL || m == NULL) {
        convert_no_memory(c);
        return;
    }
    answer->message_init((ProtobufCMessage *)&response);
    response.sandbox = m;
    call_reply(c, &response.base);
}

static void
reply_sleeper(struct call *c, const ProtobufCMessageDescriptor *answer, const struct sleeper *sl)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    reply(c, answer, a, a == NULL ? NULL : sleeper_message(a, sl));
}

bool
sleep_reply(const struct server *s, struct call *c, const char *id,
            const ProtobufCMessageDescriptor *answer)
{
    const struct sleeper *sl = sleepers_find(s->sleepers, call_tenant(c), id);
    if (sl != NULL)
        reply_sleeper(c, answer, sl);
    return sl != NULL;
}

int
sleep_gate(void *server, struct call *c, const char *name, struct err *e)
{
    static const char prefix[] = "/stockade.v1.";
    const struct server *s = server;
    const struct sleeper *sl = sleepers_find(s->sleepers, call_tenant(c), name);
    if (sl != NULL) {
        const struct deed deed = {.method = call_method_path(c) + sizeof prefix - 1,
                                  .sandbox_id = sl->id.id,
                                  .sandbox_name = sl->name,
                                  .template = sl->template};
        int r = token_allows_named(s->access, call_principal(c), &deed, e);
        if (r < 0)
            return r;
    }
    return sleepers_gate(s->sleepers, c, name, e);
}

static struct pending *
pending_new(struct server *s, struct call *c, const char *id)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        convert_no_memory(c);
        return NULL;
    }
    *p = (struct pending){.s = s, .call = c};
    (void)snprintf(p->id, sizeof p->id, "%s", id);
    return p;
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    sleep_unwait(p->waiter);
    free(p);
}

static void
on_asleep(void *cookie, const struct sleeper *sl, const struct err *e)
{
    struct pending *p = cookie;
    struct err gone;
    (void)err_set(&gone, ERR_ABORTED, "the sandbox was deleted meanwhile");
    if (e != NULL || sl == NULL)
        call_fail(p->call, e != NULL ? e : &gone);
    else
        reply_sleeper(p->call, &stockade__v1__sandbox_service_sleep_response__descriptor, sl);
    free(p);
}

void
sandbox_sleep(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceSleepRequest *m =
        (const Stockade__V1__SandboxServiceSleepRequest *)req;
    struct err e;
    if (sleep_reply(s, c, m->id, &stockade__v1__sandbox_service_sleep_response__descriptor))
        return;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->id, &e);
    struct pending *p = sb == NULL ? NULL : pending_new(s, c, m->id);
    if (sb == NULL) {
        call_fail(c, &e);
    } else if (p != NULL &&
               sleepers_sleep(s->sleepers, sb, m->stop, on_asleep, p, &p->waiter, &e) < 0) {
        call_fail(c, &e);
        free(p);
    } else if (p != NULL) {
        call_watch(c, on_cancel, NULL, p);
    }
}

void
sandbox_wake(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct err e;
    const struct sandbox *sb =
        sandbox_find(s->sandboxes, call_tenant(c),
                     ((const Stockade__V1__SandboxServiceWakeRequest *)req)->id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    reply(c, &stockade__v1__sandbox_service_wake_response__descriptor, a,
          a == NULL ? NULL : convert_sandbox(a, sb));
}

// ---- Delete

static void
on_forgotten(void *cookie, const struct sleeper *sl, const struct err *e)
{
    struct pending *p = cookie;
    struct err gone;
    (void)sl;
    Stockade__V1__SandboxServiceDeleteResponse response =
        STOCKADE__V1__SANDBOX_SERVICE_DELETE_RESPONSE__INIT;
    if (e != NULL)
        call_fail(p->call, e);
    else if (p->absent && sandbox_find(p->s->sandboxes, call_tenant(p->call), p->id, &gone) == NULL)
        call_reply(p->call, &response.base);
    else
        p->delete_box(p->s, p->call, p->id);
    free(p);
}

void
sleep_delete(struct server *s, struct call *c, const char *id,
             void (*delete_box)(struct server *s, struct call *c, const char *id))
{
    struct err e;
    struct pending *p = pending_new(s, c, id);
    if (p == NULL)
        return;
    p->delete_box = delete_box;
    p->absent = sleepers_find(s->sleepers, call_tenant(c), id) != NULL;
    int r = sleepers_forget(s->sleepers, call_tenant(c), id, on_forgotten, p, &p->waiter, &e);
    if (r == 0) {
        call_watch(c, on_cancel, NULL, p);
        return;
    }
    free(p);
    if (r < 0)
        call_fail(c, &e);
    else
        delete_box(s, c, id);
}
