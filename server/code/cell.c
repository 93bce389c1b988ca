// SPDX-License-Identifier: Apache-2.0
// See context_private.h: the cells of a context, one after the other.
//
//   waiting --interpreter is idle--> current --done, or the interpreter ended, and all of its output was sent--> END
//
// What a cell prints comes from two places: frames (python and node write them for sys.stdout and process.stdout), and the
// pipes of the job (bash, and programs that a cell starts), which are read once the guest has said that it runs: an
// interpreter may be ready before that. A `done` frame was sent after everything that the cell wrote, so the pipes are read once more before END.
#include "context_private.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"

enum {
    BEGIN_MS = 2, // BEGIN is sent with the first event, or alone after this time
    AGAIN_MS = 500,
    CLOSED_MS = 1000, // from the end of its link to the end of the interpreter
    STEPS_MAX = 64,   // in one turn of the loop: frames may come faster than they are read
    HELD_UP_MS = 20,  // between two looks at a sandbox that is frozen, or gets other files
    NEXT_TURN_MS = 1, // a timer of 0 ms that a timer starts runs in the same turn before libuv 1.45
    FORGED_MAX = 100, // ends of earlier cells, which cost the broker time and their sender nothing
    START_FAILED_MAX = 300,
};

static uv_loop_t *
loop_of(const struct context *c)
{
    return c->all->srv->loop;
}

static void
run_free(struct code_run *r)
{
    free(r->text);
    free(r);
}

static void
finish(struct context *c, struct code_end *end)
{
    struct code_run *r = c->current;
    loop_timer_stop(&c->limit);
    loop_timer_stop(&c->again);
    c->interrupts = 0;
    c->current = NULL;
    cell_burst_none(c);
    if (c->state == CONTEXT_BUSY)
        c->state = CONTEXT_IDLE;
    kernel_link_hold(&c->link, true);
    kernel_link_rest(&c->link);
    metrics_add_by(METRIC_CELLS_ENDED, end->status, 0, 1);
    if (r->began_ns != 0)
        metrics_observe(METRIC_CELL_TIME, 0, uv_hrtime() - r->began_ns);
    cell_deliver_end(r, end);
    run_free(r);
}

// ---- frames

static int
broke(struct context *c, const char *what)
{
    return err_set(&c->broke, ERR_INTERNAL, "the interpreter broke the protocol: %s", what);
}

static int
failure(struct context *c, const struct kernel_frame *f)
{
    static char text[3 * KERNEL_PAYLOAD_MAX + 3];
    struct code_event ev = {.kind = CODE_FAILURE};
    kernel_error_read(f->payload, f->n, text, &ev.failure);
    return cell_deliver(c->current, &ev);
}

static int
could_not_start(struct context *c, const struct kernel_frame *f)
{
    const int n = f->n < START_FAILED_MAX ? (int)f->n : START_FAILED_MAX;
    int r = err_set(&c->broke, ERR_FAILED_PRECONDITION, "the interpreter has ended: %.*s", n,
                    (const char *)f->payload);
    err_sanitize(&c->broke);
    return r;
}

// A frame while a cell runs. 0: handled; -EAGAIN: it stays; other negative: it broke the protocol. DONE is not handled here.
static int
on_cell_frame(struct context *c, const struct kernel_frame *f)
{
    if (f->run > c->current->number)
        return broke(c, "a message of a cell that was not sent");
    if (f->kind == KERNEL_FAILED && f->run == 0)
        return could_not_start(c, f);
    if (f->kind == KERNEL_STDOUT || f->kind == KERNEL_STDERR)
        return cell_add_output(c, f->kind == KERNEL_STDOUT ? OUTPUT_STDOUT : OUTPUT_STDERR,
                               f->payload, f->n);
    int r = cell_flush(c, f->kind == KERNEL_RESULT || f->kind == KERNEL_ERROR);
    if (r < 0)
        return r;
    if (f->kind == KERNEL_ERROR)
        return failure(c, f);
    const struct code_event ev = {.kind = CODE_RESULT, .result = f, .bytes = f->payload, .n = f->n};
    if (f->kind == KERNEL_RESULT)
        return cell_deliver(c->current, &ev);
    return broke(c, "a message that does not belong to a cell");
}

static int
on_first_frame(struct context *c, const struct kernel_frame *f)
{
    if (f->kind != KERNEL_READY)
        return broke(c, "it did not begin with ready");
    c->state = CONTEXT_IDLE;
    if (c->sandbox != NULL)
        cell_bill_begin(c);
    kernel_link_hold(&c->link, true);
    kernel_link_rest(&c->link);
    return 0;
}

// ---- the beginning of a cell

static void
on_again(void *cookie)
{
    struct context *c = cookie;
    if (c->current == NULL)
        return;
    if (++c->interrupts * AGAIN_MS >= CONTEXT_GRACE_MS) {
        context_kill(c, c->stop);
        return;
    }
    context_interrupt(c);
    (void)loop_timer_start(loop_of(c), &c->again, AGAIN_MS, on_again, c);
}

void
cell_must_end(struct context *c, enum code_stop why)
{
    c->stop = why;
    c->interrupts = 0;
    context_interrupt(c);
    if (loop_timer_start(loop_of(c), &c->again, AGAIN_MS, on_again, c) < 0)
        context_kill(c, why);
}

static void
on_limit(void *cookie)
{
    struct context *c = cookie;
    loop_timer_stop(&c->limit);
    if (c->current != NULL && c->stop == STOP_NONE)
        cell_must_end(c, STOP_TIMEOUT);
}

static struct code_run *
take_waiting(struct context *c)
{
    struct code_run *r = list_entry(c->waiting.next, struct code_run, node);
    list_remove(&r->node);
    c->waiting_n--;
    return r;
}

static void
begin(struct context *c)
{
    struct code_run *r = c->current = take_waiting(c);
    struct err e;
    r->number = ++c->runs;
    c->state = CONTEXT_BUSY;
    c->stop = STOP_NONE;
    c->begin_alone = false;
    r->began_ns = uv_hrtime();
    if (kernel_link_send(&c->link, "run", r->number, r->text, r->text_n, &e) < 0) {
        c->broke = e;
        context_kill(c, STOP_NONE);
    }
    free(r->text);
    r->text = NULL;
    kernel_link_hold(&c->link, false);
    if (r->timeout_ms > 0 &&
        loop_timer_start(loop_of(c), &c->limit, r->timeout_ms, on_limit, c) < 0)
        context_kill(c, STOP_TIMEOUT);
    cell_pump_soon(c, BEGIN_MS);
}

static void
refuse_all(struct context *c, const struct code_end *end)
{
    while (!list_empty(&c->waiting)) {
        c->current = take_waiting(c);
        struct code_end copy = *end;
        cell_bill(c->current, &copy);
        finish(c, &copy);
    }
}

// Its sandbox starts nothing now. When it is resumed, context.c calls the pump.
static bool
waits_for_sandbox(struct context *c)
{
    if (c->sandbox == NULL || !sandbox_is_held_up(c->sandbox))
        return false;
    if (c->sandbox->state != SANDBOX_PAUSED)
        cell_pump_soon(c, HELD_UP_MS);
    return true;
}

static void
start_kernel(struct context *c)
{
    struct err e;
    if (context_start(c, NULL, &e) == 0)
        return;
    const struct code_end end = {.status = CODE_CRASHED, .lost = true, .reason = e.text};
    refuse_all(c, &end);
}

// ---- the pump

static bool
is_leaving(const struct sandbox *s)
{
    return s == NULL || s->state == SANDBOX_DELETING;
}

// The interpreter has ended, and everything that it sent was read.
static void
on_kernel_over(struct context *c)
{
    char reason[CELL_REASON_MAX];
    struct code_end end;
    bool starting = c->state == CONTEXT_STARTING;
    cell_end_with_kernel(c, &end, reason);
    if (c->current != NULL) {
        cell_bill(c->current, &end);
        end.bill.f[BILL_MEMORY_PEAK_BYTES] = job_result(c->job)->bill.f[BILL_MEMORY_PEAK_BYTES];
        finish(c, &end);
    }
    if ((starting && end.status == CODE_CRASHED) || is_leaving(c->sandbox))
        refuse_all(c, &end); // another one would fail as well
    context_down(c);
}

// It still runs without its link, and is useless.
static void
on_closed(void *cookie)
{
    struct context *c = cookie;
    (void)broke(c, "it closed its link");
    context_kill(c, STOP_NONE);
}

static void
on_link_over(struct context *c)
{
    kernel_link_hold(&c->link, true);
    if (loop_timer_start(loop_of(c), &c->closed, CLOSED_MS, on_closed, c) < 0)
        on_closed(c);
}

// The cell has ended, if all of its output can be sent now: -EAGAIN otherwise.
static int
on_done(struct context *c)
{
    struct code_end end;
    if (c->frame.run > c->current->number)
        return broke(c, "the end of a cell that was not sent");
    if (c->frame.run < c->current->number) // forged by an earlier one
        return ++c->forged <= FORGED_MAX ? 0 : broke(c, "too many ends of earlier cells");
    int r = cell_take_all_pipes(c);
    if (r == 0)
        r = cell_begin(c->current, true);
    if (r < 0)
        return r;
    loop_timer_rest(c->later);
    c->fresh = false;
    cell_end_by_frame(c, &c->frame, &end);
    cell_bill(c->current, &end);
    finish(c, &end);
    return 0;
}

// 1: there is a frame to handle; 0: none now; other negative: the interpreter broke the protocol.
static int
next_frame(struct context *c)
{
    if (c->has_frame)
        return 1;
    int n = c->link_over ? 0 : kernel_link_next(&c->link, &c->frame, &c->broke);
    c->has_frame = n > 0;
    c->link_over |= n == -EPIPE || (n == 0 && c->job_over);
    if (n == -EPIPE && !c->job_over)
        on_link_over(c);
    return n == -EPIPE ? 0 : n;
}

// One frame. 1: go on; 0: nothing more now.
static int
step_frame(struct context *c)
{
    int r = next_frame(c);
    if (r == 0)
        return 0;
    if (r > 0 && c->state == CONTEXT_STARTING)
        r = on_first_frame(c, &c->frame);
    else if (r > 0)
        r = c->frame.kind == KERNEL_DONE ? on_done(c) : on_cell_frame(c, &c->frame);
    if (r == -EAGAIN)
        return 0;
    c->has_frame = false;
    if (r >= 0)
        return 1;
    c->link_over = true;
    context_kill(c, STOP_NONE);
    return 0;
}

// True: call it again.
static bool
step(struct context *c)
{
    struct code_run *r = c->current;
    if (r != NULL && r->blocked)
        return false;
    if (r != NULL && c->begin_alone && cell_begin(r, false) < 0)
        return false;
    bool reads = r != NULL || c->state == CONTEXT_STARTING;
    if (r != NULL) {
        int n = cell_take_pipes(c);
        if (n != 0)
            return n > 0;
    }
    if (reads && step_frame(c) > 0)
        return true;
    if (c->current != NULL && c->current->blocked)
        return false;
    if (c->job_over && (!reads || c->link_over)) {
        if (cell_flush(c, true) < 0 || (c->current != NULL && cell_begin(c->current, true) < 0))
            return false;
        on_kernel_over(c);
        return true;
    }
    if (c->current != NULL || c->waiting_n == 0 || c->op != NULL)
        return false;
    if (c->state == CONTEXT_DOWN && waits_for_sandbox(c))
        return false;
    if (c->state == CONTEXT_DOWN)
        start_kernel(c);
    else if (c->state == CONTEXT_IDLE && !c->dying && c->sandbox != NULL && job_has_started(c->job))
        begin(c);
    else
        return false;
    return true;
}

void
cell_pump(struct context *c)
{
    c->pump_again = true;
    if (c->pumping)
        return;
    c->pumping = true;
    unsigned steps = 0;
    while (c->pump_again && steps < STEPS_MAX) {
        c->pump_again = false;
        while (steps < STEPS_MAX && step(c))
            steps++;
    }
    c->pumping = false;
    cell_burst_wait(c);
    if (steps == STEPS_MAX)
        cell_pump_soon(c, NEXT_TURN_MS);
}

// ---- from outside

static void
on_later(void *cookie)
{
    struct context *c = cookie;
    c->begin_alone = true;
    cell_pump(c);
}

void
cell_pump_soon(struct context *c, uint64_t ms)
{
    (void)loop_timer_start(loop_of(c), &c->later, ms, on_later, c);
}

int
context_run(struct context *c, const char *text, uint64_t timeout_ms, uint64_t arrived_ns,
            const struct code_sink *sink, struct code_run **out, struct err *e)
{
    if (c->waiting_n >= CONTEXT_WAITING_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%" PRIu32 " cells already wait for context %s",
                        c->waiting_n, c->id.id);
        err_detail(e, "CONTEXT_BUSY", c->id.id, "wait for one to end, or interrupt it");
        return r;
    }
    struct code_run *r = calloc(1, sizeof *r);
    if (r != NULL)
        r->text = strdup(text);
    if (r == NULL || r->text == NULL) {
        free(r);
        return err_sys(e, ENOMEM, "run a cell");
    }
    r->text_n = strlen(text);
    r->context = c;
    r->timeout_ms = timeout_ms;
    r->arrived_ns = arrived_ns;
    r->sink = *sink;
    list_append(&c->waiting, &r->node);
    c->waiting_n++;
    *out = r;
    if (c->current == NULL && c->state == CONTEXT_IDLE && !c->dying && c->op == NULL)
        begin(c);
    else if (c->current == NULL)
        cell_pump_soon(c, c->state == CONTEXT_DOWN ? 0 : BEGIN_MS);
    return 0;
}

void
code_run_go_on(struct code_run *r)
{
    r->blocked = false;
    cell_pump(r->context);
}

void
code_run_abandon(struct code_run *r)
{
    struct context *c = r->context;
    r->abandoned = true;
    if (c->current == r) {
        r->blocked = false;
        cell_must_end(c, STOP_ABANDONED);
        cell_pump(c);
        return;
    }
    list_remove(&r->node);
    c->waiting_n--;
    run_free(r);
}

void
cell_cancel_current(struct context *c, const char *reason)
{
    struct code_end end = {.status = CODE_CANCELLED, .lost = true, .reason = reason};
    bool before = c->pumping;
    c->pumping = true; // events must not lead back here
    if (c->current != NULL) {
        cell_bill(c->current, &end);
        finish(c, &end);
    }
    c->pumping = before;
}

void
cell_cancel_all(struct context *c, const char *reason)
{
    const struct code_end end = {.status = CODE_CANCELLED, .lost = true, .reason = reason};
    c->pumping = true;
    cell_cancel_current(c, reason);
    refuse_all(c, &end);
    c->pumping = false;
}
