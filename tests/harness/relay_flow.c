// SPDX-License-Identifier: Apache-2.0
// See relay_flow.h.
#include "tests/harness/relay_flow.h"

uint32_t
box_flow(const uint8_t address[16], uint16_t port, uint8_t protocol)
{
    const struct net_flow_key key = {.slot = box.slot, .entry = NET_FLOW_ENTRY(++box.flow)};
    struct net_flow flow = {.port = port,
                            .protocol = protocol,
                            .family = AF_INET,
                            .generation = box.generation,
                            .number = box.flow};
    memcpy(flow.address, address, sizeof flow.address);
    assert_int_equal(box_map_call(BPF_MAP_UPDATE_ELEM, box.flows_fd, &key, &flow), 0);
    return box.flow;
}

void
box_mapped(uint32_t address, uint8_t out[16])
{
    uint32_t wire = htonl(address);
    memset(out, 0, 16);
    out[10] = out[11] = 0xff;
    memcpy(out + 12, &wire, sizeof wire);
}

// A job's socket, connected. -1: it was reset before connect() returned.
static int
box_connect_as(int family, int type, const void *address, socklen_t n)
{
    box_enter(box.sandbox_ns);
    int fd = box_socket(family, type);
    bool reset = connect(fd, address, n) < 0;
    if (reset && errno != ECONNRESET)
        box_die("connect");
    box_enter(box.host_ns);
    if (reset)
        (void)close(fd);
    return reset ? -1 : fd;
}

int
box_connect_flow(int type, uint32_t number)
{
    const struct sockaddr_in sa = box_v4(NET_FLOW_V4 + number, NET_RELAY_PORT);
    return box_connect_as(AF_INET, type, &sa, sizeof sa);
}

int
box_connect_flow6(int type, uint32_t number)
{
    static const uint8_t prefix[12] = NET_FLOW_V6_PREFIX;
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = htons(NET_RELAY_PORT)};
    uint32_t wire = htonl(number);
    memcpy(&sa.sin6_addr, prefix, sizeof prefix);
    memcpy((uint8_t *)&sa.sin6_addr + sizeof prefix, &wire, sizeof wire);
    return box_connect_as(AF_INET6, type, &sa, sizeof sa);
}

int
box_connect(int type, uint32_t address, uint16_t port)
{
    uint8_t to[16];
    box_mapped(address, to);
    return box_connect_flow(type,
                            box_flow(to, port, type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP));
}

void
box_expect_reset(int fd)
{
    char byte = 0;
    if (fd < 0)
        return; // connect() has reported it
    ssize_t n = recv(fd, &byte, 1, 0);
    if (n != -1 || errno != ECONNRESET)
        print_error("recv: %zd, %s\n", n, strerror(errno));
    assert_true(n == -1 && errno == ECONNRESET);
    (void)close(fd);
}

void
box_say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

void
box_hear(int fd, const char *text)
{
    char got[256] = "";
    size_t n = 0;
    while (n < strlen(text)) {
        ssize_t r = recv(fd, got + n, strlen(text) - n, 0);
        assert_true(r > 0);
        n += (size_t)r;
    }
    assert_string_equal(got, text);
}
