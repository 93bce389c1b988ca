// SPDX-License-Identifier: Apache-2.0
// The thread that writes.
//
//   wait --> take the whole queue --> frames, hashes --> pwrite --> checkpoint, rotate, fdatasync, as due --> hand back --> wait
//     ^                                                   | failed: cut the file back to its last whole record,
//     +--- 0.5 s ---------------------------------------- +  and try the same records again (fdatasync: sync.c)
//
// The chain moves on when the bytes are in the file, and not before.
#include "private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"

enum { LENGTH = 4, OUT_BYTES = AUDIT_CHUNK_BYTES + AUDIT_FRAME_MAX };

#define NS_PER_MS UINT64_C(1000000)

// ---- records

int
audit_put(const struct audit_system *system, struct audit_buffer *b, size_t room,
          Stockade__V1__AuditRecord *m)
{
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    const int64_t now = system->now_ns(CLOCK_REALTIME);
    time.seconds = now / 1000000000;
    time.nanos = (int32_t)(now % 1000000000);
    m->time = &time;
    m->boot_ns = (uint64_t)system->now_ns(CLOCK_BOOTTIME);
    const size_t n = stockade__v1__audit_record__get_packed_size(m);
    const uint32_t length = (uint32_t)n;
    int r = n + AUDIT_PREFIX_MAX > AUDIT_RECORD_MAX ? -EMSGSIZE : 0;
    if (r == 0 && b->n + LENGTH + n > room)
        r = -ENOSPC;
    if (r == 0) {
        memcpy(b->bytes + b->n, &length, LENGTH);
        (void)stockade__v1__audit_record__pack(m, b->bytes + b->n + LENGTH);
        b->n += LENGTH + n;
        b->records++;
    }
    m->time = NULL;
    return r;
}

// Continues the chain by a record. Returns the length of its frame.
static size_t
link_record(struct audit *a, const uint8_t *record, size_t n, uint8_t *out)
{
    struct audit_chain *c = &a->chain;
    uint8_t hash[AUDIT_HASH];
    if (c->leaves_n == 0) {
        c->first = c->sequence + 1;
        memcpy(c->before, c->head, AUDIT_HASH);
    }
    assert(c->leaves_n < a->leaves_max);
    const size_t bytes = audit_frame_write(++c->sequence, c->head, record, n, out, hash);
    memcpy(c->head, hash, AUDIT_HASH);
    memcpy(a->leaf[c->leaves_n++], hash, AUDIT_HASH);
    return bytes;
}

// ---- the file

// Appends the first n bytes of a->out. On failure chain and file are as before.
static int
store(struct audit *a, const struct audit_chain *before, size_t n, struct err *e)
{
    size_t done = 0;
    if (audit_sync_room(a, n, e) < 0) {
        a->chain = *before;
        return -EIO;
    }
    while (done < n) {
        const ssize_t one =
            pwrite(a->file.fd, a->out + done, n - done, (off_t)(a->file.bytes + done));
        if (one < 0 && errno == EINTR)
            continue;
        if (one <= 0) {
            (void)err_sys(e, one < 0 ? errno : EIO, "write the audit log in %s", a->folder);
            // if this fails as well, the next attempt writes over what is left
            if (ftruncate(a->file.fd, (off_t)a->file.bytes) < 0)
                (void)err_wrap(e, "%s", "a part of a record is left");
            a->chain = *before;
            return -EIO;
        }
        done += (size_t)one;
    }
    a->file.bytes += n;
    audit_sync_add(a, a->out, n);
    a->written_bytes += n;
    a->written += a->chain.sequence - before->sequence;
    if (a->unsynced_since_ns == 0)
        a->unsynced_since_ns = uv_hrtime();
    if (a->unsigned_since_ns == 0)
        a->unsigned_since_ns = uv_hrtime();
    return 0;
}

static int
flush(struct audit *a, struct err *e)
{
    if (a->unsynced_since_ns == 0 || a->settings.sync == AUDIT_SYNC_NONE)
        return 0;
    return audit_sync(a, e);
}

// A record of the writer's own.
static int
store_own(struct audit *a, Stockade__V1__AuditRecord *m, struct err *e)
{
    uint8_t packed[LENGTH + AUDIT_RECORD_MAX];
    struct audit_buffer b = {.bytes = packed};
    const struct audit_chain before = a->chain;
    if (audit_put(a->system, &b, sizeof packed, m) < 0)
        return err_set(e, ERR_INTERNAL, "write the audit log: a record is too long");
    return store(a, &before, link_record(a, packed + LENGTH, b.n - LENGTH, a->out), e);
}

// ---- checkpoints

// next: the key of the next checkpoint; NULL: the same.
static size_t
pack_tree(struct audit *a, const struct audit_pair *next, uint8_t out[AUDIT_TREE_MAX])
{
    uint8_t root[AUDIT_HASH];
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Stockade__V1__AuditTree t = STOCKADE__V1__AUDIT_TREE__INIT;
    const int64_t now = a->system->now_ns(CLOCK_REALTIME);
    time.seconds = now / 1000000000;
    time.nanos = (int32_t)(now % 1000000000);
    audit_tree_root((const uint8_t(*)[AUDIT_HASH])a->leaf, a->chain.leaves_n, a->scratch, root);
    t.first = a->chain.first;
    t.count = a->chain.leaves_n;
    t.root = (ProtobufCBinaryData){AUDIT_HASH, root};
    t.before = (ProtobufCBinaryData){AUDIT_HASH, a->chain.before};
    t.time = &time;
    t.boot_ns = (uint64_t)a->system->now_ns(CLOCK_BOOTTIME);
    if (next != NULL)
        t.next_key = (ProtobufCBinaryData){AUDIT_KEY, (uint8_t *)(uintptr_t)next->public_key};
    assert(stockade__v1__audit_tree__get_packed_size(&t) <= AUDIT_TREE_MAX);
    return stockade__v1__audit_tree__pack(&t, out);
}

static int
sign_naming(struct audit *a, const struct audit_pair *next, struct err *e)
{
    uint8_t tree[AUDIT_TREE_MAX], signature[AUDIT_SIGNATURE];
    Stockade__V1__AuditCheckpoint c = STOCKADE__V1__AUDIT_CHECKPOINT__INIT;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    if (a->chain.leaves_n == 0)
        return 0;
    const size_t n = pack_tree(a, next, tree);
    audit_sign(tree, n, a->secret, signature);
    c.tree = (ProtobufCBinaryData){n, tree};
    c.signature = (ProtobufCBinaryData){sizeof signature, signature};
    c.key_id = (ProtobufCBinaryData){AUDIT_KEY_ID, a->public_key};
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHECKPOINT;
    m.checkpoint = &c;
    int r = store_own(a, &m, e);
    if (r < 0)
        return r;
    if (next != NULL)
        audit_chain_note(a, &c);
    a->chain.leaves_n = 0;
    a->unsigned_since_ns = 0;
    a->checkpoints++;
    return 0;
}

static int
sign(struct audit *a, struct err *e)
{
    return sign_naming(a, NULL, e);
}

// ---- another key

static int
note_key(struct audit *a, const struct audit_pair *next, struct err *e)
{
    char id[2 * AUDIT_KEY_ID + 1];
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditChange c = STOCKADE__V1__AUDIT_CHANGE__INIT;
    c.kind = "audit-key";
    c.name = sodium_bin2hex(id, sizeof id, next->public_key, AUDIT_KEY_ID);
    c.digest = (ProtobufCBinaryData){AUDIT_KEY, (uint8_t *)(uintptr_t)next->public_key};
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHANGE;
    m.change = &c;
    return store_own(a, &m, e);
}

// The checkpoint that names the key is on the disk: makes it the key there, too.
static int
settle_key(struct audit *a, struct err *e)
{
    if (!a->key_is_next)
        return 0;
    int r = a->settings.sync != AUDIT_SYNC_NONE ? flush(a, e)
            : a->system->sync(a->file.fd) < 0   ? err_sys(e, errno, "write the audit log")
                                                : 0;
    if (r == 0)
        r = audit_key_finish(a, e);
    a->key_is_next = r < 0;
    return r;
}

// From the moment on that the checkpoint is in the file, the next key signs.
static int
change_key(struct audit *a, struct err *e)
{
    struct audit_pair next;
    int r = settle_key(a, e);
    if (r == 0)
        r = audit_key_prepare(a, &next, e);
    if (r < 0)
        return r;
    r = note_key(a, &next, e);
    if (r == 0)
        r = sign_naming(a, &next, e);
    if (r < 0) {
        audit_key_forget(a);
    } else {
        memcpy(a->secret, next.secret, sizeof a->secret);
        memcpy(a->public_key, next.public_key, sizeof a->public_key);
        a->key_is_next = true;
        r = settle_key(a, e);
    }
    sodium_memzero(&next, sizeof next);
    return r;
}

// ---- rotation

static void
note_removed(struct audit *a, const char *name)
{
    struct err e;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditChange c = STOCKADE__V1__AUDIT_CHANGE__INIT;
    c.kind = "file-removed";
    c.name = name;
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHANGE;
    m.change = &c;
    (void)store_own(a, &m, &e); // if it fails, so does the next record, which reports it
}

// The file was cut and another one begun: the log says so itself.
static int
note_moved(struct audit *a, struct err *e)
{
    char text[192];
    const struct audit_moved moved = a->moved;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    Stockade__V1__AuditChange c = STOCKADE__V1__AUDIT_CHANGE__INIT;
    if (moved.bytes == 0)
        return 0;
    (void)snprintf(text, sizeof text,
                   "fdatasync: %s; %" PRIu64 " bytes from %" PRIu64 " on are in the next file",
                   strerrordesc_np(moved.error), moved.bytes, moved.offset);
    c.kind = "disk-failed";
    c.name = moved.file;
    c.text = text;
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_CHANGE;
    m.change = &c;
    a->moved = (struct audit_moved){.bytes = 0};
    int r = store_own(a, &m, e);
    if (r < 0)
        a->moved = moved;
    return r;
}

static void
prune(struct audit *a)
{
    struct err e;
    uint32_t *auto_free files = NULL;
    const int n = a->settings.keep > 0 ? audit_list(a->dir, a->folder, &files, &e) : 0;
    for (int i = 0; i + (int)a->settings.keep < n; i++) {
        char name[AUDIT_NAME];
        audit_name(files[i], name);
        if (files[i] != a->file.number && unlinkat(a->dir, name, 0) == 0)
            note_removed(a, name);
    }
}

// Each file ends with a checkpoint, so that it can be checked alone.
static int
rotate(struct audit *a, struct err *e)
{
    if (a->file.bytes < a->settings.rotate_bytes)
        return 0;
    int r = sign(a, e);
    if (r == 0)
        r = flush(a, e);
    if (r == 0)
        r = audit_file_open(a, a->file.number + 1, true, e);
    if (r == 0)
        prune(a);
    return r;
}

// ---- the work

// The next records of the queue. *at moves behind them.
static int
store_chunk(struct audit *a, size_t *at, struct err *e)
{
    const struct audit_chain before = a->chain;
    const struct audit_buffer *b = &a->taken;
    size_t from = *at, n = 0;
    for (unsigned i = 0; i < AUDIT_CHUNK && from < b->n && n < AUDIT_CHUNK_BYTES; i++) {
        uint32_t length;
        memcpy(&length, b->bytes + from, LENGTH);
        n += link_record(a, b->bytes + from + LENGTH, length, a->out + n);
        from += LENGTH + length;
    }
    int r = n > 0 ? store(a, &before, n, e) : 0;
    if (r == 0)
        *at = from;
    return r;
}

static bool
is_due(uint64_t since_ns, uint64_t after_ms)
{
    return since_ns != 0 && uv_hrtime() - since_ns >= after_ms * NS_PER_MS;
}

// All that is to be done now; *at: how much of the queue is written. Starts again where it failed.
static int
work(struct audit *a, size_t *at, bool ends, struct err *e)
{
    const struct audit_settings *s = &a->settings;
    int r = 0;
    while (*at < a->taken.n && r == 0) {
        r = store_chunk(a, at, e);
        if (r == 0 && a->chain.leaves_n >= s->records)
            r = sign(a, e);
        if (r == 0)
            r = rotate(a, e);
    }
    const bool may_sign =
        a->chain.leaves_n > 0 && (ends || is_due(a->unsigned_since_ns, s->checkpoint_ms));
    if (r == 0 && may_sign)
        r = sign(a, e);
    if (r == 0 &&
        (ends || s->sync == AUDIT_SYNC_ALWAYS || is_due(a->unsynced_since_ns, s->sync_ms)))
        r = flush(a, e);
    if (r == 0 && a->key_is_next && a->unsynced_since_ns == 0)
        (void)settle_key(a, e); // it failed before; the next start ends it as well
    if (r == 0 && a->moved.bytes > 0) {
        r = note_moved(a, e);
        if (r == 0)
            r = flush(a, e);
    }
    return r;
}

// When the next work is due that nobody requests; 0: none.
static uint64_t
next_due(const struct audit *a)
{
    uint64_t due = 0;
    const uint64_t signs = a->unsigned_since_ns != 0 && a->chain.leaves_n > 0
                               ? a->unsigned_since_ns + a->settings.checkpoint_ms * NS_PER_MS
                               : 0;
    const uint64_t syncs = a->unsynced_since_ns != 0 && a->settings.sync == AUDIT_SYNC_INTERVAL
                               ? a->unsynced_since_ns + a->settings.sync_ms * NS_PER_MS
                               : 0;
    if (signs != 0)
        due = signs;
    if (syncs != 0 && (due == 0 || syncs < due))
        due = syncs;
    return due;
}

static void
wait_for_work(struct audit *a)
{
    while (!a->ends && !a->waited && (!a->rekey_asked || a->rekey_done) &&
           a->filling.n < AUDIT_QUEUE_BYTES / 4) {
        const uint64_t now = uv_hrtime();
        const uint64_t due = next_due(a);
        if (due != 0 && due <= now)
            return;
        if (due == 0)
            uv_cond_wait(&a->writer.wake, &a->writer.lock);
        else
            (void)uv_cond_timedwait(&a->writer.wake, &a->writer.lock, due - now);
    }
}

static void
take(struct audit *a)
{
    const struct audit_buffer empty = {.bytes = a->taken.bytes};
    a->taken = a->filling;
    a->filling = empty;
    a->waited = false;
}

static void
report(struct audit *a, const struct err *why)
{
    a->failing = why != NULL;
    if (why != NULL)
        a->why = *why;
    else
        a->last = a->chain.sequence;
    a->figures = (struct audit_figures){.records = a->written,
                                        .bytes = a->written_bytes,
                                        .checkpoints = a->checkpoints,
                                        .failures = a->figures.failures + (why != NULL)};
    writer_thread_done(&a->writer);
}

// With the lock. False: the broker ends.
static bool
wait_to_retry(struct audit *a)
{
    const uint64_t until = uv_hrtime() + AUDIT_RETRY_MS * NS_PER_MS;
    for (uint64_t now = uv_hrtime(); !a->ends && now < until; now = uv_hrtime())
        (void)uv_cond_timedwait(&a->writer.wake, &a->writer.lock, until - now);
    return !a->ends;
}

// With the lock.
static void
answer_rekey(struct audit *a, const struct err *why)
{
    a->rekey_done = true;
    a->rekey_failed = why != NULL;
    if (why != NULL)
        a->rekey_why = *why;
}

void
audit_run(void *audit)
{
    struct audit *a = audit;
    struct err e;
    bool ends = false;
    uv_mutex_lock(&a->writer.lock);
    while (!ends) {
        size_t at = 0;
        wait_for_work(a);
        ends = a->ends;
        take(a);
        const uint64_t records = a->taken.records;
        bool goes_on = true;
        for (int r = -1; r < 0 && goes_on;) {
            const bool rekeys = a->rekey_asked && !a->rekey_done;
            int failed = 0;
            uv_mutex_unlock(&a->writer.lock);
            r = work(a, &at, ends, &e);
            if (rekeys)
                failed = r < 0 ? r : change_key(a, &e);
            uv_mutex_lock(&a->writer.lock);
            if (rekeys)
                answer_rekey(a, failed < 0 ? &e : NULL);
            if (r < 0)
                report(a, &e);
            goes_on = r == 0 || wait_to_retry(a);
        }
        a->stored += goes_on ? records : 0;
        if (goes_on)
            report(a, NULL);
        ends = ends || !goes_on;
    }
    uv_mutex_unlock(&a->writer.lock);
}

// Room for frames.
int
audit_writer_prepare(struct audit *a, struct err *e)
{
    a->out = malloc(OUT_BYTES);
    return a->out != NULL ? audit_sync_prepare(a, e) : err_sys(e, ENOMEM, "open the audit log");
}
