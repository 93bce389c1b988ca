// SPDX-License-Identifier: Apache-2.0
// See record.h: collects entries while a job runs. record_message.c makes the message.
#include "record.h"

#include <stdlib.h>
#include <string.h>

#include "finding.h"

struct record *
record_new(int64_t start_ns)
{
    struct record *r = calloc(1, sizeof *r);
    if (r != NULL)
        r->start_ns = start_ns;
    return r;
}

static void
clear_denial(void *entry)
{
    struct record_denial *d = entry;
    free(d->destination);
    free(d->hint);
}

void
record_free(struct record *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->denials_n; i++)
        clear_denial(&r->denials[i]);
    for (uint32_t i = 0; i < r->executions_n; i++)
        free(r->executions[i].path);
    for (uint32_t i = 0; i < r->reached_n; i++)
        free(r->reached[i]);
    free(r->denials);
    free(r->executions);
    free(r->findings);
    free(r);
}

// Makes room for one more entry in an array that grows in steps up to `most`. NULL: out of memory, or the array is
// full.
static void *
grow(void *array, uint32_t n, uint32_t most, size_t size)
{
    enum { STEP = 8 };
    if (n >= most)
        return NULL;
    return n % STEP == 0 ? realloc(array, (n + STEP) * size) : array;
}

// A full list keeps its first half, and drops the oldest entry of its second half to free the last place. So a flood
// can displace neither the first nor the last entries of a job.
static void *
slide(struct record *r, void *array, uint32_t *n, uint32_t most, size_t size,
      void (*clear)(void *entry))
{
    char *second = (char *)array + most / 2 * size;
    r->cut = true;
    clear(second);
    memmove(second, second + size, (most - most / 2 - 1) * size);
    --*n;
    return array;
}

static void
clear_execution(void *entry)
{
    free(((struct record_execution *)entry)->path);
}

static void
clear_finding(void *entry)
{
    (void)entry;
}

void
record_reached(struct record *r, const char *destination)
{
    r->reached_total++;
    for (uint32_t i = 0; i < r->reached_n; i++)
        if (strcmp(r->reached[i], destination) == 0)
            return;
    if (r->reached_n < RECORD_REACHED && (r->reached[r->reached_n] = strdup(destination)) != NULL)
        r->reached_n++;
    else
        r->cut = true;
}

static bool
same_denial(const struct record_denial *a, const struct record_denial *b)
{
    return strcmp(a->operation, b->operation) == 0 && strcmp(a->reason, b->reason) == 0 &&
           strcmp(a->protocol, b->protocol) == 0 && a->rule == b->rule &&
           strcmp(a->comm, b->comm) == 0 && strcmp(a->destination, b->destination) == 0;
}

void
record_denial(struct record *r, const struct record_denial *d)
{
    r->denials_total++;
    for (uint32_t i = 0; i < r->denials_n; i++)
        if (same_denial(&r->denials[i], d)) {
            r->denials[i].count++;
            return;
        }
    char *destination = strdup(d->destination);
    struct record_denial *all =
        destination != NULL && r->denials_n == RECORD_DENIALS
            ? slide(r, r->denials, &r->denials_n, RECORD_DENIALS, sizeof *all, clear_denial)
            : grow(r->denials, r->denials_n, RECORD_DENIALS, sizeof *all);
    if (all != NULL)
        r->denials = all;
    if (destination == NULL || all == NULL) {
        r->cut = true;
        free(destination);
        return;
    }
    all[r->denials_n] = *d;
    all[r->denials_n].destination = destination;
    // NULL without memory is fine
    all[r->denials_n].hint = d->hint != NULL ? strdup(d->hint) : NULL;
    all[r->denials_n++].count = 1;
}

void
record_execution(struct record *r, const struct record_execution *x)
{
    r->executions_total++;
    for (uint32_t i = 0; i < r->executions_n; i++) {
        struct record_execution *old = &r->executions[i];
        if (old->args_hash == x->args_hash && old->inode == x->inode &&
            old->unnamed == x->unnamed && strcmp(old->path, x->path) == 0) {
            old->count++;
            return;
        }
    }
    char *path = strdup(x->path);
    struct record_execution *all =
        path != NULL && r->executions_n == RECORD_EXECUTIONS
            ? slide(r, r->executions, &r->executions_n, RECORD_EXECUTIONS, sizeof *all,
                    clear_execution)
            : grow(r->executions, r->executions_n, RECORD_EXECUTIONS, sizeof *all);
    if (all != NULL)
        r->executions = all;
    if (path == NULL || all == NULL) {
        r->cut = true;
        free(path);
        return;
    }
    all[r->executions_n] = *x;
    all[r->executions_n].path = path;
    all[r->executions_n++].count = 1;
}

void
record_finding(struct record *r, const struct finding *f)
{
    r->findings_total++;
    struct finding *all = NULL;
    if (f->sequence != 0 && r->findings_n == RECORD_FINDINGS)
        all = slide(r, r->findings, &r->findings_n, RECORD_FINDINGS, sizeof *all, clear_finding);
    else if (f->sequence != 0)
        all = grow(r->findings, r->findings_n, RECORD_FINDINGS, sizeof *all);
    if (all == NULL) {
        r->cut = true;
        return;
    }
    r->findings = all;
    all[r->findings_n++] = *f;
}

void
record_lost(struct record *r, uint32_t class, uint32_t cpu, uint64_t n)
{
    if (class >= EVENT_CLASSES)
        return;
    r->lost[class] += n;
    if (cpu < RECORD_CPUS)
        r->lost_cpus[class][cpu / 64] |= UINT64_C(1) << cpu % 64;
}
