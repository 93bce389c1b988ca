// SPDX-License-Identifier: Apache-2.0
// A file of the broker's for the layers of an archive on their way (store.h: store_spool_new()): without a name, so
// nothing is left of it after a crash, and encrypted with a key that is in memory only, so that nothing is on the disk in clear. It
// holds streams (proto/sealed.h), one for each layer. A thread of libuv's pool reads and writes it. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/sealed.h"
#include "server/spawner/ops.h"

struct server;
struct spool;

enum { SPOOL_STREAMS_MAX = 250, SPOOL_READ_MAX = 60 * 1024 };

struct spool_stream {
    uint64_t at, file_bytes; // in the file
    uint64_t bytes;          // of the stream
    uint8_t digest[SPAWN_DIGEST_BYTES];
};

// In this folder of the broker's. *works: borrowed; increases while work is in progress, also after spool_free(). NULL: *e.
struct spool *spool_new(const struct server *srv, const char *folder, uint32_t *works,
                        struct err *e);
// Work that is in progress ends first; no callback comes any more. Accepts NULL.
void spool_free(struct spool *s);

// Bytes to be written: they go to the stream that is open; `begins` opens one first, `ends` closes it after them.
struct spool_piece {
    size_t at, n; // in the bytes
    bool begins, ends;
};

// Starts to write. One work at a time. Takes bytes and pieces, also on failure. RESOURCE_EXHAUSTED (DISK_FULL).
typedef void spool_done(void *cookie, const struct err *e);
void spool_write(struct spool *s, uint8_t *bytes, struct spool_piece *pieces, size_t pieces_n,
                 spool_done *done, void *cookie);

// Starts to read the next n bytes of a stream, in order from its beginning. Then spool_bytes() has them, until the next work.
void spool_read(struct spool *s, uint32_t stream, size_t n, spool_done *done, void *cookie);
const uint8_t *spool_bytes(const struct spool *s);

// Streams of it, in order.
uint32_t spool_streams(const struct spool *s);
const struct spool_stream *spool_stream(const struct spool *s, uint32_t i);
// The digest that a stream must have which was written with spool_write().
void spool_expect(struct spool *s, uint32_t i, const uint8_t digest[SPAWN_DIGEST_BYTES]);

// ---- for the store: streams that a keeper writes

int spool_fd(const struct spool *s); // borrowed
const struct sealed_key *spool_key(const struct spool *s);
// One more stream, up to where the file ends now.
int spool_add(struct spool *s, const struct spool_stream *like, struct err *e);
