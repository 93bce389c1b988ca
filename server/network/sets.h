// SPDX-License-Identifier: Apache-2.0
// Rule sets in the kernel (map "rules", bpf/net.h); each is written once, however many sandboxes use it.
//
// A set is identified by its contents. An unused set is kept for the next request with the same rules, up to
// NET_SETS_IDLE sets; older ones are removed later, a few entries at a time, never during a request. Numbers are not
// reused. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "proto/err.h"

struct net_set;
struct net_sets;
struct network;

enum { NET_SETS_IDLE = 64 };

// Creates it. fd: map "rules", borrowed; -1: nothing is written, and every set has a number all the same. NULL: out of
// memory.
struct net_sets *net_sets_new(uv_loop_t *loop, int fd);
// Frees it; sets that are still in use lose their storage.
void net_sets_free(struct net_sets *all);

// Assigns n its set, and writes the set unless the kernel has it. RESOURCE_EXHAUSTED: the map is full. Does nothing for
// a policy without prefixes.
int net_sets_take(struct net_sets *all, struct network *n, struct err *e);

// The number of the set for a sandbox's entry; 0 for NULL.
uint32_t net_set_number(const struct net_set *s);

// Called by network_unref(). Accepts NULL.
void net_set_release(struct net_set *s);

// For tests: number of sets, used and idle ones.
uint32_t net_sets_kept(const struct net_sets *all);

// Number of entries of all sets in the map.
uint32_t net_sets_entries(const struct net_sets *all);
