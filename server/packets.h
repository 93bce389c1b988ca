// SPDX-License-Identifier: Apache-2.0
// Packets with descriptors on their way into a SOCK_SEQPACKET socket whose other end may be slow, or hostile.
//
// What the socket does not take waits, in order and within bounds; so nothing is ever lost without an error, and a peer
// that does not read costs no more than its queue. Each descriptor is closed here exactly once: after it was sent, or when
// its packet was refused. Loop thread only.
//
//   packet_new() -> fill bytes and fds -> packets_send() -> socket, or queue
//   poll: writable -> packets_flush();  afterwards wait for packets_events()
#pragma once

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "../proto/err.h"
#include "list.h"

enum { PACKET_FDS = 4 };

struct packet {
    struct list node;
    int fds[PACKET_FDS]; // the first fds_n, *owned* by the packet
    size_t fds_n;
    size_t n;
    alignas(max_align_t) uint8_t bytes[]; // n of them
};

// A queue. Its owner writes the first part and calls packets_init().
struct packets {
    int fd;           // borrowed
    const char *peer; // for texts: "the relay"
    size_t packet_max, queue_max, queue_bytes_max;

    struct list queue;
    size_t queued, queued_bytes;
};

void packets_init(struct packets *q);

// Closes and frees what waits.
void packets_clear(struct packets *q);

// An empty packet of n bytes, all zero. NULL: longer than packet_max (INVALID_ARGUMENT), or no memory.
struct packet *packet_new(const struct packets *q, size_t n, struct err *e);

// One that is not sent after all. NULL is fine.
void packet_free(struct packet *p);

// Sends or queues; *owns* the packet from now on, also on failure. A peer that is gone takes everything, since the socket
// tells that by itself. RESOURCE_EXHAUSTED: the queue is full, or the kernel holds too many descriptors of ours; others:
// what the kernel says.
int packets_send(struct packets *q, struct packet *p, struct err *e);

// Would packets_send() take it, whatever the socket says? 0, or RESOURCE_EXHAUSTED.
int packets_room(const struct packets *q, const struct packet *p, struct err *e);

// The socket takes more: sends what waits, as far as it goes. Negative: a packet was lost after it had been accepted, so
// the peer does not know what it should, and the link has to end.
int packets_flush(struct packets *q, struct err *e);

// What to wait for at the socket: UV_READABLE, and UV_WRITABLE while something waits.
int packets_events(const struct packets *q);
