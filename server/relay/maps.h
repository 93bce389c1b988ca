// SPDX-License-Identifier: Apache-2.0
// The two BPF maps of the relay (bpf/net.h): destinations of flows, and names with addresses. It uses bpf(2) on
// inherited descriptors; it cannot create maps or load programs.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/net.h"

// The destination of flow `number` of a slot. False: it does not exist, or belongs to another sandbox that had the
// slot.
bool maps_flow(int fd, uint32_t slot, uint32_t generation, uint32_t number, struct net_flow *out);

// False: the map is full.
bool maps_name_set(int fd, uint32_t slot, uint32_t index, const struct net_name *name);
void maps_name_remove(int fd, uint32_t slot, uint32_t index);
