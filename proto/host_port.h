// SPDX-License-Identifier: Apache-2.0
// Parses "HOST", "HOST:PORT", "[IPV6]" and "[IPV6]:PORT". No other file does this. An IPv6 address without brackets
// is a host without a port. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct host_port {
    char host[256]; // without brackets; may be empty
    bool bracket;   // it was in brackets
    // the text after the colon, in the text that was read; NULL: none
    const char *port;
};

// False: brackets do not match, or the host is too long; then *out is unchanged.
bool host_port_split(const char *text, struct host_port *out);

// Reads a port: at most five decimal digits, 0 to 65,535. False: invalid.
bool host_port_number(const char *text, uint16_t *port);
