// SPDX-License-Identifier: Apache-2.0
// The two BPF maps that the relay holds (bpf/net.h): where a flow goes, which names have an address. bpf(2) on descriptors
// that it was given; it may make no map and load no program.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../../bpf/net.h"

// Where flow `number` of the slot goes. False: there is no such flow, or it is of another sandbox that had the slot.
bool maps_flow(int fd, uint32_t slot, uint32_t generation, uint32_t number, struct net_flow *out);

// False: the map is full.
bool maps_name_set(int fd, uint32_t slot, uint32_t index, const struct net_name *name);
void maps_name_remove(int fd, uint32_t slot, uint32_t index);
