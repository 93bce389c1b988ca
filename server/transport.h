// SPDX-License-Identifier: Apache-2.0
// Bytes in and out, whatever carries them. conn.c speaks the protocol above this line and knows nothing below it: ipc and
// tcp are sockets on the loop (transport_socket.c), websockets are nng's (transport_ws.c).
//
// Everything here is called on the loop thread, returns at once, and never blocks on a peer. Events come on the loop
// thread too, and never from within one of the functions: a caller need not expect to be called back while it calls.
//
//   listen -> on_accept -> start -> read  -> on_read    one read and one write at a time
//                                   write -> on_written
//                                   close -> on_closed  once, and the last that is heard of a stream
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <uv.h>

#include "../proto/err.h"

struct transport;          // an engine: its threads, its listeners, its streams
struct transport_listener; // an address
struct transport_stream;   // an accepted connection

enum { TRANSPORT_IOV_MAX = 8, TRANSPORT_BOUND_BYTES = 128 };

struct transport_peer {
    bool local; // ipc: uid, gid and pid are the kernel's word
    uint32_t uid, gid;
    int32_t pid;
};

struct transport_address {
    const char *url; // "ipc:///path", "tcp://127.0.0.1:port", "ws://127.0.0.1:port/path"
    uint32_t mode;   // ipc: permissions of the socket file
    int group;       // ipc: its group, or -1
    bool any;        // tcp, ws: may be more than loopback
};

struct transport_events {
    // A peer has connected. The stream is the receiver's now: start() or close() it, here or later.
    void (*on_accept)(void *cookie, struct transport_stream *s, const struct transport_peer *peer);
    // The read is over: n bytes, or 0 when the peer has closed or the stream failed. `stream` is what start() was given.
    void (*on_read)(void *stream, size_t n);
    // The write is over: n bytes of it were taken, perhaps not all; 0 when the stream failed.
    void (*on_written)(void *stream, size_t n);
    // After close(): no operation is in progress, the buffers are the caller's again, the stream is gone.
    void (*on_closed)(void *stream);
    // After shut(): everything is gone.
    void (*on_shut)(void *cookie);
};

struct transport_ops {
    const char *name;
    // Starts an engine. May start threads; blocks signals for none of them.
    int (*open)(uv_loop_t *loop, const struct transport_events *events, void *cookie,
                struct transport **out, struct err *e);
    // Listens. On success bound (TRANSPORT_BOUND_BYTES) is the address with the port that was chosen for port 0.
    int (*listen)(struct transport *t, const struct transport_address *address, char *bound,
                  struct err *e);
    // Says who gets the events of a stream.
    void (*start)(struct transport_stream *s, void *stream);
    // At most n bytes into buf, which stays the stream's until on_read or on_closed.
    void (*read)(struct transport_stream *s, void *buf, size_t n);
    // Up to TRANSPORT_IOV_MAX pieces, which stay the stream's until on_written or on_closed.
    void (*write)(struct transport_stream *s, const struct iovec *iov, unsigned n);
    // Closes it at once: what was not written is lost. May be called once, at any time after on_accept.
    void (*close)(struct transport_stream *s);
    // Closes every listener and ends the engine once every stream is closed: on_shut.
    void (*shut)(struct transport *t);
};

extern const struct transport_ops transport_socket;
extern const struct transport_ops transport_ws;

// Version of the nng library found at run time, such as "1.5.2".
const char *transport_ws_version(void);
