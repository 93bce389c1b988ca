// SPDX-License-Identifier: Apache-2.0
// Calls and the RPC layer, as shared by conn.c, call_life.c, dispatch.c and idempotency.c. Handlers see call.h only. Loop
// thread only.
//
// Life of a call:
//
//   conn.c: frame CALL --> call_begin --> dispatch_call --> handler ... call_reply/end/fail --> END --> freed
//                             |               |                ^
//                             | refused: END  | idempotency    | on_cancel: CANCEL, deadline, connection closed
//
// A call with an idempotency key outlives its connection: it continues detached (conn == NULL) so that its result can
// be kept. Another call with the same key follows it: it runs no handler and gets the same END. With a database it is executed
// when its key is on the disk, and answered when its END is: until then the call follows, too.
#pragma once

#include "call.h"
#include "principal.h"
#include "limits.h"
#include "tenants.h"
#include "server/audit/audit.h"
#include "server/base/timers.h"
#include "server/base/trim.h"
#include "transport.h"
#include "proto/arena.h"
#include "proto/rules.h"
#include "proto/validate.h"

#include "stockade/v1/wire.pb-c.h"

struct conn;
struct tls;
struct key;
struct keys;

enum {
    CALL_NOTES_MAX = 4,
    CALL_NOTE_KEY_BYTES = 65,
    CALL_NOTE_VALUE_BYTES = 129,
    CALL_MADE = 3,         // ids of a response, for the audit log
    CALL_BUCKETS = 64,     // of a connection's table of calls
    SPARE_ARENAS_MAX = 64, // kept for the next calls
    SPARE_CHUNKS_MAX = 64, // of output, kept for reuse
    RPC_ENGINES = 3,
};

// A transport, and its engine if it listens on an address.
struct rpc_engine {
    struct rpc *rpc;
    const struct transport_ops *ops;
    struct transport *transport;
};

// CPU time of the loop's thread, and whom it is charged to: conn_turn.c.
struct meter {
    uv_prepare_t *prepare;          // freed by the loop
    uint64_t from_ns;               // what is measured now began then; 0: nothing is
    uint64_t turn_ns;               // start of this turn of the loop; 0: shares did not count then
    uint64_t loose_ns;              // of turns since then in which nothing was charged
    uint64_t measured_ns;           // in this turn, of all tenants in `charged`
    struct list charged;            // fair_use.charged
    uint64_t thread_ns, process_ns; // at the last comparison
    uint64_t factor;                // of the process to the thread since the one before, in 1/256
};

// The layer as a whole.
struct rpc {
    uv_loop_t *loop;
    struct dispatch *dispatch;
    struct rpc_limits limits;
    uint32_t own_uid;                // the broker's own uid: see principal.h
    const struct principal_map *map; // the same
    struct timers *timers;
    struct rpc_engine engines[RPC_ENGINES];
    struct tls *tls;
    struct audit *audit; // NULL: no log
    struct tenants *tenants;
    struct keys *keys;
    struct conn *conns;    // all of them
    struct call *detached; // calls without a connection
    struct rpc_stats stats;
    struct trim trim; // of connections
    struct meter meter;
    // limit for log lines about peers: start of the period, lines written, lines omitted
    uint64_t log_from_ns;
    uint32_t logged, unlogged;
    struct arena *spare_arenas[SPARE_ARENAS_MAX];
    uint32_t spare_arenas_n;
    struct chunk *spare_chunks;
    uint32_t spare_chunks_n;
    uint8_t *scratch; // for packing one payload
    size_t scratch_bytes;
    bool draining, closing;
    uint64_t drain_until_ns;
    struct timer drain_timer;
    void (*drained)(void *cookie);
    void *drained_cookie;
    // see rpc_refused_fn; NULL: nobody
    void (*refused)(void *cookie, const char *address, const char *reason, const char *text);
    void *refused_cookie;
};

struct note {
    char key[CALL_NOTE_KEY_BYTES], value[CALL_NOTE_VALUE_BYTES];
};

// One row of the dispatch table.
struct method {
    const struct call_method *served;
    const struct method_rules *rules;
    enum scope scope, others;               // of the rules
    const ProtobufCFieldDescriptor *tenant; // the field "tenant" of the request; NULL: it has none
    const ProtobufCFieldDescriptor *wakes;  // of the rules; NULL: none
    uint64_t objects;                       // audited_fields() of the request
    uint32_t number;                        // METRIC_BY_METHOD
};

struct call {
    struct rpc *rpc;
    struct conn *conn; // NULL: detached
    uint32_t id;
    struct call *bucket_next;
    struct call *detached_next, **detached_link;
    struct principal principal;
    const char *whose;     // see call_whose()
    struct tenant *tenant; // held
    struct arena *arena;   // of the frame and the request
    const Stockade__V1__Frame *frame;
    const struct method *method; // NULL until it is known
    ProtobufCMessage *request;   // in the arena
    uint64_t held_bytes;         // taken from the tenant
    uint64_t arrived_ns, deadline_ns;
    struct timer timer;
    int32_t code; // of its END
    bool stream, counted_stream, sent_data;
    bool decided;                 // the authority was asked
    struct call_refusal *refusal; // in the arena; NULL: none
    bool watches;                 // call_only_watches()
    uint32_t credit;
    bool wants_credit;                        // call_send returned -EAGAIN: no credit
    bool wants_queue;                         // ... no room: in the connection's list
    struct call *waiting_next, *waiting_prev; // that list
    struct key *key;                          // of an idempotent execution, or NULL
    bool follows;                             // waits for the END of the call that executes
    bool ended;                               // ... which was this one: its END is being stored
    bool given_up;                            // cancelled: its END does not wait for the disk
    struct call *follower_next;
    void (*on_cancel)(void *cookie, enum call_cancel why);
    void (*on_writable)(void *cookie);
    void *cookie;
    // ---- for the audit log: audited.c
    uint64_t audit_call; // 0: nothing is written yet
    bool audit_admitted, audit_began;
    struct audit_wait audit_wait;
    void (*audit_run)(struct call *c);
    char reason[40], subject[88]; // of its failure, as in struct err
    struct {
        const char *name; // constant; NULL: none
        char value[49];
    } made[CALL_MADE];
};

// ---- call_life.c

// Begins a call with its unpacked CALL frame and adds it to the connection's table. Takes ownership of the arena that
// contains the frame, also on failure. NULL: refused, END was sent.
struct call *call_begin(struct conn *conn, uint32_t id, struct arena *arena,
                        const Stockade__V1__Frame *frame, uint64_t arrived_ns);

// The caller, the deadline or the end of the connection cancels a call: sends END if there is a connection, calls
// on_cancel and frees the call. A call with a key continues without this connection instead.
void call_cancel(struct call *c, enum call_cancel why);

// The same, because of an error of the caller.
void call_abort(struct call *c, const struct err *e);

// From now on the call is this principal's, and so is what it holds. Fails if the new tenant may not hold that much.
int call_become(struct call *c, const struct principal *who, struct err *e);

// Sends END for a call that was not begun.
void call_refuse(struct conn *conn, uint32_t id, const struct err *e);

// Ends a call with a packed frame, which stays the caller's; `code` is the one in it.
void call_end_packed(struct call *c, const uint8_t *frame, size_t n, int32_t code);

// More credit arrived, or there is room in the connection's queue: calls on_writable.
void call_add_credit(struct call *c, uint32_t credit);
void call_room(struct call *c);

// ---- dispatch.c

// Looks up the method, makes all checks, and runs the handler, now or when the authority has decided. Every failure ends
// the call.
void dispatch_call(struct dispatch *d, struct call *c);
// Runs the handler.
void dispatch_execute(struct call *c);

// ---- rpc.c

// An empty arena for one request; NULL: out of memory.
struct arena *rpc_arena(struct rpc *r);
void rpc_arena_back(struct rpc *r, struct arena *a);

// A buffer of at least n bytes, valid until the next call of this function; NULL: out of memory.
uint8_t *rpc_scratch(struct rpc *r, size_t n);

// ---- conn_turn.c

// Charges the loop's CPU time to tenants from now on. False: out of memory.
bool meter_start(struct rpc *r);
void meter_stop(struct rpc *r);

// A call or a connection was freed: the shutdown may be complete.
void rpc_call_gone(struct rpc *r);
