// SPDX-License-Identifier: Apache-2.0
// Shared by the keeper's files: what it does with trees. Each folder is entered by its name from the descriptor of the one
// above, never through a link. All functions return 0 or a negative errno with e.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keep.h"
#include "proto/sealed.h"

// Ends a long operation: the broker has closed its socket, -ECANCELED. Cheap enough for each file.
int work_goes_on(struct err *e);

// The names in a folder, without "." and "..", in the order of their bytes.
struct names {
    char **name; // n of them, into `bytes`
    char *bytes;
    size_t n;
};
int names_read(int folder, struct names *out, struct err *e);
void names_free(struct names *n);
#define auto_names __attribute__((cleanup(names_free)))

// The extended attributes of a layer: opaque marks, POSIX ACLs, and what jobs set themselves ("user."). Others are traces of
// overlayfs or the host's business, and are left out.
struct xattrs {
    char *names;  // one after the other, each with its NUL
    size_t bytes; // of all names
    char *value;  // of the one that was read last
    size_t value_max;
};
int xattrs_list(int fd, struct xattrs *x, struct err *e);
bool xattrs_is_kept(const char *name);
// The length of the value, which is in x->value.
long xattrs_get(int fd, struct xattrs *x, const char *name, struct err *e);
void xattrs_free(struct xattrs *x);
#define auto_xattrs __attribute__((cleanup(xattrs_free)))
// Adds `by` to the ids in a POSIX ACL that lie in the range from `from` on; others become nobody's.
int xattrs_shift_acl(const char *name, char *value, size_t n, uint32_t from, uint32_t to,
                     struct err *e);

// The id of a file in another range; ids outside of `from` become nobody's (65534).
uint32_t work_shift_id(uint32_t id, uint32_t from, uint32_t to);

// The folders of a layer: `s`, and those of a writable root (spawner/tree_layers.h), `b` to `p`. NULL: the end.
extern const char *const work_parts[];
// `k` is none: it is the work folder of overlayfs (spawner/tree_parts.c), which stays in a layer that was an upper one. Layers that were
// kept before are as they are.
bool work_is_part(unsigned number);
// -ENOENT, without e: the layer has no such part.
int work_open_part(int layer_fd, const char *part, struct err *e);

// What is copied: layers, the highest first, as one.
struct copy_sources {
    unsigned n; // at least 1
    struct copy_source {
        enum keep_source_kind kind;
        int fd;     // of the layer; owned
        int dev_fd; // KEEP_SOURCE_DISK: the sandbox's /dev, for its owner and mode; owned
    } of[KEEP_SOURCES_MAX];
};

// Writes a copy of the layers into the empty folder `layer_fd`, all their parts. Ids from from_uid on become those from to_uid on; if these
// are equal, no id changes. Nothing is synced. RESOURCE_EXHAUSTED: more than bytes_max, or the disk is full (DISK_FULL);
// FAILED_PRECONDITION: a device (LAYER_DEVICE), or too deep (LAYER_DEEP).
struct copy_bounds {
    uint32_t from_uid, to_uid;
    uint64_t bytes_max;
    const char *full_subject, *full_hint; // of DISK_FULL
};
int copy_layer(const struct copy_sources *from, int layer_fd, const struct copy_bounds *b,
               struct err *e);

// The digest of a stored layer: of names, kinds, modes, owners, times, attributes, links and contents.
struct digest {
    uint8_t digest[SPAWN_DIGEST_BYTES];
    uint64_t bytes, entries;
    uint64_t stream; // seal_layer(), unseal_layer(): bytes of the stream
};
int digest_layer(int layer_fd, struct digest *out, struct err *e);

// Writes the same trees encrypted, instead of a copy of them. Ids from `uid` on become those from 0 on. The digest has a key.
// Failures as of copy_layer().
struct seal {
    const struct sealed_key *key;
    uint32_t uid;
    uint64_t bytes_max;
};
int seal_layer(int layer_fd, const struct seal *seal, struct sealed_writer *to, struct digest *out,
               struct err *e);

// Reads a sealed layer: writes its trees into the empty folder `layer_fd` with ids from `uid` on, or (layer_fd -1) only checks it.
// DATA_LOSS: it is not what was written, or no layer. RESOURCE_EXHAUSTED (DISK_FULL). What was written before a failure stays.
struct unseal {
    const struct sealed_key *key;
    int layer_fd;
    uint32_t uid;
    const char *full_subject, *full_hint; // of DISK_FULL
    const struct foreign *foreign;        // NULL: a keeper of this host wrote it
    struct unseal_tee *tee;               // NULL: none
};

// What others wrote must be what a keeper would have written, and no more. RESOURCE_EXHAUSTED (KEPT_BYTES).
struct foreign {
    uint64_t bytes_max;
    uint32_t parts_max;
    bool set_id; // of files that do not belong to jobs
};

// The same stream again, with another key.
struct unseal_tee {
    const struct sealed_key *key;
    struct sealed_writer *to;
    struct digest out;
    crypto_generichash_state hash;
};
int unseal_layer(struct sealed_reader *from, const struct unseal *u, struct digest *out,
                 struct err *e);

// The file of a sealed layer in its folder, with seal_layer() and unseal_layer().
int seal_into(int folder, int layer_fd, const struct seal *seal, struct digest *out, struct err *e);
int unseal_from(int file, const struct unseal *u, struct digest *out, struct err *e);

// The stream of a layer in `layer_fd`, or of a sealed one (`layer_fd` -1, and its file and key), to the end of the file `to`.
struct carry {
    int layer_fd, sealed;
    const struct sealed_key *key, *to_key;
    uint64_t bytes_max;
};
int carry_out(const struct carry *c, int to, struct digest *layer, struct digest *stream,
              struct err *e);
// `bytes` of a file as the stream of a layer: makes it in `layer_fd` of `u`, or, with a key, encrypts it there. *stream: as it was read; *layer:
// of a sealed one.
int carry_in(int file, uint64_t bytes, const struct unseal *u, const struct sealed_key *key,
             struct digest *stream, struct digest *layer, struct err *e);

// What is not kept. Each writes e.
int work_too_large(uint64_t bytes_max, struct err *e);
int work_too_deep(struct err *e);
int work_is_device(struct err *e);
int work_disk_full(const char *subject, const char *hint, const char *what,
                   struct err *e); // of errno

// Removes an entry with all below it. 0 also if it is not there.
int remove_tree(int folder, const char *name, struct err *e);

// Gives up all that it does not need: the file system above `folder`, capabilities, system calls.
int confine(int folder, struct err *e);
