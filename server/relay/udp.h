// SPDX-License-Identifier: Apache-2.0
// UDP: one association per socket of a job and flow, each with an outbound socket of its own, connected, so that nobody
// but the destination can answer. Answers go back from the flow's address. Idle ones end after RELAY_UDP_IDLE_MS.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "process.h"

void udp_init(void);

// Prepares a UDP listener: destination addresses are told, and any may be answered from. False: it is no such socket.
bool udp_listener_prepare(int fd, bool v6);

// The callback of UDP listeners; uv.data is the struct listener.
void udp_on_listener(uv_poll_t *uv, int status, int events);

// A datagram to a job, from a flow's address. Lost when the socket is full, as datagrams are.
void udp_reply(const struct listener *l, const struct sockaddr_storage *to, const uint8_t local[16],
               const void *bytes, size_t n);

// Cuts what another policy forbids.
void udp_recheck(struct sandbox *s);

// The sandbox is closed.
void udp_drop(struct sandbox *s);

// Every tick. True while there are associations.
bool udp_tick(struct relay *r);
