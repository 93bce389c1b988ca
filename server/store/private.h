// SPDX-License-Identifier: Apache-2.0
// Shared by store.c and load.c (records and layers), file.c (records as files) and keepers.c (processes that touch layers).
#pragma once

#include "server/keeper/keep.h"
#include "store.h"

#define STORE_FOLDER "store"

enum { STORE_PATH_MAX = SPAWN_PATH_MAX + 64 };

// ---- file.c: any thread, nothing shared

// A record as bytes; `about` encrypted with this key, unless NULL. NULL: *e.
uint8_t *file_pack(const struct stored *r, const struct sealed_key *key, size_t *n, struct err *e);
// `about` of a record that was read, decrypted in its place. DATA_LOSS: it is damaged.
int file_unseal(struct stored *r, const struct sealed_key *key, struct err *e);

// One layer of a record as the file names it.
struct file_layer {
    uint8_t digest[SPAWN_DIGEST_BYTES];
    uint64_t bytes, entries;
};

// The contents of a file, checked: `r` without tenant and layers, but with `about`, *owned*.
struct file_content {
    struct stored r;
    char tenant[32];
    struct file_layer layer[STORE_LAYERS_MAX];
    uint8_t key_id[STORE_LAYERS_MAX][SEALED_KEY_ID]; // of the layers
};
// DATA_LOSS: damaged; FAILED_PRECONDITION: of a later version.
int file_unpack(const uint8_t *bytes, size_t n, struct file_content *out, struct err *e);

void file_path(const char *state_dir, const char *id, char out[STORE_PATH_MAX]);
int file_read(const char *path, uint8_t **bytes, size_t *n, struct err *e);
// When it returns 0 the file is on the disk. Replaces an earlier one as a whole.
int file_write(const char *path, const uint8_t *bytes, size_t n, struct err *e);
int file_remove(const char *path, struct err *e);

// ---- keepers.c

struct keepers;

// The answer is borrowed; ok 0: see its err.
typedef void keepers_done(void *cookie, const struct keep_answer *a);

// They run in the order in which they were requested: PUT and CHECK some at a time, REMOVE and SWEEP alone, so that no layer is removed
// while the same is being written.
struct keepers *keepers_new(struct server *srv);
// Ends all works with UNAVAILABLE; keepers that run give up.
void keepers_stop(struct keepers *k);
bool keepers_are_quiet(const struct keepers *k);
void keepers_free(struct keepers *k);

// slot, generation and layer: PUT only. list_fd: -1; EXPORT, IMPORT: the file, *taken* with the work unless this fails.
struct keepers_work {
    struct keep_order order;
    uint32_t slot, generation, layer;
    int list_fd;
    // REMOVE: called when its turn has come. True: the layer was written again meanwhile, and stays.
    bool (*is_needed)(void *cookie, const uint8_t digest[SPAWN_DIGEST_BYTES]);
    // PUT, CHECK, EXPORT, IMPORT: of the data key, which the order gets as it is sent; zeros: none
    uint8_t key_id[SEALED_KEY_ID];
    // SWEEP: the same. Returns a descriptor with the digests of what stays, *owned*; negative: *e.
    int (*list)(void *cookie, struct err *e);
};
int keepers_add(struct keepers *k, const struct keepers_work *w, keepers_done *done, void *cookie,
                struct err *e);

// ---- store.c, load.c

struct store {
    struct server *srv;
    const char *state_dir; // borrowed
    struct keepers *keepers;
    struct list records; // struct stored
    struct list layers;  // struct stored_layer
    uint64_t order, sums;
    uint32_t writes, ops; // in progress
    bool closing;
    bool sweeping;
    uint32_t sweeps_failed; // one after the other
    bool unreadable;        // a record could not be read: no layer is removed
};

// ---- room.c

// Whether the record counts to the quota of the tenant: also one that is being written.
bool store_counts_to(const struct stored *r, const struct tenant *t);
// KEPT_BYTES.
int store_refuse_bytes(struct store *s, const struct tenant *t, uint64_t more, struct err *e);

// Starts to remove what neither a record nor a sandbox needs, such as what a keeper has left that was killed.
void store_sweep(struct store *s);

// A record that is on the disk; counted until store_record_free().
void store_list(struct stored *r);

// The layer with the digest of `like`, made like it if there is none; nobody holds a new one. NULL: out of memory.
struct stored_layer *store_layer(struct store *s, const struct stored_layer *like);
void store_layer_free(struct stored_layer *l);

// ---- write.c

// Starts to write a record; r NULL: removes the file of `id`.
int store_write(struct store *s, const struct stored *r, const char *id,
                void (*done)(void *cookie, const struct err *e), void *cookie, struct err *e);

// Of one that is in the list, or not yet. Accepts NULL.
void store_record_free(struct store *s, struct stored *r);
