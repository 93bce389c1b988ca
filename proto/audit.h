// SPDX-License-Identifier: Apache-2.0
// The audit log's format: frames, the chain, Merkle trees, checkpoints and proofs. stockade/v1/audit.proto describes the bytes.
//
//   file     | length | record | hash | length | record | hash | ...
//   chain    record.previous = hash of the record before
//   tree     hashes of the records since the last checkpoint -> root, which the next checkpoint signs
//
// The broker writes with it (server/audit), and `stockade audit` checks with it, offline. Pure functions of bytes; any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "err.h"
#include "stockade/v1/audit.pb-c.h"

enum {
    AUDIT_HASH = 32,
    AUDIT_HEAD = 4, // the length before a record
    AUDIT_RECORD_MAX = 16 * 1024,
    AUDIT_FRAME_MAX = AUDIT_HEAD + AUDIT_RECORD_MAX + AUDIT_HASH,
    AUDIT_PATH_MAX = 32, // hashes of a proof
    AUDIT_KEY = 32,      // public
    AUDIT_SECRET = 64,
    AUDIT_KEY_ID = 8,
    AUDIT_SIGNATURE = 64,
    AUDIT_TREE_MAX = 256,        // a packed AuditTree
    AUDIT_PREFIX_MAX = 11 + 34,  // sequence and previous, packed
    AUDIT_ARENA = 1024 * 1024,   // of one record
    AUDIT_PROOF_MAX = 96 * 1024, // a packed AuditProof, without the changes of the key
    AUDIT_KEYS_MAX = 64,         // public keys of one log that are known
    AUDIT_KEYS_TEXT = AUDIT_KEYS_MAX * 96,
    AUDIT_ROTATION_MAX = AUDIT_TREE_MAX + AUDIT_SIGNATURE + AUDIT_KEY_ID +
                         32, // a packed AuditCheckpoint, and what is around it
    AUDIT_CHAIN_MAX = AUDIT_KEYS_MAX * AUDIT_ROTATION_MAX, // a packed AuditKeyChain
};

// ---- frames

struct audit_frame {
    const uint8_t *record; // borrowed
    size_t n;
    uint8_t hash[AUDIT_HASH]; // as the frame says
    size_t bytes;             // of the whole frame
    bool intact;              // the hash is the record's
};

// Reads the frame at the beginning of n bytes. 1: *f is set; 0: the frame is longer than n bytes; -1: no frame begins like this.
int audit_frame_read(const uint8_t *bytes, size_t n, struct audit_frame *f);

// Writes a frame of a packed record that lacks sequence and previous, which are written before it. out: AUDIT_HEAD +
// AUDIT_PREFIX_MAX + n + AUDIT_HASH bytes; the record with them is at most AUDIT_RECORD_MAX. Returns the frame's length; hash:
// the record's.
size_t audit_frame_write(uint64_t sequence, const uint8_t previous[AUDIT_HASH],
                         const uint8_t *record, size_t n, uint8_t *out, uint8_t hash[AUDIT_HASH]);

// The hash of a record.
void audit_hash(const uint8_t *record, size_t n, uint8_t out[AUDIT_HASH]);

// Unpacks a record into the arena. INVALID_ARGUMENT: it is none. Borrowed, valid as long as the arena.
int audit_record_read(const uint8_t *record, size_t n, struct arena *a,
                      const Stockade__V1__AuditRecord **out, struct err *e);

// ---- trees

// The root of n leaves (at least 1). `scratch` has room for n hashes and may be the leaves themselves, which are destroyed then.
void audit_tree_root(const uint8_t (*leaf)[AUDIT_HASH], size_t n, uint8_t (*scratch)[AUDIT_HASH],
                     uint8_t root[AUDIT_HASH]);

// The hashes beside the way from leaf `index` to the root; returns their number. scratch as above.
size_t audit_tree_path(const uint8_t (*leaf)[AUDIT_HASH], size_t n, size_t index,
                       uint8_t (*scratch)[AUDIT_HASH], uint8_t path[AUDIT_PATH_MAX][AUDIT_HASH]);

// Whether the leaf is number `index` of the n leaves under the root.
bool audit_tree_has(const uint8_t leaf[AUDIT_HASH], uint64_t index, uint64_t n,
                    const ProtobufCBinaryData *path, size_t path_n, const uint8_t root[AUDIT_HASH]);

// ---- checkpoints and proofs

// Signs a packed AuditTree.
void audit_sign(const uint8_t *tree, size_t n, const uint8_t secret[AUDIT_SECRET],
                uint8_t signature[AUDIT_SIGNATURE]);

// Checks a checkpoint's form and signature; *tree: borrowed from the arena. UNAUTHENTICATED with the reason AUDIT_KEY (another key
// signed it) or AUDIT_SIGNATURE; INVALID_ARGUMENT: it is no checkpoint.
int audit_checkpoint_check(const Stockade__V1__AuditCheckpoint *c, const uint8_t key[AUDIT_KEY],
                           struct arena *a, const Stockade__V1__AuditTree **tree, struct err *e);

// Checks one record by its proof. key: the one that signed it, or an earlier one from which the changes in the proof lead to that. *record
// and *tree: borrowed from the arena. DATA_LOSS with the reason AUDIT_CHANGED: the record, the path or the job's record is not the one that
// was signed; with AUDIT_CHAIN: a change of the key names no key, or is not in its place; others as above.
int audit_proof_check(const Stockade__V1__AuditProof *p, const uint8_t key[AUDIT_KEY],
                      struct arena *a, const Stockade__V1__AuditRecord **record,
                      const Stockade__V1__AuditTree **tree, struct err *e);

// How many of the changes of the key a proof with this checkpoint needs: those before its key signed.
size_t audit_rotations_needed(Stockade__V1__AuditCheckpoint *const *rotations, size_t n,
                              const Stockade__V1__AuditCheckpoint *checkpoint);

// ---- keys

#define AUDIT_KEY_PREFIX "stockade-audit-key "

// The text of a public key: the prefix and 64 hex digits, or the digits alone; white space around it is skipped.
bool audit_key_read(const char *text, uint8_t key[AUDIT_KEY]);

// The keys of a log, oldest first, one a line. Returns their number; 0: a line is no key, or there are too many.
uint32_t audit_keys_read(const char *text, uint8_t (*keys)[AUDIT_KEY]);
// The text of n keys; returns its length.
size_t audit_keys_write(const uint8_t (*keys)[AUDIT_KEY], uint32_t n, char out[AUDIT_KEYS_TEXT]);
