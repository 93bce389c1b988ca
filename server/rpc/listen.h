// SPDX-License-Identifier: Apache-2.0
// Listening addresses: which ones are refused before a transport sees them, and the file of a unix socket.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "transport.h"

// A listening socket. The file of a unix socket is identified by its inode, so that the broker removes only its own
// file.
struct listen_bound {
    char url[TRANSPORT_BOUND_BYTES]; // with the chosen port if it was 0
    bool file;
    dev_t dev;
    ino_t ino;
};

// Whether the address is of websockets or of TLS, which have their own transports.
bool listen_is_ws(const char *url);
bool listen_is_tls(const char *url);

// Checks an address as listen_open() does, without opening anything, for --check-config. INVALID_ARGUMENT or
// FAILED_PRECONDITION, with the same texts.
int listen_check(const struct transport_address *a, struct err *e);

// ALREADY_EXISTS if another process listens on the address, or another file is there. An address that listen_open()
// refuses for another reason passes. Changes nothing.
int listen_is_free(const char *url, struct err *e);

// Listens on an ipc, tcp or tls+tcp address: *fd (owned, non-blocking). Replaces a stale socket file; refuses one in use and any
// other file (ALREADY_EXISTS). FAILED_PRECONDITION: tcp
// that is not a loopback address. *ipc is set to the kind.
int listen_open(const struct transport_address *a, int *fd, bool *ipc, struct listen_bound *bound,
                struct err *e);

// Removes the socket file if it is still the one that was made.
void listen_remove_file(const struct listen_bound *b);

// FAILED_PRECONDITION, with the reason: nng's websockets are not safe at this version, or the address is not a loopback
// address.
int listen_check_ws(const struct transport_address *a, const char *nng_version, struct err *e);
