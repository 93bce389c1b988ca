// SPDX-License-Identifier: Apache-2.0
// Where one may listen: what is refused before a transport sees the address, and the file of a unix socket.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "transport.h"

// A socket that listens. The file of a unix socket is known by its inode, so that only one's own is removed.
struct listen_bound {
    char url[TRANSPORT_BOUND_BYTES]; // with the port that was chosen for port 0
    bool file;
    dev_t dev;
    ino_t ino;
};

// "ws" has a transport of its own.
bool listen_is_ws(const char *url);

// What listen_open() refuses by the address alone, whatever is there: for a configuration that is only looked at.
// INVALID_ARGUMENT, FAILED_PRECONDITION, in the same words.
int listen_check(const struct transport_address *a, struct err *e);

// Listens on an ipc or tcp address: *fd (owned, non-blocking). A stale socket file is replaced; a live one, and whatever
// is no socket, is refused (ALREADY_EXISTS). FAILED_PRECONDITION: more than loopback, or tls. *ipc tells the kind.
int listen_open(const struct transport_address *a, int *fd, bool *ipc, struct listen_bound *bound,
                struct err *e);

// Removes the socket file, if it still is the one that was made.
void listen_remove_file(const struct listen_bound *b);

// FAILED_PRECONDITION, with the reason: nng's websockets at this version are not to be trusted, or the address is more
// than loopback.
int listen_check_ws(const struct transport_address *a, const char *nng_version, struct err *e);
