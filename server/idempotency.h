// SPDX-License-Identifier: Apache-2.0
// Calls that must not be executed twice: by (tenant, method, idempotency-key), the call that executes, those that wait
// for the same answer, and the answer for as long as it is kept. Loop thread only.
#pragma once

#include "calls.h"

// Owned: keys_free(), when no call is open.
struct keys *keys_new(struct rpc *r);
void keys_free(struct keys *k);

// What is to become of a call that carries a key.
enum keys_verdict {
    KEYS_EXECUTE, // nobody has: the handler runs (c->key is set)
    KEYS_FOLLOW,  // one with this key is executing: c waits for its END
    KEYS_ENDED,   // it has been answered here: with the END that was kept, or with the error
};
enum keys_verdict keys_begin(struct keys *k, struct call *c, const char *key_text);

// A call with c->key is over. `frame` is its packed END, or NULL without memory for it. What is worth keeping is kept;
// followers get the same END (those of a call that was given up: an error).
void keys_end(struct call *c, const uint8_t *frame, size_t n, int32_t code);

// c stops to follow.
void keys_unfollow(struct call *c);

// True when others wait for what c executes.
bool keys_has_followers(const struct call *c);

// See call_note().
void keys_note(struct call *c, const char *name, const char *value);
