// SPDX-License-Identifier: Apache-2.0
// Notes what jobs do in sandboxes (work.h), when they end. Jobs of ProcessService.Run and of batches are not noted: their
// sandboxes end with them. Loop thread only.
#pragma once

#include "work.h"

struct sandboxes;
struct snapshots_box;

// Once, at the start, after telemetry, whose records it reads.
void noted_observe(struct sandboxes *all);

// The work of the layers from this one down, the lowest first. It borrows from the layers. NULL: out of memory.
Stockade__Work__Work *noted_message(struct snapshots_box *b, uint32_t layer, struct arena *a);
