// SPDX-License-Identifier: Apache-2.0
// The start: where the chain ends, and what the next checkpoint has to cover. Nothing is changed: bytes that a killed run left behind the
// last record of a file stay there, and the chain goes on in the next file.
//
//   newest file that has a checkpoint ... newest file       usually one file: each run signs before it begins
//   |-- read forward: hash by hash --------------------|
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/audit_scan.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/base/log.h"

struct reading {
    struct audit *a;
    struct arena *arena;
    bool signed_once; // a checkpoint was found
    bool records;     // a record was found
};

// Room for as many leaves as are left, and those of one more chunk.
static int
make_room(struct audit *a, struct err *e)
{
    const uint32_t step = a->settings.records + 2 * AUDIT_CHUNK;
    if (a->leaf != NULL && a->chain.leaves_n + AUDIT_CHUNK < a->leaves_max)
        return 0;
    const uint32_t most = a->leaves_max + step;
    void *leaf = realloc(a->leaf, (size_t)most * AUDIT_HASH);
    a->leaf = leaf != NULL ? leaf : a->leaf;
    void *scratch = leaf != NULL ? realloc(a->scratch, (size_t)most * AUDIT_HASH) : NULL;
    if (scratch == NULL)
        return err_sys(e, ENOMEM, "read the audit log");
    a->scratch = scratch;
    a->leaves_max = most;
    return 0;
}

// The key that signs after a checkpoint.
static void
note_key(struct reading *r, const Stockade__V1__AuditCheckpoint *c)
{
    uint8_t *id = r->a->found.key_id;
    ProtobufCMessage *m = NULL;
    struct err none;
    if (c->key_id.len == AUDIT_KEY_ID)
        memcpy(id, c->key_id.data, AUDIT_KEY_ID);
    if (wire_unpack(&stockade__v1__audit_tree__descriptor, c->tree.data, c->tree.len, r->arena, &m,
                    &none) == 0 &&
        ((const Stockade__V1__AuditTree *)m)->next_key.len == AUDIT_KEY) {
        memcpy(id, ((const Stockade__V1__AuditTree *)m)->next_key.data, AUDIT_KEY_ID);
        audit_chain_note(r->a, c);
    }
}

// Follows the chain by one frame. One whose hash is not its record's keeps its place: the next record names its old hash.
static int
follow(struct reading *r, const struct audit_frame *f, struct err *e)
{
    struct audit_chain *c = &r->a->chain;
    const Stockade__V1__AuditRecord *m = NULL;
    struct err none;
    arena_reset(r->arena);
    const bool reads = audit_record_read(f->record, f->n, r->arena, &m, &none) == 0;
    r->a->found.changed += !f->intact || !reads;
    if (!r->records && reads)
        memcpy(c->head, m->previous.data, AUDIT_HASH);
    r->records = true;
    if (make_room(r->a, e) < 0 || r->a->leaf == NULL)
        return -ENOMEM;
    c->sequence = reads && f->intact ? m->sequence : c->sequence + 1;
    if (c->leaves_n == 0) {
        c->first = c->sequence;
        memcpy(c->before, c->head, AUDIT_HASH);
    }
    memcpy(c->head, f->hash, AUDIT_HASH);
    memcpy(r->a->leaf[c->leaves_n++], f->hash, AUDIT_HASH);
    if (reads && m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_CHECKPOINT) {
        r->signed_once = true;
        c->leaves_n = 0;
        note_key(r, m->checkpoint);
    }
    if (reads && m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_START)
        r->a->found.torn_n = 0; // it has reported them
    return 0;
}

static int
read_file(struct reading *r, uint32_t number, uint64_t *left, struct err *e)
{
    struct audit *a = r->a;
    struct audit_scan scan = {.fd = -1};
    struct audit_frame f;
    char name[AUDIT_NAME];
    audit_name(number, name);
    int auto_close fd = openat(a->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open %s/%s", a->folder, name);
    int rc = audit_scan_open(&scan, fd, 0, e);
    while (rc == 0 && (rc = audit_scan_next(&scan, &f, e)) > 0)
        rc = follow(r, &f, e);
    *left = rc == 0 ? scan.left : 0;
    if (rc == 0 && scan.left > 0 && a->found.torn_n < AUDIT_TORN_MAX) {
        struct audit_torn *torn = &a->found.torn[a->found.torn_n++];
        memcpy(torn->file, name, sizeof name);
        torn->offset = scan.offset;
        torn->bytes = scan.left;
    }
    audit_scan_close(&scan);
    return rc;
}

// Reads files from `from` on. *left: bytes behind the last record of the last file.
static int
read_from(struct reading *r, const uint32_t *files, int from, int n, uint64_t *left, struct err *e)
{
    int rc = 0;
    r->signed_once = r->records = false;
    r->a->chain = (struct audit_chain){0};
    r->a->found = (struct audit_found){0};
    for (int i = from; i < n && rc == 0; i++)
        rc = read_file(r, files[i], left, e);
    return rc;
}

int
audit_recover(struct audit *a, struct err *e)
{
    uint32_t *auto_free files = NULL;
    struct arena *auto_arena arena = arena_new(AUDIT_ARENA);
    struct reading r = {.a = a, .arena = arena};
    uint64_t left = 0;
    if (arena == NULL || make_room(a, e) < 0)
        return err_sys(e, ENOMEM, "read the audit log");
    int n = 0, rc = 1;
    while (rc == 1) {
        free(take_ptr(files));
        n = audit_list(a->dir, a->folder, &files, e);
        if (n <= 0)
            return n < 0 ? n : audit_file_open(a, 1, true, e);
        rc = 0;
        r.signed_once = false;
        for (int from = n - 1; from >= 0 && rc == 0 && !r.signed_once; from--)
            rc = read_from(&r, files, from, n, &left, e);
        if (rc == 0)
            rc = audit_sync_recover(a, files[n - 1] + 1, e);
    }
    if (rc < 0)
        return rc;
    if (a->found.changed > 0)
        log_event(LOG_ERROR, "audit",
                  "%" PRIu64
                  " records of the last files in %s were changed: run stockade audit verify",
                  a->found.changed, a->folder);
    if (a->found.torn_n > 0)
        log_event(LOG_WARNING, "audit", "%s ends in %" PRIu64 " bytes that are no record",
                  a->found.torn[a->found.torn_n - 1].file,
                  a->found.torn[a->found.torn_n - 1].bytes);
    return left > 0 ? audit_file_open(a, files[n - 1] + 1, true, e)
                    : audit_file_open(a, files[n - 1], false, e);
}
