// SPDX-License-Identifier: Apache-2.0
// Addresses as 16 bytes (IPv4 as ::ffff:a.b.c.d), and which of them are this host's own. Which are special, and how much of
// one a rule must name to reach it, says bpf/net_ranges.h.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_BYTES = 16, ADDRESS_V4_AT = 12, ADDRESS_V4_BITS = 96 };

bool address_is_v4(const uint8_t a[ADDRESS_BYTES]);

// Is `a` within net/prefix? An IPv4 address is within IPv4 prefixes alone: ::/0 does not hold it.
bool address_within(const uint8_t a[ADDRESS_BYTES], const uint8_t net[ADDRESS_BYTES],
                    unsigned prefix);

// Which rules reach one of this host's own addresses: "host" and that of the whole address, or the latter alone (loopback,
// link-local, metadata, and what carries one of the host's inside: NAT64, 6to4, ISATAP).
enum address_own { ADDRESS_NOT_OWN, ADDRESS_OWN_WHOLE, ADDRESS_OWN_HOST };

// The kernel's routing says which are (a UDP socket is connected, nothing is sent): for those the source of a packet is its
// destination. Not own also when there is no route; OWN when no descriptor is left to ask with.
enum address_own address_own(const uint8_t a[ADDRESS_BYTES]);

// The socket address, and back. Returns its length.
socklen_t address_to_sockaddr(const uint8_t a[ADDRESS_BYTES], uint16_t port,
                              struct sockaddr_storage *out);
void address_from_sockaddr(const struct sockaddr_storage *from, uint8_t a[ADDRESS_BYTES],
                           uint16_t *port);
