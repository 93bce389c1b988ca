// SPDX-License-Identifier: Apache-2.0
// The output of one job: stdout and stderr in one ring, with an offset that counts both, and any number of readers.
//
//        begin                         reader B        reader A = end
//          | kept, for who attaches later  | not read yet  |
//   gap <--+-------------------------------+---------------+--> next byte;  end - begin <= 1 MiB
//
// While a reader keeps up, nothing that it has not read is dropped: when the ring is full of that, output_space() says
// 0 and the job waits at its pipe. A reader that takes nothing for 10 s while there is something loses that right
// (unless it is patient), and finds a gap. Beyond limit_bytes, where there is such a limit, nothing is kept: it is
// counted, and told as one gap.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/list.h"

enum {
    OUTPUT_RING_MAX = 1024 * 1024,
    OUTPUT_FINAL_MAX = 4 * 1024 * 1024, // when the job is over: what its pipes still hold must fit
    OUTPUT_CHUNK_MAX = 60 * 1024,
    OUTPUT_STALL_MS = 10 * 1000,
};

struct output;

// Numbers as in stockade.v1.Stream.
enum output_stream { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2 };

// One who reads. Owned by whoever reads; only output.c writes into it.
struct output_reader {
    struct list node;
    uint64_t offset;      // next byte that it wants
    uint64_t progress_ns; // since when it has had something to read
    bool patient;         // never loses its right
    bool limit_told;
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

// Whose memory the ring is. take: false, no more may be held; nothing was taken then.
struct output_share {
    bool (*take)(void *cookie, size_t n);
    void (*give)(void *cookie, size_t n);
    void *cookie;
};

// Owned: output_free(). NULL without memory. Memory for bytes is taken with the first of them. limit_bytes 0: no limit.
struct output *output_new(uint64_t limit_bytes);
void output_free(struct output *o);

// The ring is taken from a share, which is borrowed for the life of the output, before there are any bytes. Where the share has
// no more, the ring stays as large as it is: the job waits, or what it writes is a gap.
void output_charge(struct output *o, const struct output_share *share);

// Makes the ring hold n more bytes beside what readers that keep up have not read; how many it does, at most n. 0: the share
// has no more for now.
size_t output_make_room(struct output *o, size_t n, uint64_t now_ns);

// Bytes that may be written now without dropping what a reader that keeps up has not read. SIZE_MAX: any number.
size_t output_space(const struct output *o, uint64_t now_ns);

// Takes n bytes of one stream.
void output_write(struct output *o, enum output_stream stream, const uint8_t *bytes, size_t n,
                  uint64_t now_ns);

// The job is over: what is still in its pipes fits, whatever readers do.
void output_final(struct output *o);

// A reader comes (wants bytes from r->offset on), a reader goes.
void output_join(struct output *o, struct output_reader *r, uint64_t now_ns);
void output_leave(struct output_reader *r);

// What the reader gets next; kind NONE: nothing now.
struct output_chunk output_peek(const struct output *o, const struct output_reader *r);

// It has taken that chunk.
void output_advance(const struct output *o, struct output_reader *r,
                    const struct output_chunk *chunk, uint64_t now_ns);

// Bytes in all, and those of them beyond the limit.
uint64_t output_total(const struct output *o);
uint64_t output_cut(const struct output *o);
