// SPDX-License-Identifier: Apache-2.0
// Archives (tar.h) that are compressed with Zstandard (RFC 8878), as `tar --zstd` and libarchive make and read them.
//
// A `zst_writer` stands between tar_pack() and where the archive goes, a `zst_reader` between where it comes from and
// tar_unpack(). What is read is hostile: see zst_reader_new(). Used by stockade-files and by `stockade cp`; the broker passes
// compressed archives on unread.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/tar.h"

enum {
    ZST_RATIO_DEFAULT = 1000,
    ZST_RATIO_FREE = 1024 * 1024, // decompressed bytes that no ratio is compared for
    ZST_WINDOW_LOG_MAX = 23,      // 8 MiB, which RFC 8878 asks every decoder to support
};

struct zst_writer;
struct zst_reader;

// NULL: out of memory, *e says so. The sink is borrowed.
struct zst_writer *zst_writer_new(const struct tar_sink *to, struct err *e);
void zst_writer_free(struct zst_writer *w); // accepts NULL
// A tar_sink's write(); the cookie is the writer.
int zst_write(void *writer, const void *bytes, size_t n, struct err *e);
// Writes what is left. Without it the archive is incomplete.
int zst_end(struct zst_writer *w, struct err *e);

// ratio_max: decompressed bytes per compressed byte, beyond the first ZST_RATIO_FREE; 0: ZST_RATIO_DEFAULT. NULL: out of
// memory, *e says so. The source is borrowed.
struct zst_reader *zst_reader_new(const struct tar_source *from, uint64_t ratio_max, struct err *e);
void zst_reader_free(struct zst_reader *r); // accepts NULL
// A tar_source's read(); the cookie is the reader. INVALID_ARGUMENT (ARCHIVE_REFUSED): this is no Zstandard, or damaged;
// DATA_LOSS (ARCHIVE_CUT): it ends early; RESOURCE_EXHAUSTED (ARCHIVE_TOO_LARGE): beyond the ratio, or a window of more than
// 8 MiB. Memory stays below 10 MiB, whatever is read.
ssize_t zst_read(void *reader, void *bytes, size_t n, struct err *e);
