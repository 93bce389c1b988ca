// SPDX-License-Identifier: Apache-2.0
// The BPF programs as the spawner holds them: descriptors that the loader made. Nothing here parses or links libbpf.
#pragma once

#include "spawner.h"

// Starts the loader, waits for its report, keeps the links for as long as this process lives, and adds what was found to
// the features. Never fails: what is absent is told. Descriptors of the maps are in s->programs.map afterwards, and the
// bits of what is loaded in f->bpf.
void programs_load(struct spawner *s, struct spawn_features *f);

// WATCH: the syscall tracepoint.
void programs_watch(struct spawner *s, struct slot *none, const struct spawn_request *q,
                    struct answer *a);
// The process that attaches it has ended.
void programs_attached(struct spawner *s);
