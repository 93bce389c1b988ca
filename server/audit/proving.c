// SPDX-License-Identifier: Apache-2.0
// Looks for one job's proof (proto/audit_prove.h), from the newest file backwards, a piece at a time.
//
//   file n            from its beginning to its end: found? --> on through the next files until a checkpoint covers it
//   file n - 1, ...   not found
//
// A checkpoint may cover records of two files, when the broker was killed or the disk failed in between: the prover begins again one
// file earlier.
#include "private.h"
#include "read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/audit_prove.h"
#include "proto/auto.h"

#define BYTES_MOST (UINT64_C(1) << 30)

struct audit_proving {
    char process_id[49], tenant[33];
    bool all, began;
    struct audit_prover *prover;
    uint32_t from;   // the file that it began with
    uint64_t looked; // bytes
    const struct audit_cursor *cursor;
    bool complete, elsewhere, torn, foreign; // why the reading stopped
};

struct audit_proving *
audit_proving_new(const char *process_id, const char *tenant)
{
    struct audit_proving *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    (void)snprintf(p->process_id, sizeof p->process_id, "%s", process_id);
    (void)snprintf(p->tenant, sizeof p->tenant, "%s", tenant != NULL ? tenant : "");
    p->all = tenant == NULL;
    return p;
}

void
audit_proving_free(struct audit_proving *p)
{
    if (p == NULL)
        return;
    audit_prover_free(p->prover);
    free(p);
}

static bool
is_found(const struct audit_proving *p)
{
    struct err e;
    (void)audit_prover_missing(p->prover, &e);
    return strcmp(e.reason, "AUDIT_NOT_SIGNED") == 0;
}

static int
feed(void *proving, const struct audit_frame *f, const Stockade__V1__AuditRecord *m, struct err *e)
{
    struct audit_proving *p = proving;
    struct err why;
    p->looked += f->bytes;
    p->elsewhere = p->cursor->number != p->from && !is_found(p);
    p->foreign = !p->all && m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_JOB &&
                 strcmp(m->job->process_id, p->process_id) == 0 &&
                 strcmp(m->job->tenant, p->tenant) != 0;
    if (p->elsewhere || p->foreign)
        return AUDIT_CURSOR_STOP;
    const int r = audit_prover_feed(p->prover, f, &why);
    p->complete = r > 0;
    p->torn = r < 0 && is_found(p);
    if (r < 0 && !p->torn) {
        *e = why;
        return r;
    }
    return r != 0 ? AUDIT_CURSOR_STOP : 0;
}

// Begins with the newest file, or the one before the last one. NOT_FOUND: there is none.
static int
step(struct audit_proving *p, struct audit_cursor *c, struct err *e)
{
    uint32_t *auto_free files = NULL;
    const int n = audit_list(c->dir, "the audit log", &files, e);
    int at = n - 1;
    while (p->began && at >= 0 && files[at] >= p->from)
        at--;
    if (n < 0)
        return n;
    audit_prover_free(take_ptr(p->prover));
    p->prover = audit_prover_new(p->process_id);
    if (p->prover == NULL)
        return err_sys(e, ENOMEM, "prove a record");
    if (at < 0 || p->looked > BYTES_MOST)
        return audit_prover_missing(p->prover, e);
    p->began = true;
    p->from = c->number = files[at];
    c->offset = c->after = 0;
    return 0;
}

int
audit_proving_run(struct audit_proving *p, struct audit_cursor *c, uint64_t limit, char **text,
                  struct err *e)
{
    int r = p->began ? 0 : step(p, c, e);
    if (r < 0)
        return r;
    p->cursor = c;
    p->complete = p->elsewhere = p->torn = p->foreign = false;
    r = audit_cursor_read(c, limit, AUDIT_READ_BYTES, feed, p, e);
    if (r < 0 || r == AUDIT_CURSOR_MORE || (r == AUDIT_CURSOR_END && is_found(p)))
        return r;
    if (p->complete) {
        *text = audit_prover_text(p->prover, NULL, 0);
        return *text != NULL ? AUDIT_CURSOR_STOP : err_sys(e, ENOMEM, "prove a record");
    }
    if (p->foreign) { // as if it were not there
        audit_prover_free(p->prover);
        p->prover = audit_prover_new(p->process_id);
        return p->prover != NULL ? audit_prover_missing(p->prover, e)
                                 : err_sys(e, ENOMEM, "prove a record");
    }
    r = step(p, c, e);
    return r < 0 ? r : AUDIT_CURSOR_MORE;
}
