// SPDX-License-Identifier: Apache-2.0
// Packets between the guest and the broker: one message each, with descriptors where guest.proto says so.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest.pb-c.h"

// Of a large variable: it lies behind all small ones, the C library's included, so that those fit into one page. That is
// all that an idle guest has of its own beside its stack; an alignment of a page would spoil it.
#define GUEST_LAST __attribute__((common))

enum { GUEST_PACKET_BYTES_MAX = 192 * 1024, GUEST_PACKET_FDS_MAX = 3 };

struct guest_packet {
    Stockade__Guest__Request *request; // borrowed until guest_packet_done()
    int fds[GUEST_PACKET_FDS_MAX];     // owned, -1 where there is none; CLOEXEC
    int fds_n;
};

// Waits for one. 1: *p is filled. 0: the broker has gone. Negative: what came was cut, not a request, or had too many
// descriptors; those that did come are closed.
int guest_packet_receive(int socket, struct guest_packet *p);

// Closes what is left of the descriptors. The memory is given back to the kernel: what a large packet used, or all of it
// when the next one need not find it there (`keep` false).
void guest_packet_done(struct guest_packet *p, bool keep);

// Sends an event, with a descriptor when fd >= 0. Waits while the broker's queue is full. Negative: it has gone.
int guest_packet_send(int socket, const Stockade__Guest__Event *event, int fd);
