// SPDX-License-Identifier: Apache-2.0
// See pending.h.
#include "pending.h"

#include <stdlib.h>

#include "convert.h"
#include "server/rpc/call.h"

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    p->unwait(p->op);
    free(p);
}

struct pending *
pending_new(struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer,
            void (*unwait)(void *op))
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL)
        convert_no_memory(c);
    else
        *p = (struct pending){.s = s, .call = c, .answer = answer, .unwait = unwait};
    return p;
}

void
pending_begun(struct pending *p, int r, void *op, const struct err *e)
{
    if (r < 0) {
        pending_end(p, e);
        return;
    }
    p->op = op;
    call_watch(p->call, on_cancel, NULL, p);
}

void
pending_end(struct pending *p, const struct err *e)
{
    if (e != NULL)
        call_fail(p->call, e);
    free(p);
}
