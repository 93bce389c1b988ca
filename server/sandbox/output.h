// SPDX-License-Identifier: Apache-2.0
// The output of one job: stdout and stderr in one ring, with an offset that counts both, and any number of readers.
//
//        begin                         reader B        reader A = end
//          | kept for later readers        | not read yet  |
//   gap <--+-------------------------------+---------------+--> next byte;  end - begin <= 1 MiB
//
// While a reader keeps up, no byte is dropped before it has read it: if such bytes fill the ring, output_space()
// returns 0 and the job blocks on its pipe. A reader that reads nothing for 10 s while bytes are available does not
// count as keeping up any more (unless it has no_timeout), and finds a gap. Bytes beyond limit_bytes, if there is
// such a limit, are only counted, and appear as one gap.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/list.h"

enum {
    OUTPUT_RING_MAX = 1024 * 1024,
    OUTPUT_FINAL_MAX = 4 * 1024 * 1024, // after the end of the job, the rest of its pipes must fit
    OUTPUT_CHUNK_MAX = 60 * 1024,
    OUTPUT_STALL_MS = 10 * 1000,
};

struct output;

// Numbers as in stockade.v1.Stream.
enum output_stream { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2 };

// A reader. Owned by the caller; only output.c writes into it.
struct output_reader {
    struct list node;
    uint64_t offset;      // the next byte to read
    uint64_t progress_ns; // the time since which it has had something to read
    bool no_timeout;      // always counts as keeping up
    bool limit_reported;
};

enum output_kind { OUTPUT_NONE, OUTPUT_DATA, OUTPUT_GAP, OUTPUT_LIMIT };

struct output_chunk {
    enum output_kind kind;
    enum output_stream stream; // DATA
    const uint8_t *data;       // DATA: borrowed until the next output_write()
    size_t n;                  // DATA: 1 to OUTPUT_CHUNK_MAX
    uint64_t offset;           // of the first byte
    uint64_t missing;          // GAP, LIMIT: bytes
};

// Counts the memory of the ring. take: false, no more may be used; nothing was counted then.
struct output_share {
    bool (*take)(void *cookie, size_t n);
    void (*give)(void *cookie, size_t n);
    void *cookie;
};

// Owned: output_free(). NULL: out of memory. Memory for bytes is allocated with the first of them. limit_bytes 0: no
// limit.
struct output *output_new(uint64_t limit_bytes);
void output_free(struct output *o);

// Counts the ring in a share, which is borrowed as long as the output exists. Call it before the first byte. If the
// share is used up, the ring does not grow: the job waits, or output becomes a gap. 4 KiB are not counted if it has no more.
void output_charge(struct output *o, const struct output_share *share);

// Makes room for n more bytes beside those that readers which keep up have not read. Returns how many fit, at most n.
// 0: the share is used up, and what is there is full.
size_t output_make_room(struct output *o, size_t n, uint64_t now_ns);

// Bytes that may be written now without dropping unread bytes of a reader that keeps up. SIZE_MAX: any number.
size_t output_space(const struct output *o, uint64_t now_ns);

// Writes n bytes of one stream.
void output_write(struct output *o, enum output_stream stream, const uint8_t *bytes, size_t n,
                  uint64_t now_ns);

// The job has ended: the rest of its pipes fits, whatever readers do.
void output_final(struct output *o);

// No byte comes any more: gives back memory that none took, as far as that needs no copy. Chunks that were peeked at are not valid any more.
void output_trim(struct output *o);

// Adds a reader (which wants bytes from r->offset on); removes a reader.
void output_join(struct output *o, struct output_reader *r, uint64_t now_ns);
void output_leave(struct output_reader *r);

// The next chunk of the reader; kind NONE: nothing now.
struct output_chunk output_peek(const struct output *o, const struct output_reader *r);

// The reader has consumed that chunk.
void output_advance(const struct output *o, struct output_reader *r,
                    const struct output_chunk *chunk, uint64_t now_ns);

// Total bytes, and those of them beyond the limit.
uint64_t output_total(const struct output *o);
uint64_t output_cut(const struct output *o);
