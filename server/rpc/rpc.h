// SPDX-License-Identifier: Apache-2.0
// The server side of the protocol: addresses, connections, frames. transport.h carries the bytes.
//
// A ws address starts nng's threads, so the spawner must be forked before that, and all signals must be blocked.
// Everything else runs on the thread that called rpc_new().
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "limits.h"

struct dispatch;
struct rpc;
struct tenant;
struct tenants;
struct tls_files;

void rpc_limits_default(struct rpc_limits *l);

// Creates the server. Free it with rpc_free() after uv_run() has returned. d and the tenants are borrowed.
struct rpc *rpc_new(uv_loop_t *loop, struct dispatch *d, const struct rpc_limits *l,
                    struct tenants *tenants);
void rpc_free(struct rpc *r);

// Which tenants the uids and groups of unix sockets are; counts for connections that are accepted from now on. Borrowed, and may
// change in place. Without it each uid is a tenant.
struct principal_map;
void rpc_set_principals(struct rpc *r, const struct principal_map *map);

// Where calls are recorded, until it is set to NULL.
struct audit;
void rpc_set_audit(struct rpc *r, struct audit *a);

// The idempotency keys of an earlier run. Read between state_open() and state_start(); rpc_set_state() takes them.
struct state;
struct keys_earlier;
int rpc_read_keys(struct state *s, struct keys_earlier **out, struct err *e);

// Where idempotency keys are stored, until it is set to NULL (before state_close()).
void rpc_set_state(struct rpc *r, struct state *s, struct keys_earlier *earlier);
// Forgets the kept answers of a tenant, whose data key was forgotten: a call with such a key gets DATA_LOSS (KEY_FORGOTTEN).
void rpc_forget_answers(struct rpc *r, const char *tenant);

// Who is called with each peer that was closed during its TLS handshake: its address ("192.0.2.1"), ErrorInfo.reason
// ("TLS_HANDSHAKE", "TLS_HANDSHAKE_LATE", "TLS_HANDSHAKES", "TLS_HANDSHAKES_OF_ADDRESS"), and a sentence. Until it is set to NULL.
typedef void rpc_refused_fn(void *cookie, const char *address, const char *reason,
                            const char *text);
void rpc_set_refused(struct rpc *r, rpc_refused_fn *refused, void *cookie);

// Checks an address and the limits as rpc_listen() does, without listening.
int rpc_check_address(const struct rpc_limits *l, const char *address, struct err *e);

// Reads the certificates of tls+tcp addresses, which must be done before rpc_listen(), and again to replace them: open
// connections keep theirs. Errors: tls_load().
int rpc_use_certificates(struct rpc *r, const struct tls_files *files, struct err *e);

// ALREADY_EXISTS if rpc_listen() would find another process at the address.
int rpc_address_is_free(const char *address, struct err *e);

// Listens on "ipc:///path" (mode: permissions of the socket file; group: its group or -1) or "tcp://127.0.0.1:port".
// "ws://127.0.0.1:port" is refused unless `websocket` is set and nng is 1.6 or later (FAILED_PRECONDITION, with the
// reason). "tls+tcp://host:port" takes any address, but needs certificates. INVALID_ARGUMENT: another scheme. On success *bound (64 bytes or more) is the address
// with the port that was chosen for port 0.
int rpc_listen(struct rpc *r, const char *address, uint32_t mode, int group, char *bound,
               size_t bound_n, struct err *e);

// Starts to shut down: sends GOAWAY on every connection and refuses methods that begin something. Other methods are
// still answered, also on new connections, so that clients can send input to running jobs and check the health. Calls
// `done` when no call is open but those that only watch, or after grace_ms.
void rpc_drain(struct rpc *r, uint32_t grace_ms, void (*done)(void *), void *cookie);

// Closes all connections and listeners. uv_run() returns when no other handle is left. Accepts NULL.
void rpc_close(struct rpc *r);
// True if the loop has closed everything, so rpc_free() may be called. True for NULL.
bool rpc_is_closed(const struct rpc *r);

// What is open now.
void rpc_stats(const struct rpc *r, struct rpc_stats *out);

// Takes n bytes for memory that is held for a tenant outside this layer, such as unread output of its jobs: at most three
// quarters of bytes_per_uid_max, so that some is left for calls and responses. tenant_give_bytes() gives it back.
bool rpc_tenant_take(const struct rpc *r, struct tenant *t, size_t n);

// Version of the nng library found at run time, such as "1.5.2"; "": this build has none.
const char *rpc_nng_version(void);
