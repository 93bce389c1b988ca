// SPDX-License-Identifier: Apache-2.0
// Packets that carry descriptors between processes: SCM_RIGHTS (unix(7)) over SOCK_SEQPACKET sockets. No other file
// does this.
//
// The peer decides what it sends, and the kernel installs the descriptors before anything can check them. So a packet
// that does not fit is refused as a whole, and all its descriptors are closed. Nothing here allocates, locks or logs:
// it may run between clone3 and execve.
#pragma once

#include <stddef.h>

enum { FDPASS_MAX = 253 }; // of one packet: SCM_MAX_FD in the kernel's include/net/scm.h

struct fdpass {
    void *bytes;
    size_t n; // bytes to send, or room for received ones
    int *fds;
    size_t fds_n; // descriptors to send, or room for received ones; at most FDPASS_MAX
};

// Sends one packet; the caller keeps the descriptors. `flags` as in sendmsg(2); MSG_NOSIGNAL is always set. Returns
// 0, or a negative errno: -EAGAIN, the socket is full (with MSG_DONTWAIT); -ETOOMANYREFS, too many descriptors are in
// transit.
int fdpass_send(int socket, const struct fdpass *m, int flags);

// Takes one packet. `flags` as recvmsg(2) has them; descriptors are always CLOEXEC. 1: n and fds_n say what came, the
// descriptors are *owned* by the caller, and the rest of `fds` is -1. 0: the other end is closed. Otherwise a negative errno,
// and no descriptor is left open:
// -EMSGSIZE  the packet was longer than there is room for
// -EPROTO    more descriptors came than there is room for, or control data of another kind
// -EMFILE    this process had no room in its table of descriptors; the bytes are there, and n says how many
// others     what recvmsg(2) says, -EAGAIN among them (with MSG_DONTWAIT); n is 0
int fdpass_receive(int socket, struct fdpass *m, int flags);

// Closes each that is not -1 and makes it -1.
void fdpass_close(int *fds, size_t n);
