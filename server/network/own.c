// SPDX-License-Identifier: Apache-2.0
// See own.h. Each change makes it read all addresses again, because there are few and they rarely change.
#include "own.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "bpf/net.h"
#include "bpf/net_ranges.h"
#include "proto/auto.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/loop.h"

enum { READS_PER_TURN = 64, READ_BYTES = 8192 };

struct net_own {
    int map_fd;
    int netlink_fd;
    struct loop_poll *poll;
    uint32_t n;
    uint8_t address[NET_OWN][16]; // in the map
};

static bool
address_of(const struct sockaddr *sa, uint8_t out[16])
{
    memset(out, 0, 16);
    if (sa == NULL || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
        return false;
    if (sa->sa_family == AF_INET) {
        out[10] = out[11] = 0xff;
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    } else {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    }
    return true;
}

static bool
holds(const uint8_t (*list)[16], uint32_t n, const uint8_t address[16])
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(list[i], address, 16) == 0)
            return true;
    return false;
}

// Reads the current addresses, each once. If there are more than the map can hold, the others are left out, which is
// logged.
static int
read_addresses(uint8_t (*list)[16], uint32_t *n, struct err *e)
{
    struct ifaddrs *all = NULL;
    uint8_t address[16];
    *n = 0;
    if (getifaddrs(&all) < 0)
        return err_sys(e, errno, "read the host's addresses");
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        if (!address_of(a->ifa_addr, address) || holds(list, *n, address))
            continue;
        if (*n == NET_OWN) {
            log_event(LOG_WARNING, "network", "the host has more than %d addresses", NET_OWN);
            metrics_add(METRIC_OWN_ADDRESSES_LOST, 1);
            break;
        }
        memcpy(list[(*n)++], address, sizeof address);
    }
    freeifaddrs(all);
    return 0;
}

// Adds new addresses before it removes old ones, so that no current address is missing in between.
static int
renew(struct net_own *o, struct err *e)
{
    static uint8_t now[NET_OWN][16];
    uint32_t n = 0;
    int r = read_addresses(now, &n, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < n; i++) {
        const struct net_own_address value = {.host = net_is_hosts(now[i])};
        if (!holds(o->address, o->n, now[i]) &&
            bpf_map_update_elem(o->map_fd, now[i], &value, BPF_ANY) < 0)
            return err_sys(e, errno, "write the host's addresses");
    }
    for (uint32_t i = 0; i < o->n; i++)
        if (!holds(now, n, o->address[i]))
            (void)bpf_map_delete_elem(o->map_fd, o->address[i]);
    memcpy(o->address, now, n * sizeof now[0]);
    o->n = n;
    return 0;
}

static void
on_change(void *cookie, int events)
{
    struct net_own *o = cookie;
    char bytes[READ_BYTES];
    struct err e;
    (void)events;
    for (int i = 0; i < READS_PER_TURN; i++)
        if (recv(o->netlink_fd, bytes, sizeof bytes, MSG_DONTWAIT) < 0 && errno != ENOBUFS)
            break;
    if (renew(o, &e) < 0)
        log_err(LOG_ERROR, "network", &e);
}

static int
follow(struct net_own *o, uv_loop_t *loop, struct err *e)
{
    const struct sockaddr_nl at = {.nl_family = AF_NETLINK,
                                   .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    o->netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (o->netlink_fd < 0 || bind(o->netlink_fd, (const struct sockaddr *)&at, sizeof at) < 0)
        return err_sys(e, errno, "follow the host's addresses");
    int r = loop_poll_start(loop, &o->poll, o->netlink_fd, UV_READABLE, on_change, o);
    return r < 0 ? err_sys(e, r, "follow the host's addresses") : renew(o, e);
}

struct net_own *
net_own_new(uv_loop_t *loop, int map_fd, struct err *e)
{
    struct net_own *o = calloc(1, sizeof *o);
    if (o == NULL) {
        (void)err_sys(e, ENOMEM, "keep the host's addresses");
        return NULL;
    }
    o->map_fd = map_fd;
    o->netlink_fd = -1;
    if (map_fd >= 0 && follow(o, loop, e) < 0) {
        net_own_free(o);
        return NULL;
    }
    return o;
}

void
net_own_free(struct net_own *o)
{
    if (o == NULL)
        return;
    loop_poll_stop(&o->poll);
    if (o->netlink_fd >= 0)
        (void)close(o->netlink_fd);
    free(o);
}
