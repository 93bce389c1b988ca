// SPDX-License-Identifier: Apache-2.0
// proto/audit.h: a proof that a later key signed is checked with the first one, and a chain of changes that is broken, in another order,
// of another log or of nobody is refused.
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/arena.h"
#include "proto/audit.h"
#include "proto/audit_prove.h"
#include "proto/auto.h"

enum { KEYS = 70, PACKED = 512 };

static uint8_t secret[KEYS][AUDIT_SECRET], key[KEYS][AUDIT_KEY];

// A checkpoint and the bytes that it has.
struct signed_tree {
    Stockade__V1__AuditCheckpoint c;
    uint8_t tree[AUDIT_TREE_MAX], signature[AUDIT_SIGNATURE];
};

static void
sign(struct signed_tree *s, unsigned by, uint64_t first, const uint8_t root[AUDIT_HASH],
     const uint8_t *next)
{
    static const uint8_t zeros[AUDIT_HASH];
    Stockade__V1__AuditTree t = STOCKADE__V1__AUDIT_TREE__INIT;
    t.first = first;
    t.count = 1;
    t.root = (ProtobufCBinaryData){AUDIT_HASH, (uint8_t *)(uintptr_t)root};
    t.before = (ProtobufCBinaryData){AUDIT_HASH, (uint8_t *)(uintptr_t)zeros};
    if (next != NULL)
        t.next_key = (ProtobufCBinaryData){AUDIT_KEY, (uint8_t *)(uintptr_t)next};
    const size_t n = stockade__v1__audit_tree__pack(&t, s->tree);
    audit_sign(s->tree, n, secret[by], s->signature);
    s->c = (Stockade__V1__AuditCheckpoint)STOCKADE__V1__AUDIT_CHECKPOINT__INIT;
    s->c.tree = (ProtobufCBinaryData){n, s->tree};
    s->c.signature = (ProtobufCBinaryData){AUDIT_SIGNATURE, s->signature};
    s->c.key_id = (ProtobufCBinaryData){AUDIT_KEY_ID, key[by]};
}

// Changes 0 -> 1 -> ... -> n, at records 10, 20, ...; and a record behind them that key n signed.
struct proof {
    Stockade__V1__AuditProof m;
    struct signed_tree change[KEYS], checkpoint;
    Stockade__V1__AuditCheckpoint *changes[KEYS];
    uint8_t record[PACKED], hash[AUDIT_HASH];
};

static void
make(struct proof *p, unsigned n)
{
    static const uint8_t root[AUDIT_HASH];
    Stockade__V1__AuditRecord r = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditChange c = STOCKADE__V1__AUDIT_CHANGE__INIT;
    r.sequence = 10 * (n + 1);
    r.previous = (ProtobufCBinaryData){AUDIT_HASH, (uint8_t *)(uintptr_t)root};
    r.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHANGE;
    r.change = &c;
    const size_t size = stockade__v1__audit_record__pack(&r, p->record);
    audit_hash(p->record, size, p->hash);
    p->m = (Stockade__V1__AuditProof)STOCKADE__V1__AUDIT_PROOF__INIT;
    for (unsigned i = 0; i < n; i++) {
        sign(&p->change[i], i, 10 * (i + 1), root, key[i + 1]);
        p->changes[i] = &p->change[i].c;
    }
    sign(&p->checkpoint, n, r.sequence, p->hash, NULL);
    p->m.record = (ProtobufCBinaryData){size, p->record};
    p->m.checkpoint = &p->checkpoint.c;
    p->m.rotations = p->changes;
    p->m.n_rotations = n;
}

// By the first key; NULL: accepted.
static const char *
refusal(const struct proof *p, unsigned by)
{
    static struct err e;
    const Stockade__V1__AuditRecord *record = NULL;
    const Stockade__V1__AuditTree *tree = NULL;
    struct arena *auto_arena a = arena_new(AUDIT_ARENA);
    assert_non_null(a);
    e = (struct err){.code = ERR_OK};
    return audit_proof_check(&p->m, key[by], a, &record, &tree, &e) < 0 ? e.reason : NULL;
}

static struct proof p;

static void
another_key_cannot_vouch_for_it(void **unused)
{
    (void)unused;
    make(&p, 3);
    assert_string_equal(refusal(&p, 9), "AUDIT_KEY"); // of another log
    for (unsigned i = 0; i < 3; i++) {                // and its changes
        sign(&p.change[i], 10 + i, 10 * (i + 1), p.hash, key[11 + i]);
        p.changes[i] = &p.change[i].c;
    }
    assert_string_equal(refusal(&p, 0), "AUDIT_KEY");
    assert_string_equal(refusal(&p, 10), "AUDIT_KEY");
}

static void
a_chain_with_a_link_less_or_in_another_order_is_refused(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < 4; i++) {
        make(&p, 4);
        for (unsigned k = i; k < 3; k++)
            p.changes[k] = p.changes[k + 1];
        p.m.n_rotations = 3;
        assert_string_equal(refusal(&p, 0), "AUDIT_KEY");
    }
    make(&p, 3);
    Stockade__V1__AuditCheckpoint *first = p.changes[1];
    p.changes[1] = p.changes[2];
    p.changes[2] = first;
    assert_string_equal(refusal(&p, 0), "AUDIT_KEY");
    p.m.n_rotations = 0;
    assert_string_equal(refusal(&p, 0), "AUDIT_KEY");
}

static void
a_change_with_a_flipped_bit_is_refused(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < AUDIT_SIGNATURE; i += 9) {
        make(&p, 3);
        p.change[1].signature[i] ^= 4;
        assert_string_equal(refusal(&p, 0), "AUDIT_SIGNATURE");
    }
    make(&p, 3);
    const size_t n = p.change[1].c.tree.len;
    for (size_t i = 0; i < n; i++) {
        make(&p, 3);
        p.change[1].tree[i] ^= 4;
        assert_string_equal(refusal(&p, 0), "AUDIT_SIGNATURE");
    }
}

// Each is signed by the right key.
static void
a_change_that_names_no_key_or_is_not_in_its_place_is_refused(void **unused)
{
    (void)unused;
    make(&p, 3);
    sign(&p.change[1], 1, 20, p.hash, NULL);
    assert_string_equal(refusal(&p, 0), "AUDIT_CHAIN");
    make(&p, 3);
    sign(&p.change[1], 1, 10, p.hash, key[2]); // over records of the one before
    assert_string_equal(refusal(&p, 0), "AUDIT_CHAIN");
    make(&p, 3);
    sign(&p.change[2], 2, 40, p.hash, key[3]); // and the record was signed by a key that came later
    assert_string_equal(refusal(&p, 0), "AUDIT_CHAIN");
    make(&p, 3);
    sign(&p.change[1], 1, UINT64_MAX, p.hash, key[2]);
    assert_string_equal(refusal(&p, 0), "AUDIT_FORM");
    make(&p, 3);
    p.changes[1] = NULL;
    assert_non_null(refusal(&p, 0));
}

// A loop would lead back to a key that was given up.
static void
a_chain_that_leads_back_ends(void **unused)
{
    (void)unused;
    make(&p, 3);
    for (unsigned i = 0; i < 60; i++) {
        sign(&p.change[i], i % 2, 10 * (i + 1), p.hash, key[(i + 1) % 2]);
        p.changes[i] = &p.change[i].c;
    }
    p.m.n_rotations = 60;
    assert_string_equal(refusal(&p, 0), "AUDIT_KEY");
}

static void
each_key_of_the_chain_is_enough(void **unused)
{
    (void)unused;
    for (unsigned n = 0; n <= AUDIT_KEYS_MAX; n += 8) {
        make(&p, n);
        for (unsigned i = 0; i <= n; i++)
            assert_null(refusal(&p, i));
    }
    make(&p, 3); // also with changes after it
    sign(&p.change[3], 3, 50, p.hash, key[4]);
    p.changes[3] = &p.change[3].c;
    p.m.n_rotations = 4;
    assert_null(refusal(&p, 0));
    assert_int_equal(audit_rotations_needed(p.changes, 4, p.m.checkpoint), 3);
}

static void
as_many_as_there_may_be_come_back_from_a_text(void **unused)
{
    (void)unused;
    struct err e;
    const Stockade__V1__AuditProof *m = NULL;
    struct arena *auto_arena a = arena_new(AUDIT_ARENA);
    static uint8_t job[64 * 1024];
    make(&p, AUDIT_KEYS_MAX);
    p.m.job = (ProtobufCBinaryData){sizeof job, job};
    char *auto_free text = audit_proof_text(&p.m);
    assert_non_null(text);
    assert_int_equal(audit_proof_read(text, a, &m, &e), 0);
    assert_int_equal(m->n_rotations, AUDIT_KEYS_MAX);
    make(&p, AUDIT_KEYS_MAX + 1);
    assert_string_equal(refusal(&p, 0), "AUDIT_FORM"); // too many
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_key_cannot_vouch_for_it),
        cmocka_unit_test(a_chain_with_a_link_less_or_in_another_order_is_refused),
        cmocka_unit_test(a_change_with_a_flipped_bit_is_refused),
        cmocka_unit_test(a_change_that_names_no_key_or_is_not_in_its_place_is_refused),
        cmocka_unit_test(a_chain_that_leads_back_ends),
        cmocka_unit_test(each_key_of_the_chain_is_enough),
        cmocka_unit_test(as_many_as_there_may_be_come_back_from_a_text),
    };
    if (sodium_init() < 0)
        return 1;
    for (unsigned i = 0; i < KEYS; i++)
        (void)crypto_sign_keypair(key[i], secret[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
