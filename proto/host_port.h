// SPDX-License-Identifier: Apache-2.0
// "HOST", "HOST:PORT", "[IPV6]" and "[IPV6]:PORT", taken apart here and nowhere else. An IPv6 address without brackets is a host
// without a port. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct host_port {
    char host[256]; // without brackets; may be empty
    bool bracket;   // it stood in them
    // what stands behind the colon, in the text that was read; NULL: there is none
    const char *port;
};

// False: brackets do not match, or the host is too long. *out is unchanged then.
bool host_port_split(const char *text, struct host_port *out);

// A port in decimal digits, at most five, 0 to 65,535. False: it is none.
bool host_port_number(const char *text, uint16_t *port);
