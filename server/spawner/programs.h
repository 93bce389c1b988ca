// SPDX-License-Identifier: Apache-2.0
// The spawner's side of the BPF programs: descriptors that the loader made. Nothing here parses or links libbpf.
#pragma once

#include "spawner.h"

// Starts the loader, waits for its report, keeps the links as long as this process runs, and adds the results to the
// features. Never fails: a missing part is reported as a feature. Afterwards the descriptors of the maps are in
// s->programs.map, and the bits of what was loaded are in f->bpf.
void programs_load(struct spawner *s, struct spawn_features *f);

// WATCH: the syscall tracepoint.
void programs_watch(struct spawner *s, struct slot *none, const struct spawn_request *q,
                    struct answer *a);
// The process that attaches it has ended.
void programs_attached(struct spawner *s);
