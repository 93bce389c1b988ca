// SPDX-License-Identifier: Apache-2.0
// Encryption at rest: an object as a stream of encrypted chunks (libsodium's crypto_secretstream_xchacha20poly1305).
//
//   head    magic, version, kind, number of the data key, header of the stream
//   chunk   64 KiB of the contents and 17 bytes; the last one is shorter and marked, and nothing follows it
//
// The head, and what the object belongs to (`subject`, which is not stored), are authenticated with each chunk. So these are found:
// other bytes, chunks that are missing, doubled or in another order, a file that was cut or goes on, another key, and an object in
// the place of another one. Contents are given out a chunk at a time, each after its check; that the end is
// there is known with the last one.
#pragma once

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum {
    SEALED_VERSION = 1,
    SEALED_KEY_ID = 16,
    SEALED_KEY = 32,
    SEALED_CHUNK = 64 * 1024,
    SEALED_MORE = crypto_secretstream_xchacha20poly1305_ABYTES, // of each chunk
    SEALED_HEAD = 8 + 4 + 4 + SEALED_KEY_ID + crypto_secretstream_xchacha20poly1305_HEADERBYTES,
    SEALED_SUBJECT = 64,
};

enum sealed_kind { SEALED_LAYER = 1, SEALED_ABOUT = 2, SEALED_VALUE = 3 };

// What is made of the data key of a tenant. Wipe it (sealed_key_wipe()) as soon as it is not needed.
struct sealed_key {
    uint8_t id[SEALED_KEY_ID]; // not secret; all zero: no key
    uint8_t contents[SEALED_KEY];
    uint8_t names[SEALED_KEY]; // of keyed digests
};
void sealed_key_wipe(struct sealed_key *k);
#define auto_sealed_key __attribute__((cleanup(sealed_key_wipe)))
bool sealed_id_is_none(const uint8_t id[SEALED_KEY_ID]);

// What an object is. subject: at most SEALED_SUBJECT bytes; borrowed until begin or open has returned.
struct sealed_what {
    enum sealed_kind kind;
    const void *subject;
    size_t subject_n;
};

// Writes to `put`. All functions return 0 or a negative errno with e.
struct sealed_writer {
    int (*put)(void *cookie, const void *bytes, size_t n, struct err *e);
    void *cookie;
    crypto_secretstream_xchacha20poly1305_state stream;
    uint8_t head[SEALED_HEAD + SEALED_SUBJECT];
    size_t head_n, n;
    uint8_t chunk[SEALED_CHUNK], out[SEALED_CHUNK + SEALED_MORE];
};
int sealed_begin(struct sealed_writer *w, const struct sealed_key *k,
                 const struct sealed_what *what, struct err *e);
int sealed_add(struct sealed_writer *w, const void *bytes, size_t n, struct err *e);
int sealed_end(struct sealed_writer *w, struct err *e);

// Reads from `get`, which fills all of `room` but at the end. DATA_LOSS (SEALED_DAMAGED): it is not what was written; (SEALED_KEY):
// it was written with another key. FAILED_PRECONDITION (SEALED_NEWER): of a later version.
struct sealed_reader {
    long (*get)(void *cookie, void *bytes, size_t room, struct err *e);
    void *cookie;
    crypto_secretstream_xchacha20poly1305_state stream;
    uint8_t head[SEALED_HEAD + SEALED_SUBJECT];
    size_t head_n, at, n; // of the chunk
    bool last;
    uint8_t chunk[SEALED_CHUNK], in[SEALED_CHUNK + SEALED_MORE];
};
int sealed_open(struct sealed_reader *r, const struct sealed_key *k, const struct sealed_what *what,
                struct err *e);
// Exactly n bytes; an end before them is DATA_LOSS.
int sealed_read(struct sealed_reader *r, void *to, size_t n, struct err *e);
// DATA_LOSS unless all was read, and the object ends there.
int sealed_close(struct sealed_reader *r, struct err *e);

// The same for bytes in memory. *out: owned, out_n bytes.
int sealed_bytes(const struct sealed_key *k, const struct sealed_what *what, const void *bytes,
                 size_t n, uint8_t **out, size_t *out_n, struct err *e);
int sealed_unbytes(const struct sealed_key *k, const struct sealed_what *what, const void *bytes,
                   size_t n, uint8_t **out, size_t *out_n, struct err *e);
