// SPDX-License-Identifier: Apache-2.0
// What lasts: states of files that outlive their sandboxes, the broker, and the host.
//
// A **record** is a state of files: a chain of layers in the state directory, with an owner, a kind, a name, and a description that
// its kind understands (`about`). Snapshots that are kept are records; so can be sleeping sandboxes and templates. A layer is
// named by the digest of its tree, so records share layers; one that no record and no sandbox has any more is removed.
//
//   store_keep()  layers of a sandbox -> keepers -> STATE_DIR/layers/HEX -> STATE_DIR/store/ID.record -> done
//   store_check() each layer of a record is read once per run of the broker, before its first use
//   store_drop()  ID.record is removed, then what nothing needs
//
// A record is a file of its own, complete in itself: written beside its place, synced, renamed, and only then reported. So a
// crash leaves the old state or the new one, and no database is needed to keep two files in step; layers without a record are
// removed at the next start. The broker alone reads and writes records; it opens no layer (keeper/keep.h). The files of a
// layer are hostile data.
//
// With encryption, layers and descriptions of new records are encrypted with the data key of their tenant (vault/vault.h). Readable are
// then the heads of records: ids, tenants, names, templates, times; and sizes and keyed digests of layers.
//
// Bytes of a tenant are bounded (quotas.kept_bytes_per_caller): each layer that its records have counts once. Loop thread only;
// records are written and synced by a thread of libuv's pool.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/sealed.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/spawner/ops.h"

struct sandbox;
struct server;
struct spool;
struct store;
struct store_dropping;
struct store_op;
struct tenant;

enum {
    STORE_LAYERS_MAX = 250, // of one record
    STORE_ABOUT_MAX = 64 * 1024,
    STORE_ABOUT_ANY_MAX = 512 * 1024, // of a sandbox that is asleep
    STORE_RECORDS_MAX = 4096,         // of one tenant
    STORE_NAME = 65,
    STORE_DIGEST_TEXT = 2 * SPAWN_DIGEST_BYTES + 1,
};

enum store_kind { STORE_SNAPSHOT, STORE_SLEEPER, STORE_TEMPLATE, STORE_KINDS_N };

// A layer in the state directory. Read-only for others; held by records, by operations and with store_hold().
struct stored_layer {
    struct list node;
    uint8_t digest[SPAWN_DIGEST_BYTES];
    uint8_t key_id[SEALED_KEY_ID]; // of its data key (vault/vault.h); zeros: it is not encrypted
    uint64_t bytes, entries;       // keeper/keep.h
    uint64_t counted;              // store.c: by the last sum
    uint32_t holders;
    bool sound;   // read and compared in this run
    bool damaged; // the same, and it is not what was written
};

// Read-only for others.
struct stored {
    struct list node; // oldest first
    const struct store *store;
    uint64_t order; // increases with each
    char id[ID_TEXT_MAX + 1];
    enum store_kind kind;
    struct tenant *tenant;         // held
    char name[STORE_NAME];         // unique among those of a tenant and kind
    char sandbox[ID_TEXT_MAX + 1]; // that its files come from
    char template[64];             // of that sandbox
    int64_t created_ms;            // CLOCK_REALTIME
    // of the data key of `about`, on the disk; zeros: it is not encrypted
    uint8_t key_id[SEALED_KEY_ID];
    uint8_t *about;
    size_t about_n;
    bool unreadable; // its data key was forgotten: there is no `about`
    uint32_t layers_n;
    struct stored_layer *layer[STORE_LAYERS_MAX]; // the lowest first
    bool dropped;                                 // its file is being removed, or not written yet
    bool pending;                                 // the second of these
    bool listed;                                  // its file is on the disk
    bool amending, again;            // its file is being written again; once more after that
    struct store_dropping *dropping; // waits for that
};

// Reads all records, and removes layers that none of them has, in the background. A record that cannot be read is left where it is
// and logged, with what to do; then no layer is removed. NULL: out of memory, or *e.
struct store *store_new(struct server *srv, const char *state_dir, struct err *e);
// The broker stops: what is in progress ends, and nothing new begins. Accepts NULL.
void store_stop(struct store *s);
// False: something is still being written; run the loop, and call it again.
bool store_is_quiet(const struct store *s);
void store_free(struct store *s); // accepts NULL; the store must be quiet

// FAILED_PRECONDITION with what is missing: this host cannot keep files.
int store_available(const struct store *s, struct err *e);

// Whether so many bytes more of a tenant can be kept, by its quota and by what is free on the disk: RESOURCE_EXHAUSTED (KEPT_BYTES,
// DISK_FULL). The answer may be wrong a moment later; it saves work that would be in vain.
// Bytes and number of its records. t NULL: a tenant of which nothing is known.
uint64_t store_held(struct store *s, const struct tenant *t, uint32_t *records);
// Whether the disk has so many bytes free: DISK_FULL.
int store_has_disk(const struct store *s, uint64_t bytes, struct err *e);
int store_has_room(struct store *s, const char *tenant, uint64_t bytes, struct err *e);

// What is to be kept. Borrowed until store_keep() returns, except for the stored layers, which the operation holds.
struct store_want {
    enum store_kind kind;
    const char *tenant;
    const char *id;   // of the record; "": a new one
    const char *name; // unique, unless `again`; ALREADY_EXISTS otherwise
    bool again;
    const uint8_t *about;
    size_t about_n;
    uint32_t layers_n;
    struct store_part {             // the lowest first
        uint32_t layer;             // number of a sealed layer of the sandbox, as in sandbox_swap
        struct stored_layer *known; // or: it is in the state directory already
    } part[STORE_LAYERS_MAX];
    // not NULL: there is no sandbox; the layers are the streams of this spool (spool.h), borrowed until done; no part is used
    struct spool *from_spool;
    const char *template; // the host's
    uint32_t parts_max;   // keeper/keep.h
    bool set_id;          // the same
};

// False: a data key that it needs was forgotten. It can be dropped.
bool stored_can_be_read(const struct stored *r);

// What is on the disk, for operators.
struct store_encrypted {
    uint32_t encrypted_layers, plain_layers, encrypted_records, plain_records, unreadable_records;
};
void store_count(const struct store *s, struct store_encrypted *out);

// Starts to keep layers of a sandbox (from NULL: of a spool), which may end meanwhile. done is called once, unless store_unwait() comes before: with the record
// and all of its layers on the disk, or with the failure, after which nothing is left. ALREADY_EXISTS (NAME_IN_USE),
// RESOURCE_EXHAUSTED (KEPT_BYTES, KEPT_RECORDS, DISK_FULL), FAILED_PRECONDITION (LAYER_DEVICE, LAYER_DEEP, or no keeper); of a spool
// INVALID_ARGUMENT (ARCHIVE_REFUSED).
typedef void store_done(void *cookie, struct stored *r, const struct err *e);
int store_keep(struct store *s, const struct sandbox *from, const struct store_want *want,
               store_done *done, void *cookie, struct store_op **out, struct err *e);

// A spool for one archive (spool.h), in the broker's folder. NULL: *e.
struct spool *store_spool_new(struct store *s, struct err *e);

// Starts to write all layers of a record, the lowest first, as streams to an empty spool, which is borrowed until done. r of done is NULL.
// Failures as of store_check(), and RESOURCE_EXHAUSTED (DISK_FULL).
struct store_exporting;
int store_export(struct store *s, struct stored *r, struct spool *to, store_done *done,
                 void *cookie, struct store_exporting **out, struct err *e);
// Nobody waits any more: done is not called.
void store_export_unwait(struct store_exporting *x);

// Starts to read the layers of a record that were not read in this run yet. DATA_LOSS (LAYER_DAMAGED): one is damaged. The layers
// are held until done returns. done may be called before the function returns; then *out is NULL.
int store_check(struct store *s, struct stored *r, store_done *done, void *cookie,
                struct store_op **out, struct err *e);

// Nobody waits any more: done is not called. What was begun is completed; a record that nobody waits for is removed again.
void store_unwait(struct store_op *op);

// Removes a record. done (NULL: nobody waits) is called when its file is gone, r NULL; it is not found from now on.
int store_drop(struct store *s, struct stored *r, store_done *done, void *cookie, struct err *e);

// Replaces the description of a record, whose file is written again in the background; a failure is logged. Takes `about`, also on
// failure.
int store_amend(struct store *s, struct stored *r, uint8_t *about, size_t about_n, struct err *e);

// A record of a tenant by its id or name. NULL: there is none.
struct stored *store_find(const struct store *s, const char *tenant, enum store_kind kind,
                          const char *name);

// All records, of all tenants and kinds, oldest first; those that are `dropped` are to be skipped.
struct list *store_records(struct store *s);

// A sandbox shows it, or will.
void store_hold(struct stored_layer *l);
void store_let_go(struct store *s, struct stored_layer *l); // accepts NULL

// Bytes of its layers, with those that it shares.
uint64_t stored_bytes(const struct stored *r);
uint64_t stored_entries(const struct stored *r);

// Of the digests of its layers, the lowest first, in hex.
void store_digest_all(const struct stored *r, char out[STORE_DIGEST_TEXT]);

// "1f40...": as the folder is named.
void store_digest_text(const uint8_t digest[SPAWN_DIGEST_BYTES], char out[STORE_DIGEST_TEXT]);
