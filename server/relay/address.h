// Addresses as 16 bytes (IPv4 as ::ffff:a.b.c.d), and which of them are not simply "somewhere on the Internet".
//
// A special address is reached only by a CIDR rule that names it: one that lies within the special range. 0.0.0.0/0 names
// no private address, 10.0.0.0/8 does. The ranges are IANA's special-purpose registries (RFC 6890 and its successors),
// multicast, what cloud providers use for metadata, and IPv6 forms that carry a special IPv4 address inside.
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_BYTES = 16, ADDRESS_V4_AT = 12, ADDRESS_V4_BITS = 96 };

struct address_range {
    uint8_t address[ADDRESS_BYTES];
    uint8_t prefix; // of the 128 bits
};

bool address_is_v4(const uint8_t a[ADDRESS_BYTES]);

// Is `a` within net/prefix? An IPv4 address is within IPv4 prefixes alone: ::/0 does not hold it.
bool address_within(const uint8_t a[ADDRESS_BYTES], const uint8_t net[ADDRESS_BYTES],
                    unsigned prefix);

// The special range that `a` lies in; NULL: none, it is public.
const struct address_range *address_special(const uint8_t a[ADDRESS_BYTES]);

// Is it one of this host's own? The kernel's routing says so (a UDP socket is connected, nothing is sent): for those the
// source of a packet is its destination. False also when there is no route, true when no descriptor is left to ask with.
bool address_is_own(const uint8_t a[ADDRESS_BYTES]);

// The socket address, and back. Returns its length.
socklen_t address_to_sockaddr(const uint8_t a[ADDRESS_BYTES], uint16_t port,
                              struct sockaddr_storage *out);
void address_from_sockaddr(const struct sockaddr_storage *from, uint8_t a[ADDRESS_BYTES],
                           uint16_t *port);
