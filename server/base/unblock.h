// SPDX-License-Identifier: Apache-2.0
// Calls that a peer could make wait, and the loop with them.
//
// A terminal: read(2) and write(2) on a descriptor that another process shares. O_NONBLOCK belongs to the open file, so that process
// can clear it at any moment, also between our look at it and our call; then the call waits, and the loop with it. Here a
// timer interrupts it. Costs two system calls more.
//
// A descriptor that a peer sends (SCM_RIGHTS): the last process that closes it may have to wait, for example for a TCP
// connection with SO_LINGER whose other end does not read. The kernel closes descriptors that a receiver does not take, when
// it drops the message or the socket. So sockets refuse them (SO_PASSRIGHTS, since Linux 6.16); on older kernels a timer
// interrupts the wait.
//
// Loop thread only.
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum {
    UNBLOCK_MS = 20,      // the longest wait for a terminal
    UNBLOCK_CLOSE_MS = 2, // and for a descriptor of a peer
};

// As read(2) and write(2). errno ETIME: it waited for UNBLOCK_MS, so the descriptor is blocking.
ssize_t unblock_read(int fd, void *bytes, size_t n);
ssize_t unblock_write(int fd, const void *bytes, size_t n);

// Between these two no call waits for longer than UNBLOCK_CLOSE_MS.
void unblock_begin(void);
void unblock_end(void);

// Makes a unix socket, and those that it accepts, refuse descriptors, if the kernel can.
void unblock_refuse(int fd);

// recv(2) with MSG_DONTWAIT, and close(2), of a socket that should refuse descriptors. errno EPROTO: the peer has sent some.
ssize_t unblock_recv(int fd, void *bytes, size_t n);
void unblock_close(int fd);
