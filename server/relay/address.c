// See address.h.
#include "address.h"

#include <string.h>
#include <unistd.h>

#include "../../proto/auto.h"

#define V4(a, b, c, d, bits)                                                                       \
    {                                                                                              \
        {[10] = 0xff, [11] = 0xff, [12] = (a), [13] = (b), [14] = (c), [15] = (d)},                \
            ADDRESS_V4_BITS + (bits)                                                               \
    }

static const struct address_range special_v4[] = {
    V4(0, 0, 0, 0, 8),        // "this network"
    V4(10, 0, 0, 0, 8),       // private
    V4(100, 64, 0, 0, 10),    // carriers' NAT; Alibaba's metadata is in it
    V4(127, 0, 0, 0, 8),      // loopback
    V4(168, 63, 129, 16, 32), // Azure's wire server
    V4(169, 254, 0, 0, 16),   // link-local; metadata of most clouds
    V4(172, 16, 0, 0, 12),    // private
    V4(192, 0, 0, 0, 24),     // protocol assignments; Oracle's metadata is in it
    V4(192, 0, 2, 0, 24),     // documentation
    V4(192, 88, 99, 0, 24),   // 6to4 relays
    V4(192, 168, 0, 0, 16),   // private
    V4(198, 18, 0, 0, 15),    // benchmarks: our own synthetic addresses
    V4(198, 51, 100, 0, 24),  // documentation
    V4(203, 0, 113, 0, 24),   // documentation
    V4(224, 0, 0, 0, 4),      // multicast
    V4(240, 0, 0, 0, 4),      // reserved, broadcast
};

static const struct address_range special_v6[] = {
    {{0xfc}, 7},                 // unique local; AWS's metadata (fd00:ec2::254), our flow addresses
    {{0xfe, 0x80}, 10},          // link-local
    {{0xfe, 0xc0}, 10},          // site-local
    {{0xff}, 8},                 // multicast
    {{0x20, 0x01, 0, 2}, 48},    // benchmarks: our own synthetic addresses
    {{0x20, 0x01, 0, 0x10}, 28}, // ORCHID
    {{0x20, 0x01, 0, 0x20}, 28}, // ORCHIDv2
    {{0x20, 0x01, 0x0d, 0xb8}, 32},    // documentation
    {{0x3f, 0xff}, 20},                // documentation
    {{0, 0x64, 0xff, 0x9b, 0, 1}, 48}, // local NAT64: what is behind it nobody knows
};

// Forms that carry an IPv4 address.
static const struct address_range nat64 = {{0, 0x64, 0xff, 0x9b}, 96};
static const struct address_range six_to_four = {{0x20, 0x02}, 16};
static const struct address_range teredo = {{0x20, 0x01}, 32};
static const struct address_range isatap = {{0x20}, 64};

// Global unicast is 2000::/3 (RFC 4291); whatever is outside and not listed is nobody's.
static const struct address_range unassigned = {{0}, 8};

bool
address_is_v4(const uint8_t a[ADDRESS_BYTES])
{
    static const uint8_t mapped[ADDRESS_V4_AT] = {[10] = 0xff, [11] = 0xff};
    return memcmp(a, mapped, sizeof mapped) == 0;
}

static bool
bits_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned bytes = bits / 8;
    unsigned rest = bits % 8;
    if (memcmp(a, b, bytes) != 0)
        return false;
    return rest == 0 || (uint8_t)((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}

bool
address_within(const uint8_t a[ADDRESS_BYTES], const uint8_t net[ADDRESS_BYTES], unsigned prefix)
{
    if (prefix > 8 * ADDRESS_BYTES)
        return false;
    if (address_is_v4(a) && (prefix < ADDRESS_V4_BITS || !address_is_v4(net)))
        return false;
    return bits_equal(a, net, prefix);
}

static const struct address_range *
find(const struct address_range *ranges, size_t n, const uint8_t *a)
{
    for (size_t i = 0; i < n; i++)
        if (bits_equal(a, ranges[i].address, ranges[i].prefix))
            return &ranges[i];
    return NULL;
}

static bool
carries_special(const uint8_t v4[4], uint8_t invert)
{
    uint8_t a[ADDRESS_BYTES] = {[10] = 0xff, [11] = 0xff};
    for (size_t i = 0; i < 4; i++)
        a[ADDRESS_V4_AT + i] = v4[i] ^ invert;
    return find(special_v4, sizeof special_v4 / sizeof special_v4[0], a) != NULL;
}

static const struct address_range *
special_inside(const uint8_t *a)
{
    static const uint8_t isatap_id[4] = {0, 0, 0x5e, 0xfe};
    if (bits_equal(a, nat64.address, nat64.prefix))
        return carries_special(a + 12, 0) ? &nat64 : NULL;
    if (bits_equal(a, six_to_four.address, six_to_four.prefix))
        return carries_special(a + 2, 0) ? &six_to_four : NULL;
    if (bits_equal(a, teredo.address, teredo.prefix)) // the server; the client, inverted
        return carries_special(a + 4, 0) || carries_special(a + 12, 0xff) ? &teredo : NULL;
    if (((a[8] & 0xfc) == 0) && memcmp(a + 9, isatap_id + 1, 3) == 0 && carries_special(a + 12, 0))
        return &isatap;
    return (a[0] & 0xe0) == 0x20 ? NULL : &unassigned;
}

const struct address_range *
address_special(const uint8_t a[ADDRESS_BYTES])
{
    if (address_is_v4(a))
        return find(special_v4, sizeof special_v4 / sizeof special_v4[0], a);
    const struct address_range *r = find(special_v6, sizeof special_v6 / sizeof special_v6[0], a);
    return r != NULL ? r : special_inside(a);
}

bool
address_is_own(const uint8_t a[ADDRESS_BYTES])
{
    enum { DISCARD_PORT = 9 };
    struct sockaddr_storage to;
    struct sockaddr_storage from = {0};
    socklen_t n = address_to_sockaddr(a, DISCARD_PORT, &to);
    int auto_close fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true; // nobody knows, so it is refused
    if (connect(fd, (const struct sockaddr *)&to, n) < 0)
        return false; // there is no way to it
    n = sizeof from;
    if (getsockname(fd, (struct sockaddr *)&from, &n) < 0)
        return false;
    uint8_t source[ADDRESS_BYTES];
    uint16_t port = 0;
    address_from_sockaddr(&from, source, &port);
    return memcmp(source, a, sizeof source) == 0;
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
