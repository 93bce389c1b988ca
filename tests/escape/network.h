// SPDX-License-Identifier: Apache-2.0
// The jobs of network.py: the words after "network" on the command line. See network.c.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "techniques.h"

enum { NETWORK_PORT = 80, NETWORK_PEER_MS = 5000 };

// Exit status: 0 if it could do its task, with any result; otherwise 2.
int network_job(int argc, char **argv);

// tcp|udp SERVER COUNT NAME: the codes of the answers, and the address in the last one.
int network_ask(char **argv);

// The name of an errno; "0" for none.
const char *network_error(int sys);

// False: not an address.
bool network_address(const char *text, uint16_t port, struct sockaddr_in *to);

// -1 with errno.
int network_connect(int type, const void *to, socklen_t n);

// The result of an echo server: "ok", or the error.
const char *network_reach(int type, const void *to, socklen_t n);

extern const struct technique network_inside[]; // terminated by {0}
