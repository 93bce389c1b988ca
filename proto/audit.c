// SPDX-License-Identifier: Apache-2.0
// See audit.h.
#include "audit.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "wire.h"

_Static_assert((int)AUDIT_KEY == (int)crypto_sign_PUBLICKEYBYTES, "Ed25519");
_Static_assert((int)AUDIT_SECRET == (int)crypto_sign_SECRETKEYBYTES, "Ed25519");
_Static_assert((int)AUDIT_SIGNATURE == (int)crypto_sign_BYTES, "Ed25519");

enum { LEAF = 0, NODE = 1, SEQUENCE_TAG = 1 << 3, PREVIOUS_TAG = 2 << 3 | 2, VARINT = 7 };

static const char signed_as[] = "stockade-audit-1"; // with its end

// ---- frames

void
audit_hash(const uint8_t *record, size_t n, uint8_t out[AUDIT_HASH])
{
    static const uint8_t leaf = LEAF;
    crypto_generichash_state s;
    (void)crypto_generichash_init(&s, NULL, 0, AUDIT_HASH);
    (void)crypto_generichash_update(&s, &leaf, 1);
    (void)crypto_generichash_update(&s, record, n);
    (void)crypto_generichash_final(&s, out, AUDIT_HASH);
}

static void
hash_node(const uint8_t left[AUDIT_HASH], const uint8_t right[AUDIT_HASH], uint8_t out[AUDIT_HASH])
{
    uint8_t both[1 + 2 * AUDIT_HASH] = {NODE};
    memcpy(both + 1, left, AUDIT_HASH);
    memcpy(both + 1 + AUDIT_HASH, right, AUDIT_HASH);
    (void)crypto_generichash(out, AUDIT_HASH, both, sizeof both, NULL, 0);
}

int
audit_frame_read(const uint8_t *bytes, size_t n, struct audit_frame *f)
{
    uint8_t hash[AUDIT_HASH];
    if (n < AUDIT_HEAD)
        return 0;
    const uint32_t length = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 |
                            (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    if (length == 0 || length > AUDIT_RECORD_MAX)
        return -1;
    if (n < AUDIT_HEAD + length + AUDIT_HASH)
        return 0;
    *f = (struct audit_frame){.record = bytes + AUDIT_HEAD, .n = length};
    memcpy(f->hash, bytes + AUDIT_HEAD + length, AUDIT_HASH);
    audit_hash(f->record, length, hash);
    f->intact = memcmp(hash, f->hash, AUDIT_HASH) == 0;
    f->bytes = AUDIT_HEAD + length + AUDIT_HASH;
    return 1;
}

static size_t
put_varint(uint64_t v, uint8_t *out)
{
    size_t n = 0;
    for (; v > 0x7f; v >>= VARINT)
        out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

size_t
audit_frame_write(uint64_t sequence, const uint8_t previous[AUDIT_HASH], const uint8_t *record,
                  size_t n, uint8_t *out, uint8_t hash[AUDIT_HASH])
{
    size_t at = AUDIT_HEAD;
    out[at++] = SEQUENCE_TAG;
    at += put_varint(sequence, out + at);
    out[at++] = PREVIOUS_TAG;
    out[at++] = AUDIT_HASH;
    memcpy(out + at, previous, AUDIT_HASH);
    at += AUDIT_HASH;
    memcpy(out + at, record, n);
    at += n;
    const size_t length = at - AUDIT_HEAD;
    assert(length <= AUDIT_RECORD_MAX);
    for (size_t i = 0; i < AUDIT_HEAD; i++)
        out[i] = (uint8_t)(length >> 8 * i);
    audit_hash(out + AUDIT_HEAD, length, hash);
    memcpy(out + at, hash, AUDIT_HASH);
    return at + AUDIT_HASH;
}

int
audit_record_read(const uint8_t *record, size_t n, struct arena *a,
                  const Stockade__V1__AuditRecord **out, struct err *e)
{
    ProtobufCMessage *m = NULL;
    int r = wire_unpack(&stockade__v1__audit_record__descriptor, record, n, a, &m, e);
    if (r < 0)
        return r;
    *out = (const Stockade__V1__AuditRecord *)m;
    return (*out)->sequence != 0 && (*out)->previous.len == AUDIT_HASH
               ? 0
               : err_set(e, ERR_INVALID_ARGUMENT, "a record without a place in the chain");
}

// ---- trees: level by level; a node without a sibling moves up unchanged, which makes the tree of RFC 9162

static size_t
level_up(uint8_t (*h)[AUDIT_HASH], size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        hash_node(h[i], h[i + 1], h[i / 2]);
    if (n % 2 != 0 && n > 1)
        memmove(h[n / 2], h[n - 1], AUDIT_HASH);
    return n / 2 + n % 2;
}

void
audit_tree_root(const uint8_t (*leaf)[AUDIT_HASH], size_t n, uint8_t (*scratch)[AUDIT_HASH],
                uint8_t root[AUDIT_HASH])
{
    assert(n > 0);
    memmove(scratch, leaf, n * AUDIT_HASH);
    while (n > 1)
        n = level_up(scratch, n);
    memcpy(root, scratch[0], AUDIT_HASH);
}

size_t
audit_tree_path(const uint8_t (*leaf)[AUDIT_HASH], size_t n, size_t index,
                uint8_t (*scratch)[AUDIT_HASH], uint8_t path[AUDIT_PATH_MAX][AUDIT_HASH])
{
    size_t found = 0;
    assert(index < n);
    memmove(scratch, leaf, n * AUDIT_HASH);
    for (; n > 1; index /= 2) {
        const size_t beside = index ^ 1;
        if (beside < n) {
            assert(found < AUDIT_PATH_MAX);
            memcpy(path[found++], scratch[beside], AUDIT_HASH);
        }
        n = level_up(scratch, n);
    }
    return found;
}

bool
audit_tree_has(const uint8_t leaf[AUDIT_HASH], uint64_t index, uint64_t n,
               const ProtobufCBinaryData *path, size_t path_n, const uint8_t root[AUDIT_HASH])
{
    uint8_t at[AUDIT_HASH];
    size_t used = 0;
    if (index >= n || path_n > AUDIT_PATH_MAX)
        return false;
    memcpy(at, leaf, AUDIT_HASH);
    for (; n > 1; index /= 2, n = n / 2 + n % 2) {
        if ((index ^ 1) >= n)
            continue;
        if (used == path_n || path[used].len != AUDIT_HASH)
            return false;
        if (index % 2 != 0)
            hash_node(path[used].data, at, at);
        else
            hash_node(at, path[used].data, at);
        used++;
    }
    return used == path_n && memcmp(at, root, AUDIT_HASH) == 0;
}

// ---- checkpoints and proofs

// What is signed. Returns its length.
static size_t
to_sign(const uint8_t *tree, size_t n, uint8_t out[sizeof signed_as + AUDIT_TREE_MAX])
{
    memcpy(out, signed_as, sizeof signed_as);
    memcpy(out + sizeof signed_as, tree, n);
    return sizeof signed_as + n;
}

void
audit_sign(const uint8_t *tree, size_t n, const uint8_t secret[AUDIT_SECRET],
           uint8_t signature[AUDIT_SIGNATURE])
{
    uint8_t text[sizeof signed_as + AUDIT_TREE_MAX];
    assert(n <= AUDIT_TREE_MAX);
    (void)crypto_sign_detached(signature, NULL, text, to_sign(tree, n, text), secret);
}

static int
fail(struct err *e, enum err_code code, const char *reason, const char *text)
{
    int r = err_set(e, code, "%s", text);
    err_detail(e, reason, NULL, NULL);
    return r;
}

int
audit_checkpoint_check(const Stockade__V1__AuditCheckpoint *c, const uint8_t key[AUDIT_KEY],
                       struct arena *a, const Stockade__V1__AuditTree **tree, struct err *e)
{
    uint8_t text[sizeof signed_as + AUDIT_TREE_MAX];
    ProtobufCMessage *m = NULL;
    if (c == NULL || c->tree.len == 0 || c->tree.len > AUDIT_TREE_MAX ||
        c->signature.len != AUDIT_SIGNATURE || c->key_id.len != AUDIT_KEY_ID)
        return fail(e, ERR_INVALID_ARGUMENT, "AUDIT_FORM", "it is no checkpoint");
    if (memcmp(c->key_id.data, key, AUDIT_KEY_ID) != 0)
        return fail(e, ERR_UNAUTHENTICATED, "AUDIT_KEY", "another key signed it");
    if (crypto_sign_verify_detached(c->signature.data, text,
                                    to_sign(c->tree.data, c->tree.len, text), key) != 0)
        return fail(e, ERR_UNAUTHENTICATED, "AUDIT_SIGNATURE", "the signature is not valid");
    int r = wire_unpack(&stockade__v1__audit_tree__descriptor, c->tree.data, c->tree.len, a, &m, e);
    if (r < 0)
        return r;
    *tree = (const Stockade__V1__AuditTree *)m;
    if ((*tree)->root.len != AUDIT_HASH || (*tree)->before.len != AUDIT_HASH ||
        ((*tree)->next_key.len != 0 && (*tree)->next_key.len != AUDIT_KEY) || (*tree)->count == 0 ||
        (*tree)->first > UINT64_MAX - (*tree)->count)
        return fail(e, ERR_INVALID_ARGUMENT, "AUDIT_FORM", "it is no checkpoint");
    return 0;
}

static bool
is_of(const Stockade__V1__AuditCheckpoint *c, const uint8_t *key)
{
    return c != NULL && c->key_id.len == AUDIT_KEY_ID &&
           memcmp(c->key_id.data, key, AUDIT_KEY_ID) == 0;
}

size_t
audit_rotations_needed(Stockade__V1__AuditCheckpoint *const *rotations, size_t n,
                       const Stockade__V1__AuditCheckpoint *checkpoint)
{
    size_t i = 0;
    if (checkpoint->key_id.len != AUDIT_KEY_ID)
        return 0;
    while (i < n && !is_of(rotations[i], checkpoint->key_id.data))
        i++;
    return i;
}

// From the key that is trusted to the one that signed the checkpoint. Each change is signed by the key before it, and covers records
// behind those of the change before. *from: the first record that the last key may sign.
static int
follow_rotations(const Stockade__V1__AuditProof *p, uint8_t key[AUDIT_KEY], uint64_t *from,
                 struct arena *a, struct err *e)
{
    const Stockade__V1__AuditTree *t = NULL;
    size_t i = 0;
    *from = 0;
    if (p->n_rotations > AUDIT_KEYS_MAX)
        return fail(e, ERR_INVALID_ARGUMENT, "AUDIT_FORM", "it has too many changes of the key");
    while (i < p->n_rotations && !is_of(p->rotations[i], key)) // before it was the key
        i++;
    for (; i < p->n_rotations && !is_of(p->checkpoint, key); i++) {
        int r = audit_checkpoint_check(p->rotations[i], key, a, &t, e);
        if (r < 0)
            return err_wrap(e, "change %zu of the key", i + 1);
        if (t->next_key.len != AUDIT_KEY || t->first < *from)
            return fail(e, ERR_DATA_LOSS, "AUDIT_CHAIN",
                        t->next_key.len != AUDIT_KEY ? "a change of the key names no key"
                                                     : "the changes of the key are not in order");
        memcpy(key, t->next_key.data, AUDIT_KEY);
        *from = t->first + t->count;
    }
    return 0;
}

int
audit_proof_check(const Stockade__V1__AuditProof *p, const uint8_t key[AUDIT_KEY], struct arena *a,
                  const Stockade__V1__AuditRecord **record, const Stockade__V1__AuditTree **tree,
                  struct err *e)
{
    uint8_t leaf[AUDIT_HASH], digest[AUDIT_HASH], last[AUDIT_KEY];
    const Stockade__V1__AuditRecord *m = NULL;
    uint64_t from = 0;
    memcpy(last, key, AUDIT_KEY);
    int r = follow_rotations(p, last, &from, a, e);
    if (r < 0)
        return r;
    r = audit_checkpoint_check(p->checkpoint, last, a, tree, e);
    if (r < 0)
        return err_wrap(e, "the checkpoint");
    if ((*tree)->first < from)
        return fail(e, ERR_DATA_LOSS, "AUDIT_CHAIN", "its key was not the key of these records");
    if (p->record.len == 0 || p->record.len > AUDIT_RECORD_MAX)
        return fail(e, ERR_INVALID_ARGUMENT, "AUDIT_FORM", "the proof has no record");
    r = audit_record_read(p->record.data, p->record.len, a, &m, e);
    if (r < 0)
        return r;
    audit_hash(p->record.data, p->record.len, leaf);
    if (m->sequence < (*tree)->first ||
        !audit_tree_has(leaf, m->sequence - (*tree)->first, (*tree)->count, p->path, p->n_path,
                        (*tree)->root.data))
        return fail(e, ERR_DATA_LOSS, "AUDIT_CHANGED", "the record is not one that was signed");
    if (p->job.len > 0) {
        audit_hash(p->job.data, p->job.len, digest);
        if (m->body_case != STOCKADE__V1__AUDIT_RECORD__BODY_JOB ||
            m->job->record.len != AUDIT_HASH ||
            memcmp(m->job->record.data, digest, AUDIT_HASH) != 0)
            return fail(e, ERR_DATA_LOSS, "AUDIT_CHANGED",
                        "the job's record is not the one whose digest was signed");
    }
    *record = m;
    return 0;
}

// ---- keys

bool
audit_key_read(const char *text, uint8_t key[AUDIT_KEY])
{
    static const char space[] = " \t\r\n";
    const size_t prefix = sizeof AUDIT_KEY_PREFIX - 1;
    size_t n = 0;
    const char *end = NULL;
    text += strspn(text, space);
    text += strncmp(text, AUDIT_KEY_PREFIX, prefix) == 0 ? prefix : 0;
    return sodium_hex2bin(key, AUDIT_KEY, text, strcspn(text, space), NULL, &n, &end) == 0 &&
           n == AUDIT_KEY && end[strspn(end, space)] == '\0';
}

uint32_t
audit_keys_read(const char *text, uint8_t (*keys)[AUDIT_KEY])
{
    uint32_t n = 0;
    while (text[strspn(text, " \t\r\n")] != '\0') {
        char line[96] = "";
        const size_t length = strcspn(text, "\n");
        if (length >= sizeof line || n == AUDIT_KEYS_MAX)
            return 0;
        memcpy(line, text, length);
        text += length + (text[length] != '\0');
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (!audit_key_read(line, keys[n]))
            return 0;
        n++;
    }
    return n;
}

size_t
audit_keys_write(const uint8_t (*keys)[AUDIT_KEY], uint32_t n, char out[AUDIT_KEYS_TEXT])
{
    char hex[2 * AUDIT_KEY + 1];
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && i < AUDIT_KEYS_MAX; i++)
        at += (size_t)snprintf(out + at, AUDIT_KEYS_TEXT - at, "%s%s\n", AUDIT_KEY_PREFIX,
                               sodium_bin2hex(hex, sizeof hex, keys[i], AUDIT_KEY));
    return at;
}
