// SPDX-License-Identifier: Apache-2.0
// See audit_prove.h. The hashes since the last checkpoint are kept until the next one, which has the job's record or not.
#include "audit_prove.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auto.h"
#include "wire.h"

enum { PROCESS_ID = 49, LEAVES_STEP = 4096, LEAVES_MOST = 1 << 22 };

struct audit_prover {
    char process_id[PROCESS_ID];
    struct arena *arena;
    uint64_t first; // of the leaves
    uint8_t (*leaf)[AUDIT_HASH];
    size_t n, max;
    size_t index; // of the job's among them
    size_t record_n;
    bool found;
    // the proof
    size_t path_n;
    uint8_t path[AUDIT_PATH_MAX][AUDIT_HASH];
    uint8_t tree[AUDIT_TREE_MAX], signature[AUDIT_SIGNATURE], key_id[AUDIT_KEY_ID];
    size_t tree_n;
    uint8_t record[AUDIT_RECORD_MAX];
    uint8_t rotation[AUDIT_KEYS_MAX][AUDIT_ROTATION_MAX]; // packed
    size_t rotation_n[AUDIT_KEYS_MAX], rotations;
};

struct audit_prover *
audit_prover_new(const char *process_id)
{
    struct audit_prover *p = calloc(1, sizeof *p);
    if (p != NULL)
        p->arena = arena_new(AUDIT_ARENA);
    if (p == NULL || p->arena == NULL) {
        audit_prover_free(p);
        return NULL;
    }
    (void)snprintf(p->process_id, sizeof p->process_id, "%s", process_id);
    return p;
}

void
audit_prover_free(struct audit_prover *p)
{
    if (p == NULL)
        return;
    arena_free(p->arena);
    free(p->leaf);
    free(p);
}

static int
lose(struct err *e, const char *text)
{
    int r = err_set(e, ERR_DATA_LOSS, "prove a record: %s", text);
    err_detail(e, "AUDIT_CHANGED", NULL, "stockade audit verify says what is wrong with the log");
    return r;
}

// A checkpoint: the end of what it covers.
static int
close_window(struct audit_prover *p, const Stockade__V1__AuditCheckpoint *c, struct err *e)
{
    ProtobufCMessage *m = NULL;
    if (!p->found) {
        p->n = 0;
        return 0;
    }
    if (c->tree.len > AUDIT_TREE_MAX || c->signature.len != AUDIT_SIGNATURE ||
        c->key_id.len != AUDIT_KEY_ID ||
        wire_unpack(&stockade__v1__audit_tree__descriptor, c->tree.data, c->tree.len, p->arena, &m,
                    e) < 0)
        return lose(e, "a checkpoint is damaged");
    const Stockade__V1__AuditTree *t = (const Stockade__V1__AuditTree *)m;
    if (t->first != p->first || t->count != p->n)
        return lose(e, "its checkpoint covers records that are not there");
    p->path_n =
        audit_tree_path((const uint8_t(*)[AUDIT_HASH])p->leaf, p->n, p->index, p->leaf, p->path);
    memcpy(p->tree, c->tree.data, c->tree.len);
    p->tree_n = c->tree.len;
    memcpy(p->signature, c->signature.data, AUDIT_SIGNATURE);
    memcpy(p->key_id, c->key_id.data, AUDIT_KEY_ID);
    return 1;
}

// The oldest are left out if there are too many.
static void
note_rotation(struct audit_prover *p, const Stockade__V1__AuditCheckpoint *c)
{
    ProtobufCMessage *m = NULL;
    struct err none;
    const size_t n = stockade__v1__audit_checkpoint__get_packed_size(c);
    if (n > AUDIT_ROTATION_MAX ||
        wire_unpack(&stockade__v1__audit_tree__descriptor, c->tree.data, c->tree.len, p->arena, &m,
                    &none) < 0 ||
        ((const Stockade__V1__AuditTree *)m)->next_key.len == 0)
        return;
    if (p->rotations == AUDIT_KEYS_MAX) {
        p->rotations--;
        memmove(p->rotation[0], p->rotation[1], p->rotations * sizeof p->rotation[0]);
        memmove(p->rotation_n, p->rotation_n + 1, p->rotations * sizeof p->rotation_n[0]);
    }
    p->rotation_n[p->rotations] =
        stockade__v1__audit_checkpoint__pack(c, p->rotation[p->rotations]);
    p->rotations++;
}

static int
add_leaf(struct audit_prover *p, const uint8_t hash[AUDIT_HASH], uint64_t sequence, struct err *e)
{
    if (p->n == p->max) {
        void *more =
            p->max < LEAVES_MOST ? realloc(p->leaf, (p->max + LEAVES_STEP) * AUDIT_HASH) : NULL;
        if (more == NULL)
            return err_sys(e, ENOMEM, "prove a record");
        p->leaf = more;
        p->max += LEAVES_STEP;
    }
    if (p->n == 0)
        p->first = sequence;
    memcpy(p->leaf[p->n++], hash, AUDIT_HASH);
    return 0;
}

int
audit_prover_feed(struct audit_prover *p, const struct audit_frame *f, struct err *e)
{
    const Stockade__V1__AuditRecord *m = NULL;
    arena_reset(p->arena);
    if (!f->intact || audit_record_read(f->record, f->n, p->arena, &m, e) < 0)
        return lose(e, "a record was changed");
    if (m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_CHECKPOINT) {
        note_rotation(p, m->checkpoint);
        return close_window(p, m->checkpoint, e);
    }
    if (m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_JOB && !p->found &&
        strcmp(m->job->process_id, p->process_id) == 0) {
        p->found = true;
        p->index = p->n;
        p->record_n = f->n;
        memcpy(p->record, f->record, f->n);
    }
    return add_leaf(p, f->hash, m->sequence, e);
}

int
audit_prover_missing(const struct audit_prover *p, struct err *e)
{
    int r = p->found
                ? err_set(e, ERR_NOT_FOUND, "the record of %s is not signed yet", p->process_id)
                : err_set(e, ERR_NOT_FOUND, "the audit log has no record of %s", p->process_id);
    if (p->found)
        err_detail(e, "AUDIT_NOT_SIGNED", p->process_id, "try again after the next checkpoint");
    else
        err_detail(e, "AUDIT_NO_JOB", p->process_id,
                   "its record is written when the job has ended; old files may have been removed");
    return r;
}

// ---- text

char *
audit_proof_text(const Stockade__V1__AuditProof *m)
{
    const int variant = sodium_base64_VARIANT_ORIGINAL;
    const size_t prefix = sizeof AUDIT_PROOF_PREFIX - 1;
    const size_t n = stockade__v1__audit_proof__get_packed_size(m);
    const size_t text_n = sodium_base64_encoded_len(n, variant);
    uint8_t *auto_free packed = n <= AUDIT_PROOF_MAX + AUDIT_CHAIN_MAX ? malloc(n) : NULL;
    char *text = packed != NULL ? malloc(prefix + text_n) : NULL;
    if (text == NULL) // and so it is without `packed`
        return NULL;  // NOLINT(clang-analyzer-unix.Malloc): auto_free
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): auto_free
    (void)stockade__v1__audit_proof__pack(m, packed);
    memcpy(text, AUDIT_PROOF_PREFIX, prefix);
    return sodium_bin2base64(text + prefix, text_n, packed, n, variant) != NULL ? text : NULL;
}

// Those that the proof needs.
static size_t
unpack_rotations(struct audit_prover *p, const Stockade__V1__AuditCheckpoint *of,
                 Stockade__V1__AuditCheckpoint *out[AUDIT_KEYS_MAX])
{
    struct err none;
    arena_reset(p->arena);
    for (size_t i = 0; i < p->rotations; i++) {
        ProtobufCMessage *m = NULL;
        if (wire_unpack(&stockade__v1__audit_checkpoint__descriptor, p->rotation[i],
                        p->rotation_n[i], p->arena, &m, &none) < 0)
            return 0;
        out[i] = (Stockade__V1__AuditCheckpoint *)m;
    }
    return audit_rotations_needed(out, p->rotations, of);
}

char *
audit_prover_text(struct audit_prover *p, const uint8_t *job, size_t job_n)
{
    Stockade__V1__AuditProof m = STOCKADE__V1__AUDIT_PROOF__INIT;
    Stockade__V1__AuditCheckpoint c = STOCKADE__V1__AUDIT_CHECKPOINT__INIT;
    Stockade__V1__AuditCheckpoint *rotations[AUDIT_KEYS_MAX];
    ProtobufCBinaryData path[AUDIT_PATH_MAX];
    for (size_t i = 0; i < p->path_n; i++)
        path[i] = (ProtobufCBinaryData){AUDIT_HASH, p->path[i]};
    c.tree = (ProtobufCBinaryData){p->tree_n, p->tree};
    c.signature = (ProtobufCBinaryData){sizeof p->signature, p->signature};
    c.key_id = (ProtobufCBinaryData){sizeof p->key_id, p->key_id};
    union { // protobuf-c requires a writable pointer, although packing only reads
        const uint8_t *from;
        uint8_t *to;
    } bytes = {.from = job};
    m.record = (ProtobufCBinaryData){p->record_n, p->record};
    m.path = path;
    m.n_path = p->path_n;
    m.checkpoint = &c;
    m.n_rotations = unpack_rotations(p, &c, rotations);
    m.rotations = rotations;
    m.job = (ProtobufCBinaryData){job != NULL ? job_n : 0, bytes.to};
    return audit_proof_text(&m);
}

int
audit_proof_read(const char *text, struct arena *a, const Stockade__V1__AuditProof **out,
                 struct err *e)
{
    ProtobufCMessage *m = NULL;
    const size_t prefix = sizeof AUDIT_PROOF_PREFIX - 1;
    const size_t text_n = strnlen(text, AUDIT_PROOF_TEXT);
    size_t n = 0;
    uint8_t *packed = text_n < AUDIT_PROOF_TEXT ? arena_alloc(a, text_n + 1) : NULL;
    int r = packed != NULL && strncmp(text, AUDIT_PROOF_PREFIX, prefix) == 0 &&
                    sodium_base642bin(packed, text_n, text + prefix, text_n - prefix, "\r\n", &n,
                                      NULL, sodium_base64_VARIANT_ORIGINAL) == 0
                ? 0
                : err_set(e, ERR_INVALID_ARGUMENT, "it is no proof of the audit log");
    if (r == 0)
        r = wire_unpack(&stockade__v1__audit_proof__descriptor, packed, n, a, &m, e);
    if (r == 0)
        *out = (const Stockade__V1__AuditProof *)m;
    return r;
}
