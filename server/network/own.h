// SPDX-License-Identifier: Apache-2.0
// Map "own" (bpf/net.h): this host's own addresses, kept up to date. Loop thread only.
#pragma once

#include <uv.h>

#include "proto/err.h"

struct net_own;

// Writes the current addresses and follows rtnetlink(7). map_fd: borrowed; -1: nothing is written. Free it with
// net_own_free().
struct net_own *net_own_new(uv_loop_t *loop, int map_fd, struct err *e);
void net_own_free(struct net_own *o);
