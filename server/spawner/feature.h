// SPDX-License-Identifier: Apache-2.0
// The list of features that were found at start, for the broker.
#pragma once

#include <stdbool.h>

#include "cgroup.h"
#include "ops.h"

// Adds a line; ignored beyond SPAWN_FEATURES_MAX. weaker: its absence weakens isolation or accounting.
void feature_add(struct spawn_features *f, const char *name, bool available, bool weaker,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

// Probes features of the kernel and the host, besides those of the file tree. proc_fd: the host's /proc.
void feature_probe(struct spawn_features *f, const struct cgroups *cg, int proc_fd);
