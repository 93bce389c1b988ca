// SPDX-License-Identifier: Apache-2.0
// The broker's end of a SOCK_SEQPACKET socket to a process that is not trusted: packets out within bounds
// (packets.h), packets in, one at a time, and its end reported once.
//
// It is the first member of its owner's struct. A `kind` has the owner's callbacks and bounds. It may be freed at any
// time; inside a callback, the memory is released when the callback returns. Loop thread only.
//
//   packet_link_new() -> kind->packet() ... -> kind->gone() once -> packet_link_free()
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "packets.h"
#include "proto/err.h"

enum { PACKET_LINK_IN_MAX = 64 * 1024 }; // of a packet that comes in

struct packet_link_kind {
    const char *process; // "the guest": the process at the other end, for texts
    const char *peer;    // "the sandbox": what does not read its packets, for texts
    enum err_code ended; // the code for an orderly end
    // Outgoing packets: the size of one, and the queue while the socket is full.
    size_t packet_max, queue_max, queue_bytes_max;
    size_t in_max;             // size of an incoming packet, at most PACKET_LINK_IN_MAX
    unsigned packets_per_turn; // that are read before other descriptors get their turn
    bool takes_fd;             // a packet may contain one descriptor
    // One incoming packet, aligned for any type. *fd is -1, or a descriptor that the callee may take with take_fd().
    // Negative: the packet breaks the protocol, *e says why, and the link ends.
    int (*packet)(void *owner, const void *bytes, size_t n, int *fd, struct err *e);
    // The socket was closed or the other end broke the protocol; no more packets come. Called at most once.
    void (*gone)(void *owner, const struct err *why);
    // Queued packets were sent. May be NULL.
    void (*moved)(void *owner);
};

struct packet_link {
    const struct packet_link_kind *kind;
    int fd;
    struct loop_poll *poll; // NULL: the link has ended
    struct packets out;
    bool freed, busy; // to be freed; a callback is running
    bool held;        // see packet_link_hold()
};

// Allocates an owner of so many bytes, all zero except for the link at its front. Takes fd (*owned* by the link, also
// on failure). NULL: out of memory, in *e.
void *packet_link_new(size_t owner_bytes, uv_loop_t *loop, int fd,
                      const struct packet_link_kind *kind, struct err *e);

// Closes everything and frees the owner, immediately or when the running callback returns. gone() is not called any
// more.
void packet_link_free(struct packet_link *l);

// Takes the packet, also on failure. Like packets_send().
int packet_link_send(struct packet_link *l, struct packet *p, struct err *e);

// While it is held no packet is read: the other end waits, once its socket is full. What has been sent still goes out.
void packet_link_hold(struct packet_link *l, bool held);

// Reads the packets that are there, at most so many, unless it is held: the other end has ended, and nothing that it said before
// shall be lost. The callbacks may free the owner. Does nothing inside a callback.
void packet_link_rest(struct packet_link *l, unsigned most);

// Ends it as if the socket had closed: gone() is called before this returns. Does nothing if it has already ended, or
// inside a callback.
void packet_link_end(struct packet_link *l, const struct err *why);

// Ends it later, from the loop, as if the process had ended.
void packet_link_cut(const struct packet_link *l);
