// SPDX-License-Identifier: Apache-2.0
// Shared by the three files of techniques.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

#include "techniques.h"

enum { MARK_N = sizeof TECHNIQUE_MARK - 1 };

const struct sockaddr *any(const void *address);
struct sockaddr_in6 mapped(const struct sockaddr_in *v4);

// A socket with timeouts; -1 with errno.
int open_socket(int family, int type, int protocol);

// Closes the descriptor. Returns the errno of the call with this result, or 0.
int ended(int fd, long result);

// Makes a socket and connects and sends the mark, or uses sendto: 0 or the errno.
int connect_send(int family, int type, int protocol, const void *to, socklen_t n);
int send_to(int family, int type, int protocol, int flags, const void *to, socklen_t n);

extern const struct technique techniques_of_sockets[], techniques_low[], techniques_more[];
