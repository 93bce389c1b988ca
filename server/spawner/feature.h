// SPDX-License-Identifier: Apache-2.0
// The list of what was found at start, told to the broker.
#pragma once

#include <stdbool.h>

#include "cgroup.h"
#include "ops.h"

// Adds a line; beyond SPAWN_FEATURES_MAX it is left out. weaker: its absence weakens isolation or accounting.
void feature_add(struct spawn_features *f, const char *name, bool available, bool weaker,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

// Probes what the kernel and the host offer beside the tree's own features. proc_fd: the host's /proc.
void feature_probe(struct spawn_features *f, const struct cgroups *cg, int proc_fd);
