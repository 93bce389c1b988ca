// SPDX-License-Identifier: Apache-2.0
// See ready.h.
#include "ready.h"

#include <sys/eventfd.h>

#include "call.h"
#include "handle.h"

bool
ready_is(const struct call *c)
{
    return c->first != NULL ? !c->held : c->done;
}

void
ready_add(struct call *c)
{
    struct stockade *s = c->s;
    if (!c->pumped || c->ready || !ready_is(c))
        return;
    c->ready = true;
    c->ready_next = NULL;
    *(s->ready_last != NULL ? &s->ready_last->ready_next : &s->ready_first) = c;
    s->ready_last = c;
    if (s->polling)
        ready_wake(s);
}

struct call *
ready_take(struct stockade *s)
{
    struct call *c = s->ready_first;
    s->ready_first = c->ready_next;
    if (s->ready_first == NULL)
        s->ready_last = NULL;
    c->ready = false;
    return c;
}

void
ready_wake(struct stockade *s)
{
    pthread_cond_broadcast(&s->changed);
    if (s->polling && !s->woken) {
        s->woken = true;
        (void)eventfd_write(s->wake_fd, 1);
    }
}
