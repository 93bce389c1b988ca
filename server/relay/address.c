// SPDX-License-Identifier: Apache-2.0
// See address.h.
#include "address.h"

#include <string.h>
#include <unistd.h>

#include "proto/prefix.h"
#include "bpf/net_ranges.h"
#include "proto/auto.h"

bool
address_is_v4(const uint8_t a[ADDRESS_BYTES])
{
    static const uint8_t mapped[ADDRESS_V4_AT] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a, mapped, sizeof mapped) == 0;
}

bool
address_within(const uint8_t a[ADDRESS_BYTES], const uint8_t net[ADDRESS_BYTES], unsigned prefix)
{
    if (prefix > 8 * ADDRESS_BYTES)
        return false;
    if (address_is_v4(a) && (prefix < ADDRESS_V4_BITS || !address_is_v4(net)))
        return false;
    return prefix_equal(a, net, prefix);
}

static bool
is_local(const uint8_t a[ADDRESS_BYTES])
{
    enum { DISCARD_PORT = 9 };
    struct sockaddr_storage to;
    struct sockaddr_storage from = {0};
    socklen_t n = address_to_sockaddr(a, DISCARD_PORT, &to);
    int auto_close fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true; // unknown, so treat it as an own address, which is refused
    if (connect(fd, (const struct sockaddr *)&to, n) < 0)
        return false; // no route
    n = sizeof from;
    if (getsockname(fd, (struct sockaddr *)&from, &n) < 0)
        return false;
    uint8_t source[ADDRESS_BYTES];
    uint16_t port = 0;
    address_from_sockaddr(&from, source, &port);
    return memcmp(source, a, sizeof source) == 0;
}

enum address_own
address_own(const uint8_t a[ADDRESS_BYTES])
{
    uint8_t inside[ADDRESS_BYTES] = {[10] = 0xff, [11] = 0xff};
    uint32_t v4 = 0;
    if (is_local(a))
        return net_is_hosts(a) ? ADDRESS_OWN_HOST : ADDRESS_OWN_WHOLE;
    if (address_is_v4(a) || net_carries_v4(net_words(a), &v4) == 0)
        return ADDRESS_NOT_OWN;
    v4 = htonl(v4);
    memcpy(inside + ADDRESS_V4_AT, &v4, sizeof v4);
    return is_local(inside) ? ADDRESS_OWN_WHOLE : ADDRESS_NOT_OWN;
}

socklen_t
address_to_sockaddr(const uint8_t a[ADDRESS_BYTES], uint16_t port, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (address_is_v4(a)) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&in.sin_addr, a + ADDRESS_V4_AT, sizeof in.sin_addr);
        memcpy(out, &in, sizeof in);
        return sizeof in;
    }
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&in6.sin6_addr, a, sizeof in6.sin6_addr);
    memcpy(out, &in6, sizeof in6);
    return sizeof in6;
}

void
address_from_sockaddr(const struct sockaddr_storage *from, uint8_t a[ADDRESS_BYTES], uint16_t *port)
{
    memset(a, 0, ADDRESS_BYTES);
    *port = 0;
    if (from->ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, from, sizeof in);
        a[10] = a[11] = 0xff;
        memcpy(a + ADDRESS_V4_AT, &in.sin_addr, sizeof in.sin_addr);
        *port = ntohs(in.sin_port);
    } else if (from->ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, from, sizeof in6);
        memcpy(a, &in6.sin6_addr, sizeof in6.sin6_addr);
        *port = ntohs(in6.sin6_port);
    }
}
