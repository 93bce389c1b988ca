// SPDX-License-Identifier: Apache-2.0
// Shared by idempotency.c (keys in memory) and idempotency_rows.c (their rows in the database).
#pragma once

#include "idempotency.h"

enum { KEYS_ID_BYTES = 16, KEYS_BUCKETS = 4096 }; // a power of two

struct state;

struct key {
    struct keys *keys;
    uint8_t id[KEYS_ID_BYTES];      // hash of tenant, method and key
    uint8_t request[KEYS_ID_BYTES]; // hash of the payload
    struct tenant *tenant;          // held
    struct key *bucket_next;
    struct call *leader; // the executing call; NULL: it has ended
    struct call *followers;
    uint8_t *end; // packed frame of an ended unary call; NULL: not kept
    size_t end_n;
    uint8_t *reply; // while it is `ending`: the END, if it is not kept
    size_t reply_n;
    uint64_t expires_ns;
    struct key *younger; // the next key that ended later
    struct note notes[CALL_NOTES_MAX];
    size_t notes_n;
    size_t stored_n;  // bytes of the END in the database
    int32_t code;     // of its END
    uint32_t writing; // changes of its row that come back to it
    bool stream;
    bool durable;   // it has a row, or will have one
    bool secret;    // its END has a credential, which is not stored
    bool gone;      // freed when no change comes back any more
    bool ending;    // its END is being stored: all calls follow
    bool lost;      // the broker ended while it was under way
    bool earlier;   // it ended before this broker was started
    bool forgotten; // its END was sealed with a data key that was forgotten
};

struct keys {
    struct rpc *rpc;
    struct key *buckets[KEYS_BUCKETS];
    uint8_t bucket_key[16];        // of SipHash; see bucket_of()
    struct key *oldest, *youngest; // keys of ended calls
    struct timer timer;
    struct state *state;   // NULL: none
    uint32_t durable_n;    // keys with a row
    uint64_t stored_bytes; // of ENDs in the database
    uint64_t swept_ns;     // when expired rows were last removed
    bool sweeping;
};

// ---- idempotency.c

// The row of a new key is on the disk, or (e) it is not: executes its call, or fails it.
void key_begun(struct key *key, const struct err *e);
// The END is on the disk, or cannot be: answers all calls.
void key_ended(struct key *key);
// The key is not in the table any more, and no change of it is under way.
void key_release(struct key *key);
// A key of an earlier run. NULL: no memory.
struct key *key_restore(struct keys *k, const struct key *like, const char *tenant);

// ---- idempotency_rows.c

// Whether a tenant may have one more durable key: RESOURCE_EXHAUSTED.
int rows_admit(const struct keys *k, const struct tenant *t, struct err *e);
// Starts to write the row of a new key: key_begun() follows. Negative: refused.
int rows_begin(struct key *key, struct err *e);
// Starts to write its END. True: key_ended() follows, and no answer may be sent before. False: nobody needs to wait.
bool rows_end(struct key *key);
// Removes its row, in the background.
void rows_forget(struct key *key);
// Removes rows that have expired, now and then.
void rows_sweep(struct keys *k);
