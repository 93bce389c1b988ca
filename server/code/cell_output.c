// SPDX-License-Identifier: Apache-2.0
// See context_private.h: what a cell prints, on its way to the sink. Small writes are collected for BURST_MS.
#include "context_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/loop.h"
#include "server/base/server.h"

enum {
    BURST_MS = 10,
    READS_MAX = 8, // of the pipes, at the end of a cell
};

static int
deliver(struct code_run *r, const struct code_event *ev)
{
    if (r->abandoned)
        return 0;
    int rc = r->sink.event(r->sink.cookie, ev);
    r->blocked = rc == -EAGAIN;
    return rc == -EAGAIN ? rc : 0;
}

// BEGIN, unless it was taken.
int
cell_begin(struct code_run *r, bool more)
{
    struct context *c = r->context;
    const struct code_event ev = {
        .kind = CODE_BEGIN, .more = more, .begin = {c->id.id, c->sandbox_id, c->fresh}};
    int rc = r->begun ? 0 : deliver(r, &ev);
    r->begun = r->begun || rc == 0;
    return rc;
}

// All but END: BEGIN is before it.
int
cell_deliver(struct code_run *r, const struct code_event *ev)
{
    int rc = cell_begin(r, true);
    return rc == 0 ? deliver(r, ev) : rc;
}

// It is always taken.
void
cell_deliver_end(struct code_run *r, const struct code_end *end)
{
    const struct code_event ev = {.kind = CODE_END, .end = end};
    (void)deliver(r, &ev);
}

void
cell_burst_none(struct context *c)
{
    c->burst_n = 0;
    c->burst_waits = false;
    loop_timer_rest(c->burst_timer);
}

// more: an event of this cell follows at once.
int
cell_flush(struct context *c, bool more)
{
    struct code_event ev = {.kind = CODE_OUTPUT,
                            .more = more,
                            .stream = c->burst_stream,
                            .bytes = c->burst,
                            .n = c->burst_n};
    if (c->burst_n == 0 || c->current == NULL)
        return 0;
    int r = cell_deliver(c->current, &ev);
    if (r < 0)
        return r;
    c->current->output_bytes += c->burst_n;
    cell_burst_none(c);
    return 0;
}

static void
on_burst(void *cookie)
{
    struct context *c = cookie;
    c->burst_waits = false;
    if (c->current != NULL && !c->current->blocked)
        (void)cell_flush(c, false);
}

// What the end of the cell did not take with it is sent in BURST_MS.
void
cell_burst_wait(struct context *c)
{
    if (c->burst_n > 0 && !c->burst_waits)
        c->burst_waits =
            loop_timer_start(c->all->srv->loop, &c->burst_timer, BURST_MS, on_burst, c) == 0;
}

int
cell_add_output(struct context *c, unsigned stream, const uint8_t *bytes, size_t n)
{
    if (c->burst == NULL && (c->burst = malloc(BURST_MAX)) == NULL)
        return 0; // they are lost; the cell goes on
    if (c->burst_n > 0 && (c->burst_stream != stream || c->burst_n + n > BURST_MAX)) {
        int r = cell_flush(c, false);
        if (r < 0)
            return r;
    }
    memcpy(c->burst + c->burst_n, bytes, n);
    c->burst_n += n;
    c->burst_stream = stream;
    return 0;
}

int
cell_take_pipes(struct context *c)
{
    if (c->output.job == NULL)
        return 0;
    struct job_event ev = job_next(&c->output);
    if (ev.kind == JOB_NOTHING || ev.kind == JOB_ENDED)
        return 0;
    bool data = ev.kind == JOB_OUTPUT && ev.chunk.kind == OUTPUT_DATA;
    int r = data ? cell_add_output(c, ev.chunk.stream, ev.chunk.data, ev.chunk.n) : 0;
    if (r < 0)
        return r;
    job_taken(&c->output, &ev);
    return 1;
}

int
cell_take_all_pipes(struct context *c)
{
    int r = 1;
    for (int i = 0; i < READS_MAX && r > 0 && c->output.job != NULL; i++) {
        job_read_now(c->output.job);
        r = cell_take_pipes(c);
        for (int more = r; more > 0;)
            more = cell_take_pipes(c);
    }
    return r < 0 ? r : cell_flush(c, true);
}
