// SPDX-License-Identifier: Apache-2.0
// Rule sets in the kernel (map "rules", bpf/net.h), each written once however many sandboxes have it.
//
// A set is known by what is in it. One that nobody has any more is kept for the next that asks for the same, up to
// NET_SETS_IDLE of them; older ones are taken out later, a few entries at a time, never on the way of a request. Numbers
// are not used again. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "../proto/err.h"

struct net_set;
struct net_sets;
struct network;

enum { NET_SETS_IDLE = 64 };

// fd: map "rules", borrowed; -1: nothing is written, and every set has a number all the same. NULL without memory.
struct net_sets *net_sets_new(uv_loop_t *loop, int fd);
// Sets that are still had lose their store.
void net_sets_free(struct net_sets *all);

// Gives n its set, writing it unless the kernel has it. RESOURCE_EXHAUSTED: the map is full. Nothing to do for a policy
// without prefixes.
int net_sets_take(struct net_sets *all, struct network *n, struct err *e);

// What a sandbox's entry names; 0 for NULL.
uint32_t net_set_number(const struct net_set *s);

// By network_unref(). NULL is fine.
void net_set_release(struct net_set *s);

// For tests: sets that are kept, those that somebody has and idle ones.
uint32_t net_sets_kept(const struct net_sets *all);
