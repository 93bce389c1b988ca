// SPDX-License-Identifier: Apache-2.0
// See udp_reply.h.
#include "udp_reply.h"

#include <netinet/in.h>
#include <string.h>

#include "address.h"

void
udp_reply(const struct listener *l, const struct sockaddr_storage *to, const uint8_t local[16],
          const void *bytes, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control;
    memset(&control, 0, sizeof control);
    struct sockaddr_storage name = *to;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    struct msghdr m = {
        .msg_name = &name,
        .msg_namelen = to->ss_family == AF_INET ? (socklen_t)sizeof(struct sockaddr_in)
                                                : (socklen_t)sizeof(struct sockaddr_in6),
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof control.bytes,
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (to->ss_family == AF_INET) {
        struct in_pktinfo info = {0};
        memcpy(&info.ipi_spec_dst, local + ADDRESS_V4_AT, sizeof info.ipi_spec_dst);
        c->cmsg_level = IPPROTO_IP;
        c->cmsg_type = IP_PKTINFO;
        c->cmsg_len = CMSG_LEN(sizeof info);
        memcpy(CMSG_DATA(c), &info, sizeof info);
        m.msg_controllen = CMSG_SPACE(sizeof info);
    } else {
        struct in6_pktinfo info = {0};
        memcpy(&info.ipi6_addr, local, sizeof info.ipi6_addr);
        c->cmsg_level = IPPROTO_IPV6;
        c->cmsg_type = IPV6_PKTINFO;
        c->cmsg_len = CMSG_LEN(sizeof info);
        memcpy(CMSG_DATA(c), &info, sizeof info);
    }
    (void)sendmsg(l->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}
