// SPDX-License-Identifier: Apache-2.0
// Makes the proof of one job from the frames of the audit log: its record, the way to the root, the checkpoint that signed it, and the
// changes of the key that it has seen before.
// Any thread; one prover belongs to one thread at a time.
#pragma once

#include "audit.h"

struct audit_prover;

// process_id: of the job. Free it with audit_prover_free(). NULL: out of memory.
struct audit_prover *audit_prover_new(const char *process_id);
void audit_prover_free(struct audit_prover *p);

// The next frame of the log, in its order. 1: the proof is complete; 0: go on; negative: DATA_LOSS: a frame that is not intact, or
// a checkpoint that covers other records; RESOURCE_EXHAUSTED: memory.
int audit_prover_feed(struct audit_prover *p, const struct audit_frame *f, struct err *e);

// After the last frame without a proof: NOT_FOUND, with the reason AUDIT_NO_JOB, or AUDIT_NOT_SIGNED (its record is there, and no
// checkpoint behind it yet). Returns its negative errno.
int audit_prover_missing(const struct audit_prover *p, struct err *e);

// The proof as a text: a prefix and base64, at most AUDIT_PROOF_TEXT bytes with its end. job: its packed record, or NULL. NULL: out of
// memory, or too long. free() it.
#define AUDIT_PROOF_PREFIX "stockade-audit-proof "
enum { AUDIT_PROOF_TEXT = 2 * (AUDIT_PROOF_MAX + AUDIT_CHAIN_MAX) };
char *audit_prover_text(struct audit_prover *p, const uint8_t *job, size_t job_n);

// The same of a proof that the broker sent.
char *audit_proof_text(const Stockade__V1__AuditProof *m);

// Back: unpacked into the arena. INVALID_ARGUMENT: it is no proof.
int audit_proof_read(const char *text, struct arena *a, const Stockade__V1__AuditProof **out,
                     struct err *e);
