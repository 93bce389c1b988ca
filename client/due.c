// SPDX-License-Identifier: Apache-2.0
// See due.h.
#include "due.h"

#include "call.h"
#include "handle.h"
#include "link.h"

uint64_t
due_earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

uint64_t
due_quiet_ns(const struct stockade *s)
{
    if (s->open == 0 || s->link == NULL || link_due_ns(s->link) != 0)
        return 0;
    return (s->pinged_ns != 0 ? s->pinged_ns : s->heard_ns) + s->keepalive_ms * NS_PER_MS;
}

uint64_t
due_ns(const struct stockade *s)
{
    const struct call *c = call_set_first(&s->calls);
    uint64_t due = due_earlier(c != NULL ? c->deadline_ns : 0, due_quiet_ns(s));
    return s->link != NULL ? due_earlier(due, link_due_ns(s->link)) : due;
}
