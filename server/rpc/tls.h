// SPDX-License-Identifier: Apache-2.0
// Certificates of tls+tcp addresses: what OpenSSL needs to answer a handshake, read from files and replaced without a
// restart. transport_tls.c makes the connections. Loop thread only.
//
// TLS 1.3 (RFC 8446) unless the configuration permits 1.2. No session is resumed: tickets and caches are off, so what a
// connection may do never depends on an earlier one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    TLS_PATH_MAX = 256,
    TLS_NAME_MAX = 256,   // bytes of a name in a certificate, with the end
    TLS_TENANT_MAX = 32,  // as principal.tenant
    TLS_CLIENTS_MAX = 64, // rows of `tls.clients`
};

// Whose certificate a client may show: a name in it, with the kind that it has there.
struct tls_client {
    // "URI:spiffe://example/ci", "DNS:ci.example", "email:ci@example" (RFC 5280, 4.2.1.6)
    char name[TLS_NAME_MAX];
    char tenant[TLS_TENANT_MAX];
    uint32_t scopes; // bits of enum scope
};

// What the configuration says: plain data.
struct tls_files {
    // PEM, the server's first, then those that sign it; "": there is no TLS
    char certificate[TLS_PATH_MAX];
    // PEM; only its owner and group may read the file
    char key[TLS_PATH_MAX];
    // PEM; "": the broker requests no certificate of clients
    char client_ca[TLS_PATH_MAX];
    uint32_t require; // a client without a certificate is refused: needs client_ca
    uint32_t old;     // TLS 1.2 is accepted, for peers that have no 1.3
    uint32_t clients_n;
    struct tls_client clients[TLS_CLIENTS_MAX];
};

struct tls;
struct ssl_st;

struct tls *tls_new(void); // NULL: out of memory
void tls_free(struct tls *t);

// Reads the files and replaces what was loaded. On failure nothing changes: FAILED_PRECONDITION, with the file and the
// reason. With an empty `certificate` nothing is loaded from then on.
int tls_load(struct tls *t, const struct tls_files *files, struct err *e);

// Reads them, as tls_load() does, and forgets them: for --check-config, and before a reload is applied.
int tls_check(const struct tls_files *files, struct err *e);

bool tls_is_loaded(const struct tls *t);

// A connection in the state before the handshake, with two BIOs of memory: the bytes from and to the peer. NULL: nothing
// is loaded, or out of memory. Owned by the caller (SSL_free()).
struct ssl_st *tls_accept(const struct tls *t);

// The row of tls.clients that the peer's verified certificate has a name of, the first in their order; NULL: it showed
// none, or none that is listed. Valid until the next tls_load().
const struct tls_client *tls_client_of(const struct tls *t, const struct ssl_st *ssl);

// The reason of the last failure of OpenSSL on this thread, in its words; empties its queue.
const char *tls_why(void);
