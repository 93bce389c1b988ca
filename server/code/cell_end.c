// SPDX-License-Identifier: Apache-2.0
// See context_private.h: the status, the reason and the bill of a cell that has ended.
#include "context_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/sandbox/sandbox.h"

// The files stay open from one cell to the next.
static void
read_counters(struct context *c, struct cgstat *out)
{
    cgstat_keep_job(&c->counters);
    cgstat_read_job(&c->sandbox->dirs, job_number(c->job), c->counters, out);
}

void
cell_bill_begin(struct context *c)
{
    read_counters(c, &c->billed);
}

void
cell_bill(const struct code_run *r, struct code_end *end)
{
    struct context *c = r->context;
    struct bill_input in = {.arrived_ns = r->arrived_ns,
                            .sandbox_ns = r->began_ns,
                            .started_ns = r->began_ns,
                            .ended_ns = uv_hrtime(),
                            .output_bytes = r->output_bytes + c->burst_n};
    if (c->sandbox != NULL && c->job != NULL && r->began_ns != 0) {
        struct cgstat now;
        read_counters(c, &now);
        for (unsigned i = 0; i < STATS_N; i++) {
            bool peak = i == STAT_MEMORY_PEAK_BYTES || i == STAT_PIDS_PEAK;
            in.job.v[i] = now.v[i] - (!peak && now.v[i] >= c->billed.v[i] ? c->billed.v[i] : 0);
        }
        in.job.known = now.known;
        c->billed = now;
    }
    bill_compute(&in, &end->bill);
}

static const char *
reason_of_end(const struct job_result *r, char out[CELL_REASON_MAX])
{
    if (r->outcome == OUTCOME_EXITED)
        (void)snprintf(out, CELL_REASON_MAX, "the interpreter exited with status %" PRIu32,
                       r->exit_code);
    else if (r->outcome == OUTCOME_SIGNALED)
        (void)snprintf(out, CELL_REASON_MAX,
                       "the interpreter was killed by signal %" PRIu32 " (%s)", r->signal,
                       strsignal((int)r->signal));
    else
        (void)snprintf(out, CELL_REASON_MAX, "the interpreter has ended: %.500s", r->reason);
    return out;
}

void
cell_end_with_kernel(struct context *c, struct code_end *end, char reason[CELL_REASON_MAX])
{
    const struct job_result *r = job_result(c->job);
    *end = (struct code_end){.status = CODE_CRASHED, .lost = true, .hits = r->hits};
    if (r->outcome != OUTCOME_LIMIT)
        end->hits.n = 0;
    end->reason = reason_of_end(r, reason);
    if (c->broke.code != 0)
        end->reason = c->broke.text;
    else if (c->stop == STOP_TIMEOUT)
        end->status = CODE_TIMEOUT;
    else if (c->stop == STOP_RESTART || c->stop == STOP_DELETE || r->outcome == OUTCOME_CANCELLED)
        end->status = CODE_CANCELLED;
    if (c->stop == STOP_TIMEOUT)
        end->reason = "it exceeded timeout_ms, and ignored the interrupt";
    else if (c->stop == STOP_RESTART)
        end->reason = "its context was restarted";
}

void
cell_end_by_frame(struct context *c, const struct kernel_frame *f, struct code_end *end)
{
    *end = (struct code_end){.status = f->status, .count = f->count, .reason = ""};
    c->count = f->count;
    if (c->stop == STOP_TIMEOUT && f->status != CODE_OK) {
        end->status = CODE_TIMEOUT;
        end->reason = "it exceeded timeout_ms";
    }
    c->stop = STOP_NONE;
}
