// SPDX-License-Identifier: Apache-2.0
// A destination as text, "HOST[:PORT[-PORT]][/tcp|/udp]", for the command line and the configuration file.
//
//   example.com   *.example.com:443   192.0.2.0/24:80-90/tcp   2001:db8::1   [2001:db8::/32]:53/udp   host:8080
//
// This file separates HOST from the rest and decides whether it is an address or a name; the broker checks whether it
// is valid.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct target_text {
    char host[256]; // without brackets
    bool is_name;   // otherwise an address, with or without a prefix, or "host" (this host's own)
    uint16_t first; // 0: every port
    uint16_t last;
    uint8_t protocol; // IPPROTO_TCP, IPPROTO_UDP; 0: both
};

// INVALID_ARGUMENT with the reason; *out is unchanged then.
int target_parse(const char *text, struct target_text *out, struct err *e);

// Parses "PORT" or "PORT-PORT", 1 to 65,535. False: not valid.
bool target_ports(const char *text, uint16_t *first, uint16_t *last);
