// SPDX-License-Identifier: Apache-2.0
// Calls that must not be executed twice. By (tenant, method, idempotency-key): the call that executes, the calls that
// wait for its END, and the END while it is kept. With a database they outlast the broker. Loop thread only.
#pragma once

#include "calls.h"

// Creates the table. Free it with keys_free() when no call is open.
struct keys *keys_new(struct rpc *r);
void keys_free(struct keys *k);

// See rpc_read_keys() and rpc_set_state().
struct state;
struct keys_earlier;
int keys_read(struct state *s, struct keys_earlier **out, struct err *e);
void keys_store_in(struct keys *k, struct state *s, struct keys_earlier *earlier);
// See rpc_forget_answers().
void keys_forget(struct keys *k, const char *tenant);

// How to handle a call with a key.
enum keys_verdict {
    KEYS_EXECUTE, // new key: run the handler (c->key is set)
    KEYS_WAIT,    // the same, when the key is on the disk: dispatch_execute() follows
    KEYS_FOLLOW,  // a call with this key is executing: c waits for its END
    KEYS_ENDED,   // c was answered, with the kept END or with an error
};
enum keys_verdict keys_begin(struct keys *k, struct call *c, const char *key_text);

// A call with c->key has ended. `frame` is its packed END, or NULL if there was no memory for it. Keeps it if it should
// be kept, and sends it to the followers (or an error if the call was cancelled). True: send it to c, too, and free it. False: that is
// done when the END is on the disk.
bool keys_end(struct call *c, const uint8_t *frame, size_t n, int32_t code);

// c stops following.
void keys_unfollow(struct call *c);

// True if other calls wait for c.
bool keys_has_followers(const struct call *c);

// See call_note().
void keys_note(struct call *c, const char *name, const char *value);
