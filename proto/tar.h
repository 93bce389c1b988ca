// SPDX-License-Identifier: Apache-2.0
// Trees of files as tar archives: read and written by programs that may not trust them (stockade-files in a sandbox, and the
// command `stockade cp`).
//
// Written is the GNU format (names and links of any length and bytes, sizes above 8 GiB), which GNU tar, libarchive and
// Python read. Read are GNU, ustar and pax. An archive is hostile: see tar_unpack().
//
// Both work on descriptors of folders: each folder is entered from the one above, never through a link, so a tree that
// changes meanwhile leads nowhere else.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"

enum {
    TAR_BLOCK = 512,
    TAR_NAME_MAX = 4096,  // of a path in an archive, with its NUL
    TAR_LEVELS_MAX = 128, // of folders
};

// Bounds of what is read, and written; 0: none.
struct tar_bounds {
    uint64_t bytes;   // of all files together
    uint64_t entries; // files and folders
};

// What was done.
struct tar_counts {
    uint64_t bytes, entries;
    uint64_t skipped; // FIFOs, sockets and devices that were not packed
};

// Where an archive goes: returns 0, or a negative errno with *e.
struct tar_sink {
    int (*write)(void *cookie, const void *bytes, size_t n, struct err *e);
    void *cookie;
};

// Where it comes from: bytes, 0 at the end, or a negative errno with *e.
struct tar_source {
    ssize_t (*read)(void *cookie, void *bytes, size_t n, struct err *e);
    void *cookie;
};

// Packs the file or folder `name` of a folder, under the name `as` ("." for a folder: its contents alone).
// RESOURCE_EXHAUSTED: too many levels, or beyond a bound.
int tar_pack(int folder, const char *name, const char *as, const struct tar_bounds *bounds,
             const struct tar_sink *sink, struct tar_counts *counts, struct err *e);

// Unpacks an archive into a folder. Existing files are replaced, folders kept. Refused (INVALID_ARGUMENT, and what came
// before stays): absolute names, `..`, names through a link, hard links to what is not in the folder, devices, FIFOs, sparse
// files, more than TAR_LEVELS_MAX levels, a header with a wrong checksum, an archive that ends early (DATA_LOSS);
// RESOURCE_EXHAUSTED: beyond a bound. Permissions are masked with 0777. links_inside: also symbolic links that lead out
// of the folder are refused (LINK_LEADS_OUT).
int tar_unpack(int folder, bool links_inside, const struct tar_bounds *bounds,
               const struct tar_source *source, struct tar_counts *counts, struct err *e);

// One header: what it says, or why it is refused.
enum tar_kind {
    TAR_FILE,
    TAR_FOLDER,
    TAR_LINK,
    TAR_HARD_LINK,
    TAR_LONG_NAME,
    TAR_LONG_LINK,
    TAR_PAX,
    TAR_PAX_GLOBAL,
    TAR_END
};
struct tar_header {
    enum tar_kind kind;
    uint64_t size;
    uint32_t mode;
    int64_t mtime;
    char name[TAR_NAME_MAX];
    char link[TAR_NAME_MAX];
};
int tar_header_read(const uint8_t block[TAR_BLOCK], struct tar_header *out, struct err *e);
// The header of a file with a name of at most 99 bytes. After the file come zeros up to the next block, after the last one two blocks of them.
void tar_header_write(uint8_t block[TAR_BLOCK], const char *name, uint64_t size);

// An archive of a few regular files that comes in pieces, and is not unpacked: who reads it judges names and sizes. Zeroed before the
// first use.
struct tar_feed {
    uint8_t block[TAR_BLOCK];
    size_t block_n;
    uint64_t left, padding; // of the file
    uint64_t files;
    unsigned zeros; // blocks of them
    bool inside;
};
// Each returns 0, or a negative errno with *e. `data` is called for pieces of the file that has begun; an empty one has none.
struct tar_feed_events {
    int (*begin)(void *cookie, const char *name, uint64_t size, struct err *e);
    int (*data)(void *cookie, const uint8_t *bytes, size_t n, struct err *e);
    int (*end)(void *cookie, struct err *e);
};
// INVALID_ARGUMENT (ARCHIVE_REFUSED): not such an archive, or what an event says. After a failure it must not be called again.
int tar_feed(struct tar_feed *f, const uint8_t *bytes, size_t n,
             const struct tar_feed_events *events, void *cookie, struct err *e);
// No more bytes come. DATA_LOSS (ARCHIVE_CUT): the end of the archive is missing.
int tar_feed_end(const struct tar_feed *f, struct err *e);

// Whether a symbolic link with this target, at this path below a folder, stays in that folder, wherever links in it lead
// that stay in it, too. ".." is accepted at the beginning of a target only.
bool tar_link_stays(const char *path, const char *target);
