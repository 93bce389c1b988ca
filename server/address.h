// Where one may listen: what is refused before a transport sees the address, and the file of a unix socket.
#pragma once

#include <stdbool.h>

#include "transport.h"

// Checks an address and makes room for it: a stale socket file is removed; a live one, and whatever is no socket, is
// refused (ALREADY_EXISTS). FAILED_PRECONDITION: more than loopback, ws below nng 1.6, tls. *ipc tells the kind.
int address_prepare(const struct transport_address *a, const char *nng_version, bool *ipc,
                    struct err *e);

// Gives the socket file, which was made for its owner alone, its group and then its mode.
int address_open_socket(const struct transport_address *a, struct err *e);
