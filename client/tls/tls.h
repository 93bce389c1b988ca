// SPDX-License-Identifier: Apache-2.0
// TLS on a connected socket, as a module: libstockade loads stockade-tls.so when an address begins with tls+tcp://, since
// a program that links OpenSSL starts a millisecond later. TLS 1.3 (RFC 8446); no session is resumed.
//
// One thread at a time per connection. Nothing blocks: the socket is non-blocking.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"

// How the broker proves who it is, and how the caller does. Strings are borrowed; NULL: not set.
struct tls_options {
    // PEM: who signs the broker's certificate; NULL: the CAs of the system.
    const char *ca_file;
    // "sha256//BASE64" of the public key of the broker's certificate, as curl(1) --pinnedpubkey has it. Without a ca_file
    // nothing else is checked.
    const char *pin;
    // The name in the certificate; NULL: the host of the address.
    const char *server_name;
    // PEM: the caller's own certificate, if the broker requests one, and its key.
    const char *certificate;
    const char *key;
};

struct tls_session;

// The version of this interface: a library and a module of different versions do not work together.
enum { TLS_MODULE_VERSION = 1 };

struct tls_module {
    uint32_t version;
    // Prepares the handshake on the socket, which is borrowed. `host` is a name or an address. FAILED_PRECONDITION: a file
    // cannot be used; INVALID_ARGUMENT: the form of the pin.
    int (*open)(struct tls_session **out, int fd, const char *host, const struct tls_options *o,
                struct err *e);
    // Goes on with it. 1: done; 0: call again when the socket is readable, or writable (*out); negative: UNAVAILABLE: the
    // peer has closed; UNAUTHENTICATED: it is not the broker, or refuses the caller's certificate; FAILED_PRECONDITION: it
    // does not speak TLS.
    int (*shake)(struct tls_session *t, bool *out, struct err *e);
    // As send(2) and recv(2) of a non-blocking socket: -1 and EAGAIN, or another errno.
    ssize_t (*send)(struct tls_session *t, const void *bytes, size_t n);
    ssize_t (*receive)(struct tls_session *t, void *bytes, size_t n);
    // After receive() or send() failed with another errno than EAGAIN: whether the peer ended it with an alert of TLS, such
    // as that it refuses the caller's certificate, which it may say only after the handshake (RFC 8446, 4.4.2.4). Then the
    // error is UNAUTHENTICATED.
    bool (*refused)(const struct tls_session *t, struct err *e);
    // Bytes were received from the socket that receive() has not returned: poll(2) does not know of them.
    bool (*pending)(const struct tls_session *t);
    // Says goodbye if that is possible at once, and frees it. Accepts NULL.
    void (*close)(struct tls_session *t);
};

// The symbol of the module.
#define TLS_MODULE_SYMBOL "stockade_tls_module"
