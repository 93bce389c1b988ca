// SPDX-License-Identifier: Apache-2.0
// Packets between the guest and the broker: one message each, with descriptors as described in guest.proto.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest.pb-c.h"

// Attribute of a large variable: places it behind all small ones, including those of the C library, so that the small
// ones fit into one page. That page is all private memory of an idle guest besides its stack; page alignment would
// spoil it.
#define GUEST_LAST __attribute__((common))

enum { GUEST_PACKET_BYTES_MAX = 192 * 1024, GUEST_PACKET_FDS_MAX = 4 };

struct guest_packet {
    Stockade__Guest__Request *request; // borrowed until guest_packet_done()
    int fds[GUEST_PACKET_FDS_MAX];     // owned, -1: none; CLOEXEC
    int fds_n;
};

// Waits for a packet. 1: *p is filled. 0: the broker has gone. Negative: the packet was truncated, not a request, or
// had too many descriptors; its descriptors are closed.
int guest_packet_receive(int socket, struct guest_packet *p);

// Closes the remaining descriptors, and returns the memory of a large packet to the kernel, or all of it (`keep`
// false).
void guest_packet_done(struct guest_packet *p, bool keep);

// Sends an event, with a descriptor if fd >= 0. Waits while the broker's queue is full. Negative: the broker has gone.
int guest_packet_send(int socket, const Stockade__Guest__Event *event, int fd);
