// SPDX-License-Identifier: Apache-2.0
// The interface of the transports. conn.c implements the protocol above it: ipc and tcp are sockets on the loop
// (transport_socket.c), TLS is OpenSSL above them (transport_tls.c), websockets are nng's (transport_ws.c).
//
// All functions are called on the loop thread, return immediately and never block on a peer. Events are called on the
// loop thread too, and never from within one of these functions.
//
//    listen -> on_accept -> start -> read  -> on_read    one read and one write at a time
//                                    hold  -> on_read(0), if the peer has gone
//                                    write -> on_written
//                                    close -> on_closed  once, the last event of a stream
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <uv.h>

#include "proto/err.h"

struct transport;          // an engine: its threads, its listeners, its streams
struct transport_listener; // an address
struct transport_stream;   // an accepted connection
struct tls;

enum { TRANSPORT_IOV_MAX = 8, TRANSPORT_BOUND_BYTES = 128, TRANSPORT_GROUPS_MAX = 64 };

struct transport_peer {
    bool local; // ipc: the kernel reports uid, gid and pid
    uint32_t uid, gid;
    int32_t pid;
    // Supplementary groups, SO_PEERGROUPS of socket(7); none if there are more than fit.
    uint32_t groups_n;
    uint32_t groups[TRANSPORT_GROUPS_MAX];
    uint8_t address[16]; // tcp, tls: of the peer; IPv4 as v4-mapped (RFC 4291, 2.5.5.2)
    bool tls;            // the handshake is done
    bool client;         // tls: it showed a certificate that the configuration lists, with
    char tenant[32];     // this tenant
    uint32_t scopes;     // and these rights (bits of enum scope)
};

// Whether two peers count as one where something is limited per address: an IPv6 host has a network of 64 bits for itself (RFC 6177), and
// could have an address for each attempt.
static inline bool
transport_same_network(const uint8_t a[16], const uint8_t b[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const bool v4 = memcmp(a, mapped, sizeof mapped) == 0 || memcmp(b, mapped, sizeof mapped) == 0;
    return memcmp(a, b, v4 ? 16 : 8) == 0;
}

struct transport_address {
    // "ipc:///path", "tcp://127.0.0.1:port", "tls+tcp://host:port", "ws://127.0.0.1:port/path"
    const char *url;
    uint32_t mode;         // ipc: permissions of the socket file
    int group;             // ipc: its group, or -1
    bool any;              // tcp, ws: other than loopback addresses are permitted
    const struct tls *tls; // tls: the certificates; borrowed
    uint32_t handshake_ms; // tls: for the handshake
};

struct transport_events {
    // A peer has connected. The receiver owns the stream, and must call start() or close() for it, now or later.
    void (*on_accept)(void *cookie, struct transport_stream *s, const struct transport_peer *peer);
    // A peer was closed before on_accept: its address (the other members of *peer are not set), ErrorInfo.reason, and why, in a sentence.
    // Only of tls; may be NULL.
    void (*on_refused)(void *cookie, const struct transport_peer *peer, const char *reason,
                       const char *text);
    // The read has ended: n bytes, or 0 if the peer closed the stream or it failed, also of one on hold(). `stream` is the
    // argument of start().
    void (*on_read)(void *stream, size_t n);
    // The write has ended: n bytes were accepted, possibly not all; 0: the stream failed.
    void (*on_written)(void *stream, size_t n);
    // After close(): no operation is in progress, the caller owns the buffers again, and the stream was freed.
    void (*on_closed)(void *stream);
    // After shut(): everything was freed.
    void (*on_shut)(void *cookie);
};

struct transport_ops {
    const char *name;
    // Starts an engine. It may start threads, and does not block signals in them.
    int (*open)(uv_loop_t *loop, const struct transport_events *events, void *cookie,
                struct transport **out, struct err *e);
    // Listens. On success bound (TRANSPORT_BOUND_BYTES) is the address, with the port that was chosen for port 0.
    int (*listen)(struct transport *t, const struct transport_address *address, char *bound,
                  struct err *e);
    // Sets the receiver of a stream's events.
    void (*start)(struct transport_stream *s, void *stream);
    // Reads at most n bytes into buf, which the stream uses until on_read or on_closed.
    void (*read)(struct transport_stream *s, void *buf, size_t n);
    // No read is in progress, and until the next one the peer's bytes may wait: on_read(0) if it closes the stream meanwhile, also
    // before these bytes were read.
    void (*hold)(struct transport_stream *s);
    // Writes up to TRANSPORT_IOV_MAX pieces, which the stream uses until on_written or on_closed.
    void (*write)(struct transport_stream *s, const struct iovec *iov, unsigned n);
    // Closes the stream immediately; unwritten bytes are lost. Call it once, at any time after on_accept.
    void (*close)(struct transport_stream *s);
    // Closes every listener, and ends the engine when every stream is closed: on_shut.
    void (*shut)(struct transport *t);
};

extern const struct transport_ops transport_socket;
extern const struct transport_ops transport_tls;
extern const struct transport_ops transport_ws;

// Version of the nng library found at run time, such as "1.5.2"; "": this build has none.
const char *transport_ws_version(void);
