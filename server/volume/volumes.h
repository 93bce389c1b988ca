// SPDX-License-Identifier: Apache-2.0
// Volumes: folders of a tenant that outlive sandboxes, broker and host, with a quota of bytes and inodes that the kernel
// enforces. Each is a disk (disk/order.h) and a record in the index (index.h).
//
//   making --> closed --a sandbox wants it--> opening --> open --nobody has it for a while--> closing --> closed
//   doomed: Delete was called; its record is gone, nobody finds it, and its disk is removed as soon as it is closed
//
// The record is written after the disk was made and removed before the disk is, so a disk without a record is no volume: the
// next start removes it. Loop thread only. What a volume holds is hostile; nothing here opens a file of it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "volume.h"

struct server;

enum { VOLUMES_MAX = 4096 }; // of all tenants

struct volumes;

// Reads the index. NULL: out of memory.
struct volumes *volumes_new(struct server *srv, const char *state_dir);

// What a tenant has.
struct volumes_held {
    uint32_t n;
    uint64_t bytes; // of all of them together
};
void volumes_held(const struct volumes *vs, const char *tenant, struct volumes_held *out);

// Once, when the spawner answers: removes disks without a record.
void volumes_sweep(struct volumes *vs);

// Accepts NULL. Operations in progress get no callback.
void volumes_free(struct volumes *vs);

// An operation in progress, with the one who waits for it. It is completed even if nobody waits any more.
struct volume_op;
typedef void volume_done(void *cookie, const struct volume *v, const struct err *e);
void volume_unwait(struct volume_op *op);

// Starts to make one. done is called once, later. bytes and inodes are at least 1. ALREADY_EXISTS; RESOURCE_EXHAUSTED: a quota of
// the tenant (VOLUMES, VOLUME_BYTES), or the host's disk is full; FAILED_PRECONDITION: this host has no disks (NO_DISKS),
// or the configuration wants encryption (ENCRYPTION_REQUIRED).
struct volume_wanted {
    const char *tenant, *name;
    uint64_t bytes;
    uint32_t inodes;
};
int volume_create(struct volumes *vs, const struct volume_wanted *w, volume_done *done,
                  void *cookie, struct volume_op **out, struct err *e);

// Starts to remove one with all that it holds; `v` of done is NULL. NOT_FOUND; FAILED_PRECONDITION (VOLUME_IN_USE): sandboxes
// have it, others than those that are being deleted, whose end it waits for. With `force` it has them deleted.
struct volume_unwanted {
    const char *tenant, *name;
    bool force;
};
int volume_delete(struct volumes *vs, const struct volume_unwanted *w, volume_done *done,
                  void *cookie, struct volume_op **out, struct err *e);

// NULL and NOT_FOUND: the tenant has none of this name, even if another one has.
const struct volume *volume_find(const struct volumes *vs, const char *tenant, const char *name,
                                 struct err *e);

// Measures what it holds, if its disk is open; otherwise what it held when that was closed is known, if it was open since the
// broker started.
void volume_look(const struct volume *v);

// The same, after opening its disk if nothing is known. 1: known now. 0: done is called once, later; what it holds may be unknown
// even then.
int volume_measure(const struct volume *v, volume_done *done, void *cookie, struct volume_op **out,
                   struct err *e);

// Sandboxes that have it and are not being deleted.
uint32_t volume_sandboxes(const struct volumes *vs, const struct volume *v);

// For sandboxes, registered once at the start: sandboxes_set_mounters().
extern const struct sandbox_mounters volume_mounters;

// All that can be found, of all tenants, oldest first; NULL at the end.
const struct volume *volume_next(const struct volumes *vs, const struct volume *before);
