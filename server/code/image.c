// SPDX-License-Identifier: Apache-2.0
// See image.h.
#include "image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/sandbox/agent.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"

enum { PACKET_MAX = 512, PID_DIGITS_MAX = 10, DIGITS_MAX = 18, WHY_MAX = 400 };

enum image_state { IMAGE_FORKING, IMAGE_FORKED, IMAGE_ADOPTED, IMAGE_READY };

struct image {
    struct agent *agent; // NULL: it has ended
    struct sandbox *sandbox;
    enum image_state state;
    const struct image_events *events; // NULL: nobody waits for them
    void *cookie;
    bool given; // it is being made a job
    bool wrong; // it sent what the code of a cell made up
};

static int
wrong(struct image *i, struct err *e)
{
    i->wrong = true;
    return err_set(e, ERR_INTERNAL, "a forked interpreter sent an unexpected packet");
}

// Its parent cannot fork, and this says why.
static void
refuse(struct image *i, const char *why)
{
    const struct image_events *events = i->events;
    void *cookie = i->cookie;
    struct err e;
    (void)err_set(&e, ERR_FAILED_PRECONDITION, "the interpreter cannot be forked: %.*s", WHY_MAX,
                  why);
    err_detail(&e, "LIVE_STATE", "context_id", "close what it has open, or end it, and try again");
    err_sanitize(&e);
    image_close(i);
    if (events != NULL)
        events->ended(cookie, &e);
}

// Reads a number and the character after it. Returns what follows; NULL: it is wrong.
static const char *
take_number(const char *at, char after, uint64_t *out)
{
    const size_t n = at != NULL ? strspn(at, "0123456789") : 0;
    if (n == 0 || n > DIGITS_MAX || at[n] != after)
        return NULL;
    *out = strtoull(at, NULL, 10);
    return at + n + 1;
}

static int
take_forked(struct image *i, const char *text, struct err *e)
{
    uint64_t bytes = 0, count = 0;
    const char *at = strncmp(text, "forked ", 7) == 0 ? text + 7 : NULL;
    at = take_number(take_number(at, ' ', &bytes), '\0', &count);
    if (at == NULL || count > UINT32_MAX)
        return wrong(i, e);
    i->state = IMAGE_FORKED;
    if (i->events != NULL && i->events->forked != NULL)
        i->events->forked(i->cookie, bytes, (uint32_t)count);
    return 0;
}

static int
take_pid(struct image *i, const char *text, size_t n, struct err *e)
{
    if (n > PID_DIGITS_MAX || strspn(text, "0123456789") != n)
        return wrong(i, e);
    i->state = IMAGE_ADOPTED;
    return agent_adopt(i->agent, (uint32_t)strtoul(text, NULL, 10), e);
}

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of agent_events.packet
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    struct image *i = cookie;
    char text[PACKET_MAX + 1];
    (void)fd;
    if (n == 0 || n > PACKET_MAX || memchr(bytes, '\0', n) != NULL)
        return wrong(i, e);
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (i->state == IMAGE_FORKED)
        return take_pid(i, text, n, e);
    if (i->state != IMAGE_FORKING)
        return wrong(i, e);
    if (strncmp(text, "no ", 3) != 0)
        return take_forked(i, text, e);
    refuse(i, text + 3);
    return 0;
}

static void
on_started(void *cookie)
{
    struct image *i = cookie;
    i->state = IMAGE_READY;
    if (i->events != NULL)
        i->events->ready(i->cookie);
}

// The code of a cell has replaced what forks it. That is no fault of the broker's.
static void
blame_cell(struct err *e)
{
    (void)err_wrap(e, "the interpreter cannot be forked, by what its code did");
    e->code = ERR_FAILED_PRECONDITION;
    err_detail(e, "LIVE_STATE", "context_id", "restart the context, and try again");
}

static void
on_ended(void *cookie, const struct err *why)
{
    struct image *i = cookie;
    const struct image_events *events = i->events;
    void *owner = i->cookie;
    struct err e = *why;
    const bool forged = i->wrong || i->state < IMAGE_ADOPTED; // the guest does not know it before
    i->agent = NULL;
    if (i->given)
        return; // image_become_job() frees it
    free(i);
    if ((e.code == ERR_INTERNAL && forged) || strcmp(e.reason, AGENT_UNFIT) == 0)
        blame_cell(&e);
    if (events != NULL)
        events->ended(owner, &e);
}

static const struct agent_events agent_events = {
    .started = on_started, .packet = on_packet, .ended = on_ended};

struct image *
image_new(struct sandbox *s, const struct image_events *events, void *cookie, int *theirs,
          struct err *e)
{
    struct image *i = calloc(1, sizeof *i);
    if (i == NULL) {
        (void)err_sys(e, ENOMEM, "fork an interpreter");
        return NULL;
    }
    *i = (struct image){.sandbox = s, .events = events, .cookie = cookie};
    if (agent_fork(s, &agent_events, i, &i->agent, theirs, e) == 0)
        return i;
    free(i);
    return NULL;
}

struct image *
image_fork_by(struct agent *parent, struct sandbox *s, const struct image_events *events,
              void *cookie, struct err *e)
{
    int theirs = -1;
    struct image *i = image_new(s, events, cookie, &theirs, e);
    if (i == NULL || agent_send(parent, "fork", 4, theirs, e) == 0)
        return i;
    image_close(i);
    return NULL;
}

struct image *
image_fork(const struct image *from, const struct image_events *events, void *cookie, struct err *e)
{
    return image_fork_by(from->agent, from->sandbox, events, cookie, e);
}

bool
image_is_ready(const struct image *i)
{
    return i->state == IMAGE_READY && agent_is_running(i->agent);
}

void
image_pass(struct image *i, const struct image_events *events, void *cookie)
{
    i->events = events;
    i->cookie = cookie;
}

void
image_close(struct image *i)
{
    struct agent *a = i->agent;
    free(i);
    agent_close(a);
}

int
image_become_job(struct image *i, struct job_spec *spec, struct job **out, struct err *e)
{
    spec->agent = i->agent;
    i->given = true;
    int r = job_start(i->sandbox, spec, out, e);
    if (r < 0 && i->agent != NULL)
        agent_close(i->agent);
    free(i);
    return r;
}

int
image_check_memory(const struct sandbox *s, uint64_t bytes, struct err *e)
{
    const uint64_t most = s->spec.limits.v[LIMIT_MEMORY_BYTES];
    const uint64_t used = cgstat_memory_now(&s->dirs);
    if (most == 0 || used == 0 || (used < most && bytes <= most - used))
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "%" PRIu64 " bytes of live state beside %" PRIu64
                    " used bytes do not fit into the sandbox's %" PRIu64,
                    bytes, used, most);
    err_detail(e, "LIMIT_MEMORY", "memory_bytes", "raise the limit, or delete checkpoints");
    return r;
}
