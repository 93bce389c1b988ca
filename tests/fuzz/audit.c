// SPDX-License-Identifier: Apache-2.0
// A file of the audit log, a checkpoint and a proof from anywhere: they are read to their end without harm, and nothing is ever
// valid for a key that did not sign it. Of a proof with changes of the key, whose first key is known here, nothing but its own record is.
#include <assert.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/audit.h"
#include "proto/audit_prove.h"
#include "proto/audit_verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

static const uint8_t key[AUDIT_KEY] = {1};

// The first key that signed the seed with changes of the key, and the only record that it leads to.
enum { CHAINED_SEQUENCE = 40 };

static const uint8_t *
chained(void)
{
    static const uint8_t seed[crypto_sign_SEEDBYTES] = {1};
    static uint8_t first[AUDIT_KEY], secret[AUDIT_SECRET];
    if (secret[0] == 0 && crypto_sign_seed_keypair(first, secret, seed) != 0)
        abort();
    return first;
}

static void
on_problem(void *cookie, const struct audit_problem *p)
{
    assert(p->kind < AUDIT_PROBLEMS && p->text[0] != '\0');
    ++*(unsigned *)cookie;
}

// The bytes as frames, with hashes that are right, so that records behind them are reached.
static size_t
repair(uint8_t *bytes, size_t size)
{
    size_t at = 0;
    while (at + AUDIT_HEAD + AUDIT_HASH < size) {
        const size_t n = bytes[at] % 200 + 1;
        if (at + AUDIT_HEAD + n + AUDIT_HASH > size)
            break;
        memset(bytes + at, 0, AUDIT_HEAD);
        bytes[at] = (uint8_t)n;
        audit_hash(bytes + at + AUDIT_HEAD, n, bytes + at + AUDIT_HEAD + n);
        at += AUDIT_HEAD + n + AUDIT_HASH;
    }
    return at;
}

static void
verify(const uint8_t *bytes, size_t n)
{
    struct err e;
    unsigned problems = 0;
    struct audit_verify *v = NULL;
    int fd = memfd_create("audit", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n ||
        audit_verify_new(&key, 1, on_problem, &problems, &v, &e) < 0)
        abort();
    const int r = audit_verify_file(v, fd, "file", &e);
    const struct audit_verified out = audit_verify_end(v);
    assert(r == 0 && out.whole == (problems == 0));
    assert(out.checkpoints == 0 || problems > 0);
    audit_verify_free(v);
    (void)close(fd);
}

static void
prove(const uint8_t *bytes, size_t n)
{
    struct err e;
    struct audit_frame f;
    struct audit_prover *p = audit_prover_new("job");
    if (p == NULL)
        abort();
    for (size_t at = 0; audit_frame_read(bytes + at, n - at, &f) > 0; at += f.bytes)
        if (audit_prover_feed(p, &f, &e) != 0)
            break;
    audit_prover_free(p);
}

static void
read_proof(const uint8_t *data, size_t size)
{
    struct err e;
    const Stockade__V1__AuditProof *m = NULL;
    const Stockade__V1__AuditRecord *record = NULL;
    const Stockade__V1__AuditTree *tree = NULL;
    struct arena *a = arena_new(AUDIT_ARENA);
    char *text = calloc(1, size + 1);
    if (a == NULL || text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    if (audit_proof_read(text, a, &m, &e) == 0)
        assert(audit_proof_check(m, key, a, &record, &tree, &e) < 0 &&
               (audit_proof_check(m, chained(), a, &record, &tree, &e) < 0 ||
                (record->sequence == CHAINED_SEQUENCE && tree->first == CHAINED_SEQUENCE)));
    free(text);
    arena_free(a);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = calloc(1, size + 1);
    if (bytes == NULL)
        abort();
    if (size > 0)
        memcpy(bytes, data, size);
    verify(bytes, size);
    prove(bytes, size);
    const size_t n = repair(bytes, size);
    verify(bytes, n);
    prove(bytes, n);
    read_proof(data, size);
    free(bytes);
    return 0;
}
