// SPDX-License-Identifier: Apache-2.0
// Addresses as 16 bytes (IPv4 as ::ffff:a.b.c.d), and whether they are this host's own. bpf/net_ranges.h defines the
// special ranges, and which rules allow them.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_BYTES = 16, ADDRESS_V4_AT = 12, ADDRESS_V4_BITS = 96 };

bool address_is_v4(const uint8_t a[ADDRESS_BYTES]);

// Whether `a` is within net/prefix. An IPv4 address is only within IPv4 prefixes: ::/0 does not contain it.
bool address_within(const uint8_t a[ADDRESS_BYTES], const uint8_t net[ADDRESS_BYTES],
                    unsigned prefix);

// Which rules allow one of this host's own addresses: "host" and that of the single address, or only the latter
// (loopback, link-local, metadata, and addresses that embed one of the host's: NAT64, 6to4, ISATAP).
enum address_own { ADDRESS_NOT_OWN, ADDRESS_OWN_WHOLE, ADDRESS_OWN_HOST };

// Asks the kernel's routing (connects a UDP socket; nothing is sent): for an own address the source of a packet is its
// destination. Not own without a route; OWN if no descriptor is available.
enum address_own address_own(const uint8_t a[ADDRESS_BYTES]);

// Converts to a socket address, and back. Returns its length.
socklen_t address_to_sockaddr(const uint8_t a[ADDRESS_BYTES], uint16_t port,
                              struct sockaddr_storage *out);
void address_from_sockaddr(const struct sockaddr_storage *from, uint8_t a[ADDRESS_BYTES],
                           uint16_t *port);
