// SPDX-License-Identifier: Apache-2.0
// See async.h. Calls with something to pass on stand in a list; stockade_pump() takes the first, passes on one message and
// puts it at the end again, so that one busy stream does not delay the others.
#include "async.h"

#include <limits.h>

#include "calls.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "pump.h"
#include "ready.h"
#include "requests.h"
#include "watch.h"

enum { PASS_ON_MAX = 4096 }; // messages per stockade_pump(), so that it returns

// Its id is unknown from now on. Lock held; released during on_end.
static void
end(struct call *c)
{
    struct stockade *s = c->s;
    call_forget(c);
    watch_unlock(s);
    c->sink->on_end(c->cookie, c->id, c->rc, call_error(c));
    pthread_mutex_lock(&s->lock);
    call_release(c);
    s->begun--;
}

static void
pass_on(struct stockade *s)
{
    struct arena *auto_arena arena = NULL;
    for (int i = 0; i < PASS_ON_MAX && s->ready_first != NULL; i++) {
        struct call *c = ready_take(s);
        if (!ready_is(c))
            continue; // held or cancelled meanwhile
        if (c->first == NULL) {
            end(c);
            continue;
        }
        call_pass_on(c, &arena);
        ready_add(c);
    }
}

// ---- Begin and end

int
async_options(struct stockade_async *to, const struct stockade_async *from,
              struct stockade_error *error)
{
    struct err e;
    if (request_options(to, sizeof *to, from, &e) < 0)
        return error_from_err(error, &e);
    if (to->on_end != NULL)
        return 0;
    (void)err_field(&e, "on_end", "there is no function for the end of the call");
    return error_from_err(error, &e);
}

int
async_begin(struct stockade *s, struct call_spec *spec, const struct stockade_async *a,
            uint64_t *id, struct stockade_error *e)
{
    struct call *c = NULL;
    spec->pumped = true;
    spec->credit = a->credit;
    spec->id = id;
    return call_begin(&c, s, spec, e);
}

void
async_end(const struct stockade_async *a, uint64_t id, int rc, const struct stockade_error *error,
          const struct stockade_result *result, const struct stockade_bytes *response)
{
    struct stockade_end end = {
        .call = id,
        .error = rc < 0 ? error : NULL,
        .result = rc < 0 ? NULL : result,
        .response = rc < 0 || response == NULL ? (struct stockade_bytes){0} : *response,
    };
    a->on_end(a->cookie, &end);
}

static void
end_closed(struct call *c, void *cookie)
{
    bool whole = c->done && c->first == NULL;
    pump_drop_messages(c);
    if (!whole)
        pump_fail(c, error_errno(STOCKADE_CANCELLED), cookie);
    ready_add(c);
}

void
async_end_all(struct stockade *s)
{
    static struct stockade_error closed = {
        .code = STOCKADE_CANCELLED, .reason = "HANDLE_CLOSED", .text = "the handle was closed"};
    s->closing = true;
    call_set_each(&s->calls, end_closed, &closed);
    while (s->ready_first != NULL)
        end(ready_take(s));
}

// ---- stockade_poll.h

static int
refuse(enum err_code code, const char *reason, const char *text, struct stockade_error *error)
{
    struct err e;
    (void)err_set(&e, code, "%s", text);
    err_detail(&e, reason, NULL, NULL);
    return error_from_err(error, &e);
}

static int
no_handle(struct stockade_error *e)
{
    return refuse(ERR_INVALID_ARGUMENT, NULL, "there is no handle", e);
}

int
stockade_pump(struct stockade *s, int timeout_ms, struct stockade_error *e)
{
    if (s == NULL)
        return no_handle(e);
    pthread_mutex_lock(&s->lock);
    if (s->in_pump || s->closing) {
        watch_unlock(s);
        return refuse(ERR_FAILED_PRECONDITION, "PUMP_BUSY",
                      "stockade_pump() is in progress: on another thread, or this is one of its "
                      "callbacks",
                      e);
    }
    s->in_pump = true;
    watch_quiet(s);
    uint64_t until = 0;
    if (timeout_ms > 0)
        until = link_now_ns() + (unsigned)timeout_ms * NS_PER_MS;
    if (timeout_ms != 0 && s->ready_first == NULL && s->begun > 0)
        pump_wait(s, until);
    else if (!s->polling)
        pump_work(s);
    pass_on(s);
    s->in_pump = false;
    int left = s->begun > INT_MAX ? INT_MAX : (int)s->begun;
    watch_unlock(s);
    return left;
}

// The call with this id, with the handle's lock held; NULL: the lock is not held, *rc says why.
static struct call *
find_begun(struct stockade *s, uint64_t id, int *rc, struct stockade_error *e)
{
    if (s == NULL) {
        *rc = no_handle(e);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    struct call *c = call_set_find(&s->calls, id);
    if (c != NULL && c->pumped)
        return c;
    watch_unlock(s);
    *rc = refuse(ERR_NOT_FOUND, "CALL_ENDED", "there is no such call; it may have ended", e);
    return NULL;
}

int
stockade_cancel(struct stockade *s, uint64_t call, struct stockade_error *e)
{
    static const struct stockade_error cancelled = {.code = STOCKADE_CANCELLED,
                                                    .text = "cancelled by the calling program"};
    int rc = 0;
    struct call *c = find_begun(s, call, &rc, e);
    if (c == NULL)
        return rc;
    bool whole = c->done && c->first == NULL;
    pump_drop_messages(c);
    c->muted = true;
    if (!whole && c->done)
        pump_fail(c, error_errno(STOCKADE_CANCELLED),
                  &cancelled); // it ended, but not all was passed on
    call_cancel(c);
    ready_add(c);
    watch_unlock(s);
    return 0;
}

int
stockade_hold(struct stockade *s, uint64_t call, bool hold, struct stockade_error *e)
{
    int rc = 0;
    struct call *c = find_begun(s, call, &rc, e);
    if (c == NULL)
        return rc;
    c->held = hold;
    ready_add(c);
    ready_wake(s);
    watch_unlock(s);
    return 0;
}
