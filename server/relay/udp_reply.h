// SPDX-License-Identifier: Apache-2.0
// A datagram back to a job, as if it came from where the job sent its own: for udp.c and for dns.c.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "process.h"

// A datagram to a job, from a flow's address. Lost when the socket is full, as datagrams are.
void udp_reply(const struct listener *l, const struct sockaddr_storage *to, const uint8_t local[16],
               const void *bytes, size_t n);
