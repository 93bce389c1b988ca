// SPDX-License-Identifier: Apache-2.0
// The address of the broker: "ipc:///path", "unix:/path", "tcp://host:port" or "tls+tcp://host:port".
#pragma once

#include <stdbool.h>

#include "proto/err.h"
#include "tls/tls.h"

struct address {
    bool ipc;
    char path[108]; // ipc: the socket file; fits sockaddr_un
    char host[256]; // tcp: a name or an address, without brackets
    char port[6];   // tcp: 1 to 65535
    bool tls;
    struct tls_options proof; // tls: strings are borrowed, set by the owner of the address
};

// Parses an address. INVALID_ARGUMENT (subject "address"): another form, a relative path, or a path that is too long.
int address_parse(struct address *out, const char *text, struct err *e);
