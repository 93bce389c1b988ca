// SPDX-License-Identifier: Apache-2.0
// What the library hands out lives, with every string that it points to, in the arena that its message was unpacked
// into; stockade_free() finds that arena in front of it.
#pragma once

#include <stddef.h>

#include "../proto/arena.h"

// Zeroed memory from the arena that can be given to stockade_free() once the arena is left to it. NULL beyond the cap.
void *hand_out(struct arena *a, size_t bytes);
