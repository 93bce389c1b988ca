// SPDX-License-Identifier: Apache-2.0
// UDP: one association per socket of a job and flow, each with a connected outbound socket of its own, so that only the
// destination can answer. Answers are sent from the flow's address. Idle associations end after RELAY_UDP_IDLE_MS.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "process.h"

void udp_init(void);

// Prepares a UDP listener: the kernel reports destination addresses, and answers may have any source. False: not such a
// socket.
bool udp_listener_prepare(int fd, bool v6);

// The callback of UDP listeners; uv.data is the struct listener.
void udp_on_listener(uv_poll_t *uv, int status, int events);

// Ends associations that the new policy forbids.
void udp_recheck(struct sandbox *s);

// The sandbox is closed.
void udp_drop(struct sandbox *s);

// Call at every tick. True while there are associations.
bool udp_tick(struct relay *r);
