// SPDX-License-Identifier: Apache-2.0
// The protocol between the broker and a keeper: one header for both ends of their socket.
//
// A keeper is a root process that does one thing with layers of files in the state directory, and exits. It writes a layer of
// a sandbox there, checks one, or removes some. The spawner starts it (SPAWN_KEEP, SPAWN_KEEPER), and gives it the layer: the
// broker names neither a folder nor a file. A layer is hostile data (a job wrote it), but no process can change it any more.
//
//   broker --struct keep_order--> keeper        once; SWEEP, EXPORT and IMPORT come with a descriptor
//   keeper --struct keep_answer-> broker        once, when it is done and durable
//   end of file                                 from the broker: give up, and leave nothing behind
//
// COPY is different: the new layer is no folder of the state directory but a file system in memory, which the spawner has made and
// placed among those of the sandbox, and the keeper runs in the sandbox's cgroup, so that its memory and its CPU time count there.
// It gets what it copies from the spawner, before the order, on the same socket: one struct keep_source per packet.
//
//   STATE_DIR/layers/            root, 0700
//     HEX/s/, HEX/b/...          a layer: HEX is the BLAKE2b-256 digest of its trees (digest.c)
//     HEX/sealed                 one that is encrypted, instead: HEX is a digest with a key of its tenant
//     new-PID/                   being written; without meaning after a crash
//     old-HEX/                   being removed; the same
//
// EXPORT and IMPORT carry a layer in an archive of a template (server/store/archive.h): they write and read its stream (digest.c) in a
// file of the broker's, encrypted with a key that is in memory only. What IMPORT reads is hostile.
//
// Files belong to KEEP_ID_BASE plus their id inside a sandbox. A layer gets its name when all of it is on the disk (syncfs(2),
// rename(2), fsync(2)); which layers are in use is written in the broker's index (server/store).
//
// A sealed layer is never on the disk in clear: PUT encrypts it on its way there, and the files come back into memory, by COPY with one
// source of the kind SEALED. The key comes with the order, through the socket, and is in no file.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "proto/sealed.h"
#include "server/spawner/ops.h"

#define KEEP_FOLDER "layers"
#define KEEP_SEALED "sealed"

// First id of the files in all layers: by default the range before that of the first sandbox. It never changes.
#define KEEP_ID_BASE SPAWN_ID_BASE_DEFAULT

enum {
    KEEP_BROKER_FD = 3,
    // PUT: the layer, a detached mount, read-only; its folders `s`, and `b` to `p` of a writable root, are the layer
    // COPY: the root of the new layer's file system, empty
    KEEP_SOURCE_FD = 4,
    KEEP_SOURCES_MAX = 64,
    KEEP_PARTS_MAX = 17, // of a layer, and one
    KEEP_DEPTH_MAX = 4096,
    KEEP_HEX = 2 * SPAWN_DIGEST_BYTES,
    KEEP_BLOCK = 4096,
    // what an entry counts, besides its blocks that are not all zero
    KEEP_ENTRY_BYTES = 1024,
};

enum keep_op {
    // writes the source; the answer has its digest
    KEEP_PUT = 1,
    // reads `digest`, and compares. DATA_LOSS (LAYER_DAMAGED): it is another; NOT_FOUND: it is not there
    KEEP_CHECK = 2,
    // removes `digest`, if it is there
    KEEP_REMOVE = 3,
    // removes all but the digests in the file that comes with it
    KEEP_SWEEP = 4,
    // joins the sources in the new layer. RESOURCE_EXHAUSTED (DISK_FULL): it has no room. SEALED: as of CHECK, too
    KEEP_COPY = 5,
    // writes `digest` to the file that comes with it; the answer has the digest of the stream
    KEEP_EXPORT = 6,
    // makes a layer of the stream at `at` of the file that comes with it, if that has `digest`. INVALID_ARGUMENT (ARCHIVE_REFUSED)
    KEEP_IMPORT = 7,
};

// Names streams in archives: their digest has this key, which is no secret.
#define KEEP_ARCHIVE_NAMES "stockade: a layer in an archive"

// The first argument of a keeper that gets COPY, instead of the state directory.
#define KEEP_FOR_COPY "copy"

// Folders of a source: those of a layer (`s`, `b`...), of a frozen upper file system (`u`, `B`...), or of a frozen disk on which
// there is no layer yet (`u0`, `u1`..., `shm`). SEALED: the file of a sealed layer.
enum keep_source_kind {
    KEEP_SOURCE_LAYER,
    KEEP_SOURCE_UPPER,
    KEEP_SOURCE_DISK,
    KEEP_SOURCE_SEALED,
};

// One source of COPY, the highest first; with its descriptor, and (DISK) one of the sandbox's /dev. SEALED: the only one.
struct keep_source {
    uint32_t kind;
    uint32_t left; // number of packets that follow
    // first host id of its files, the same of all; the copy's are those of the sandbox that gets it
    uint32_t uid;
    uint32_t reserved;
};

struct keep_order {
    uint32_t op;
    uint32_t reserved;
    uint64_t bytes_max; // PUT, COPY; more is RESOURCE_EXHAUSTED (KEPT_BYTES)
    // CHECK, REMOVE, EXPORT; COPY of what is SEALED; IMPORT: of the stream
    uint8_t digest[SPAWN_DIGEST_BYTES];
    // PUT, CHECK, EXPORT, IMPORT: the layer is sealed with this key; COPY: of the source, if it is SEALED. Without an id: it is not
    struct sealed_key key;
    // EXPORT, IMPORT: of the stream in the file
    struct sealed_key file_key;
    uint64_t at, file_bytes; // IMPORT
    uint32_t parts_max;      // IMPORT: the layer has only the first of them
    // IMPORT: files of all owners may have set-id bits, and not only those of jobs
    uint32_t set_id;
};

struct keep_answer {
    uint32_t ok;
    uint32_t known; // PUT: the same layer was there already
    // PUT, CHECK, EXPORT, IMPORT: as counted by KEEP_BLOCK and KEEP_ENTRY_BYTES; COPY: that the file system takes
    uint64_t bytes;
    uint64_t entries; // the same; COPY: inodes
    uint64_t removed; // SWEEP: layers
    uint64_t stream;  // EXPORT: bytes of the stream
    uint8_t digest[SPAWN_DIGEST_BYTES];
    struct err err;
};
