// SPDX-License-Identifier: Apache-2.0
// What conn.c, call.c, dispatch.c and idempotency.c share about calls and the layer they live in. Handlers see call.h
// only. Loop thread only.
//
// Life of a call:
//
//   conn.c: frame CALL --> call_begin --> dispatch_call --> handler ... call_reply/end/fail --> END --> gone
//                             |               |                ^
//                             | refused: END  | idempotency    | on_cancel: CANCEL, deadline, connection gone
//
// A call with an idempotency key outlives its connection: it goes on detached (conn == NULL) so that its result can be
// kept. Another call with the same key follows it: no handler, the same END.
#pragma once

#include "call.h"
#include "rpc.h"
#include "tenants.h"
#include "timers.h"
#include "transport.h"
#include "../proto/arena.h"
#include "../proto/validate.h"

#include "stockade/v1/wire.pb-c.h"

struct conn;
struct key;
struct keys;

enum {
    CALL_NOTES_MAX = 4,
    CALL_NOTE_KEY_BYTES = 65,
    CALL_NOTE_VALUE_BYTES = 129,
    CALL_BUCKETS = 64,     // of a connection's table of calls
    SPARE_ARENAS_MAX = 64, // kept for the next calls
    SPARE_CHUNKS_MAX = 64, // of output, likewise
    RPC_ENGINES = 2,
};

// A transport, and its engine once something listens there.
struct rpc_engine {
    struct rpc *rpc;
    const struct transport_ops *ops;
    struct transport *transport;
};

// The layer as a whole.
struct rpc {
    uv_loop_t *loop;
    struct dispatch *dispatch;
    struct rpc_limits limits;
    struct timers *timers;
    struct rpc_engine engines[RPC_ENGINES];
    uint8_t hash_key[16]; // of frame hashes
    struct tenants tenants;
    struct keys *keys;
    struct conn *conns;    // all of them
    struct call *detached; // calls without a connection
    struct rpc_stats stats;
    uint64_t
        log_from_ns; // lines about peers are bounded: since when, how many, and how many more there were
    uint32_t logged, unlogged;
    struct arena *spare_arenas[SPARE_ARENAS_MAX];
    uint32_t spare_arenas_n;
    struct chunk *spare_chunks;
    uint32_t spare_chunks_n;
    uint8_t *scratch; // for packing one payload
    size_t scratch_bytes;
    bool draining, closing;
    struct timer drain_timer;
    void (*drained)(void *cookie);
    void *drained_cookie;
};

struct note {
    char key[CALL_NOTE_KEY_BYTES], value[CALL_NOTE_VALUE_BYTES];
};

// One row of the dispatch table.
struct method {
    const struct call_method *served;
    const struct method_rules *rules;
};

struct call {
    struct rpc *rpc;
    struct conn *conn; // NULL: detached
    uint32_t id;
    uint64_t frame_hash; // tells a request sent again from another one under the same id
    struct call *bucket_next;
    struct call *detached_next, **detached_link;
    struct caller caller;
    struct tenant *tenant; // held
    struct arena *arena;   // of the frame and the request
    const Stockade__V1__Frame *frame;
    const struct method *method; // NULL until it was found
    ProtobufCMessage *request;   // in the arena
    uint64_t held_bytes;         // taken from the tenant
    uint64_t arrived_ns, deadline_ns;
    struct timer timer;
    bool stream, counted_stream, sent_data;
    uint32_t credit;
    bool wants_credit;                        // call_send said -EAGAIN for want of credit
    bool wants_queue;                         // ... for want of room: in the connection's list
    struct call *waiting_next, *waiting_prev; // that list
    struct key *key;                          // of an idempotent execution, or NULL
    bool follows;                             // waits for the END of the call that executes
    struct call *follower_next;
    void (*on_cancel)(void *cookie, enum call_cancel why);
    void (*on_writable)(void *cookie);
    void *cookie;
};

// ---- call.c

// Begins a call with its unpacked CALL frame: it is in the connection's table from now on. Takes the arena that the
// frame lives in, also on failure. NULL: refused, END has been sent.
struct call *call_begin(struct conn *conn, uint32_t id, struct arena *arena,
                        const Stockade__V1__Frame *frame, uint64_t frame_hash, uint64_t arrived_ns);

// The caller, the clock or the connection's end gives a call up: END where there is somebody to hear it, then
// on_cancel, then it is gone; or, with a key, it goes on without this connection.
void call_cancel(struct call *c, enum call_cancel why);

// The same because of what the caller did wrong.
void call_abort(struct call *c, const struct err *e);

// END for a call that is not begun.
void call_refuse(struct conn *conn, uint32_t id, const struct err *e);

// Ends a call with a frame that is packed already (and belongs to the caller of this).
void call_end_packed(struct call *c, const uint8_t *frame, size_t n);

// More credit came, or room in the connection's queue: on_writable.
void call_add_credit(struct call *c, uint32_t credit);
void call_room(struct call *c);

// ---- dispatch.c

// Finds the method, checks everything that is checked before a handler runs, and runs it. Every failure ends the call.
void dispatch_call(struct dispatch *d, struct call *c);

// ---- rpc.c

// An empty arena for one request; NULL without memory.
struct arena *rpc_arena(struct rpc *r);
void rpc_arena_back(struct rpc *r, struct arena *a);

// A buffer of at least n bytes, valid until the next call of this; NULL without memory.
uint8_t *rpc_scratch(struct rpc *r, size_t n);

// A call is gone, or a connection: drain may be over.
void rpc_call_gone(struct rpc *r);
