// SPDX-License-Identifier: Apache-2.0
// See audit_verify.h. One pass: the chain from record to record, the hashes since the last checkpoint, and at each checkpoint its
// signature, its range and its root.
#include "audit_verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit_scan.h"

enum { TORN_MAX = 64, NAME = 64, TEXT = 400, LEAVES_STEP = 4096, LEAVES_MOST = 1 << 22 };

#define BODY(name) STOCKADE__V1__AUDIT_RECORD__BODY_##name

struct torn {
    char file[NAME];
    uint64_t offset, bytes;
};

struct audit_verify {
    uint8_t keys[AUDIT_KEYS_MAX]
                [AUDIT_KEY]; // that may have signed; one, from the first checkpoint on
    uint32_t keys_n;
    audit_problem_fn *problem;
    void *cookie;
    struct audit_verified out;
    struct arena *arena;
    const char *file;
    uint64_t offset;
    bool began;        // there was a record
    bool stopped;      // the last record, but checkpoints, is a stop
    uint64_t expected; // sequence of the next record
    // the records since the last checkpoint
    bool broken;        // one of them is missing or not in its place, which was reported
    bool at_checkpoint; // they begin behind a checkpoint that was read
    uint64_t first;
    uint8_t before[AUDIT_HASH];
    uint8_t (*leaf)[AUDIT_HASH];
    size_t leaves_n, leaves_max;
    struct torn torn[TORN_MAX];
    size_t torn_n;
};

static void report(struct audit_verify *v, enum audit_problem_kind kind, uint64_t sequence,
                   const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static void
report(struct audit_verify *v, enum audit_problem_kind kind, uint64_t sequence, const char *fmt,
       ...)
{
    char text[TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct audit_problem p = {kind, v->file, v->offset, sequence, text};
    v->out.whole = false;
    v->problem(v->cookie, &p);
}

int
audit_verify_new(const uint8_t (*keys)[AUDIT_KEY], uint32_t keys_n, audit_problem_fn *problem,
                 void *cookie, struct audit_verify **out, struct err *e)
{
    struct audit_verify *v = calloc(1, sizeof *v);
    if (v != NULL)
        v->arena = arena_new(AUDIT_ARENA);
    if (v == NULL || v->arena == NULL) {
        audit_verify_free(v);
        return err_sys(e, ENOMEM, "check the audit log");
    }
    v->keys_n = keys_n < AUDIT_KEYS_MAX ? keys_n : AUDIT_KEYS_MAX;
    memcpy(v->keys, keys, v->keys_n * sizeof v->keys[0]);
    v->problem = problem;
    v->cookie = cookie;
    v->file = "";
    v->out.whole = true;
    *out = v;
    return 0;
}

void
audit_verify_free(struct audit_verify *v)
{
    if (v == NULL)
        return;
    arena_free(v->arena);
    free(v->leaf);
    free(v);
}

// ---- ends of files

static void
report_torn(struct audit_verify *v, const struct torn *t)
{
    const char *file = v->file;
    const uint64_t offset = v->offset;
    v->file = t->file;
    v->offset = t->offset;
    report(v, AUDIT_TORN, 0,
           "the last %" PRIu64
           " bytes are no whole record, and no later start of the broker says so",
           t->bytes);
    v->file = file;
    v->offset = offset;
}

// What a start reports is no problem: the broker was killed while it wrote. `m` NULL: no start.
static void
settle_torn(struct audit_verify *v, const Stockade__V1__AuditStart *m)
{
    for (size_t i = 0; i < v->torn_n; i++) {
        bool reported = false;
        for (size_t k = 0; m != NULL && k < m->n_torn && !reported; k++)
            reported =
                m->torn[k]->offset == v->torn[i].offset && m->torn[k]->bytes == v->torn[i].bytes;
        if (reported)
            v->out.recovered++;
        else
            report_torn(v, &v->torn[i]);
    }
    v->torn_n = 0;
}

// ---- checkpoints

static bool
add_leaf(struct audit_verify *v, const uint8_t hash[AUDIT_HASH], uint64_t sequence)
{
    if (v->leaves_n == v->leaves_max) {
        void *more = v->leaves_max < LEAVES_MOST
                         ? realloc(v->leaf, (v->leaves_max + LEAVES_STEP) * AUDIT_HASH)
                         : NULL;
        if (more == NULL)
            return false;
        v->leaf = more;
        v->leaves_max += LEAVES_STEP;
    }
    if (v->leaves_n == 0) {
        v->first = sequence;
        memcpy(v->before, v->out.head, AUDIT_HASH);
    }
    memcpy(v->leaf[v->leaves_n++], hash, AUDIT_HASH);
    return true;
}

static void
compare_tree(struct audit_verify *v, uint64_t sequence, const Stockade__V1__AuditTree *t)
{
    uint8_t root[AUDIT_HASH];
    if (v->broken || v->leaves_n == 0)
        return; // reported, or nothing here that it covers
    if (!v->at_checkpoint && t->first < v->first && t->first + t->count == v->first + v->leaves_n) {
        v->out.not_covered += v->leaves_n; // the files begin in the middle of what it covers
        return;
    }
    if (t->first != v->first || t->count != v->leaves_n) {
        report(v, AUDIT_CHANGED, sequence,
               "checkpoint %" PRIu64 " signed records %" PRIu64 " to %" PRIu64 ", and %" PRIu64
               " to %" PRIu64 " stand before it",
               sequence, t->first, t->first + t->count - 1, v->first, v->first + v->leaves_n - 1);
        return;
    }
    audit_tree_root((const uint8_t(*)[AUDIT_HASH])v->leaf, v->leaves_n, v->leaf, root);
    if (memcmp(root, t->root.data, AUDIT_HASH) != 0 ||
        memcmp(v->before, t->before.data, AUDIT_HASH) != 0)
        report(v, AUDIT_CHANGED, sequence,
               "records %" PRIu64 " to %" PRIu64 " are not those that checkpoint %" PRIu64
               " signed",
               t->first, t->first + t->count - 1, sequence);
}

// The key that may have signed it.
static const uint8_t *
key_of(const struct audit_verify *v, const Stockade__V1__AuditCheckpoint *c)
{
    for (uint32_t i = 0; i < v->keys_n; i++)
        if (c->key_id.len == AUDIT_KEY_ID && memcmp(c->key_id.data, v->keys[i], AUDIT_KEY_ID) == 0)
            return v->keys[i];
    return v->keys[0];
}

static void
follow_key(struct audit_verify *v, const uint8_t *key, const Stockade__V1__AuditTree *t)
{
    const bool changes = t->next_key.len == AUDIT_KEY;
    memmove(v->keys[0], changes ? t->next_key.data : key, AUDIT_KEY);
    v->keys_n = 1;
    v->out.rekeyed += changes;
}

static void
check_checkpoint(struct audit_verify *v, const Stockade__V1__AuditRecord *m)
{
    struct err e;
    const Stockade__V1__AuditTree *tree = NULL;
    v->out.checkpoints++;
    const uint8_t *key = key_of(v, m->checkpoint);
    if (audit_checkpoint_check(m->checkpoint, key, v->arena, &tree, &e) < 0) {
        report(v, strcmp(e.reason, "AUDIT_KEY") == 0 ? AUDIT_FOREIGN : AUDIT_CHANGED, m->sequence,
               "checkpoint %" PRIu64 ": %s", m->sequence, e.text);
    } else {
        compare_tree(v, m->sequence, tree);
        v->out.signed_s = tree->time != NULL ? tree->time->seconds : 0;
        follow_key(v, key, tree);
    }
    v->leaves_n = 0;
    v->broken = false;
    v->at_checkpoint = true;
}

// ---- records

static void
count(struct audit_verify *v, const Stockade__V1__AuditRecord *m)
{
    v->out.calls += m->body_case == BODY(CALL);
    v->out.jobs += m->body_case == BODY(JOB);
    if (m->body_case == BODY(GAP))
        v->out.missed += m->gap->calls + m->gap->jobs;
    if (m->body_case == BODY(START)) {
        v->out.starts++;
        v->out.kills += v->out.records > 1 && !v->stopped;
    }
    if (m->body_case != BODY(CHECKPOINT))
        v->stopped = m->body_case == BODY(STOP);
}

// The place of a record in the chain. False: it is not the next one.
static bool
check_sequence(struct audit_verify *v, const Stockade__V1__AuditRecord *m)
{
    if (m->sequence < v->expected) {
        report(v, AUDIT_REORDERED, m->sequence, "record %" PRIu64 " stands behind record %" PRIu64,
               m->sequence, v->expected - 1);
        v->broken = true;
        return false;
    }
    if (m->sequence > v->expected) {
        report(v, AUDIT_MISSING, v->expected, "records %" PRIu64 " to %" PRIu64 " are not there",
               v->expected, m->sequence - 1);
        v->broken = true;
    } else if (memcmp(m->previous.data, v->out.head, AUDIT_HASH) != 0) {
        report(v, AUDIT_CHANGED, m->sequence,
               "record %" PRIu64 " does not continue the record before it, as it was signed",
               m->sequence);
    }
    return true;
}

// The record at v->offset. False: out of memory.
static bool
check_record(struct audit_verify *v, const struct audit_frame *f)
{
    struct err none;
    const Stockade__V1__AuditRecord *m = NULL;
    arena_reset(v->arena);
    bool reads = audit_record_read(f->record, f->n, v->arena, &m, &none) == 0;
    const bool good = reads && f->intact;
    if (!v->began && reads) {
        v->began = true;
        v->out.first = v->expected = m->sequence;
        memcpy(v->out.head, m->previous.data, AUDIT_HASH);
    }
    v->out.records++;
    if (!good)
        report(v, AUDIT_CHANGED, v->expected, "record %" PRIu64 " was changed: %s", v->expected,
               f->intact ? "it is no record" : "its hash is another one");
    if (v->torn_n > 0)
        settle_torn(v, good && m->body_case == BODY(START) ? m->start : NULL);
    if (good && !check_sequence(v, m))
        return true;
    const uint64_t sequence = good ? m->sequence : v->expected;
    const bool signs = good && m->body_case == BODY(CHECKPOINT);
    if (good)
        count(v, m);
    if (signs)
        check_checkpoint(v, m);
    else if (!add_leaf(v, f->hash, sequence))
        return false;
    memcpy(v->out.head, f->hash, AUDIT_HASH);
    v->expected = sequence + 1;
    v->out.last = sequence;
    return true;
}

int
audit_verify_file(struct audit_verify *v, int fd, const char *name, struct err *e)
{
    struct audit_scan scan;
    struct audit_frame f;
    v->file = name;
    v->offset = 0;
    v->out.files++;
    int r = audit_scan_open(&scan, fd, 0, e);
    while (r == 0 && (r = audit_scan_next(&scan, &f, e)) > 0) {
        r = check_record(v, &f) ? 0 : err_sys(e, ENOMEM, "check the audit log");
        v->offset = scan.offset;
    }
    if (r == 0 && scan.left > 0) {
        struct torn t = {.offset = scan.offset, .bytes = scan.left};
        (void)snprintf(t.file, sizeof t.file, "%s", name);
        if (v->torn_n < TORN_MAX)
            v->torn[v->torn_n++] = t;
        else
            report_torn(v, &t);
    }
    audit_scan_close(&scan);
    v->file = "";
    return r;
}

struct audit_verified
audit_verify_end(struct audit_verify *v)
{
    settle_torn(v, NULL);
    v->out.not_signed = v->leaves_n;
    memcpy(v->out.key, v->keys[0], AUDIT_KEY);
    return v->out;
}
