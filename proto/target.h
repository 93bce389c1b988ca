// SPDX-License-Identifier: Apache-2.0
// A destination as people write it, "HOST[:PORT[-PORT]][/tcp|/udp]": the command line and the configuration file mean the
// same by it.
//
//   example.com   *.example.com:443   192.0.2.0/24:80-90/tcp   2001:db8::1   [2001:db8::/32]:53/udp   host:8080
//
// HOST is taken apart from the rest, and told to be an address or a name; whether it is a good one the broker says.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct target_text {
    char host[256]; // without brackets
    bool is_name;   // else an address, with or without a prefix, or "host": this host's own
    uint16_t first; // 0: every port
    uint16_t last;
    uint8_t protocol; // IPPROTO_TCP, IPPROTO_UDP; 0: both
};

// INVALID_ARGUMENT says what is wrong; *out is unchanged then.
int target_parse(const char *text, struct target_text *out, struct err *e);

// "PORT" or "PORT-PORT", 1 to 65,535. False: it is none.
bool target_ports(const char *text, uint16_t *first, uint16_t *last);
