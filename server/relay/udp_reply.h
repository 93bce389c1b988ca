// SPDX-License-Identifier: Apache-2.0
// Sends a datagram to a job from the address that the job sent its own datagram to. For udp.c and dns.c.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "process.h"

// Sends a datagram to a job from a flow's address. It is lost if the socket is full.
void udp_reply(const struct listener *l, const struct sockaddr_storage *to, const uint8_t local[16],
               const void *bytes, size_t n);
