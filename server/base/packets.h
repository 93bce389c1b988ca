// SPDX-License-Identifier: Apache-2.0
// A queue of packets with descriptors to a SOCK_SEQPACKET socket. The peer may be slow or hostile.
//
// Packets that the socket does not accept are queued, in order and within bounds. So no packet is lost without an
// error, and a peer that does not read uses no more memory than its queue. This file closes each descriptor exactly
// once: after it was sent, or when its packet was refused. Loop thread only.
//
//    packet_new() -> fill bytes and fds -> packets_send() -> socket, or queue
//    poll: writable -> packets_flush();  afterwards wait for packets_events()
#pragma once

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "list.h"

enum { PACKET_FDS = 4 };

struct packet {
    struct list node;
    int fds[PACKET_FDS]; // the first fds_n, *owned* by the packet
    size_t fds_n;
    size_t n;
    alignas(max_align_t) uint8_t bytes[]; // n of them
};

// A queue. Its owner sets the first part and calls packets_init().
struct packets {
    int fd;           // borrowed
    const char *peer; // for texts: "the relay"
    size_t packet_max, queue_max, queue_bytes_max;

    struct list queue;
    size_t queued, queued_bytes;
};

void packets_init(struct packets *q);

// Frees the queued packets and closes their descriptors.
void packets_clear(struct packets *q);

// Returns a packet of n bytes, all zero. NULL: longer than packet_max (INVALID_ARGUMENT), or out of memory.
struct packet *packet_new(const struct packets *q, size_t n, struct err *e);

// Frees a packet that is not sent. Accepts NULL.
void packet_free(struct packet *p);

// Sends or queues a packet, and *owns* it from now on, also on failure. A packet to a peer that has ended is discarded,
// since the socket reports the end of the peer. RESOURCE_EXHAUSTED: the queue is full, or the kernel holds too many
// descriptors of this process; others: errors of the kernel.
int packets_send(struct packets *q, struct packet *p, struct err *e);

// Returns 0 if packets_send() would accept the packet whatever the state of the socket, else RESOURCE_EXHAUSTED.
int packets_room(const struct packets *q, const struct packet *p, struct err *e);

// The socket is writable: sends queued packets as far as possible. Negative: a packet was lost after it had been
// accepted, so the state of the peer is wrong and the link must end.
int packets_flush(struct packets *q, struct err *e);

// The events to wait for: UV_READABLE, and UV_WRITABLE while packets are queued.
int packets_events(const struct packets *q);
