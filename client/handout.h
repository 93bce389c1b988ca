// SPDX-License-Identifier: Apache-2.0
// Returned objects are allocated, with all their strings, from the arena that their message was unpacked into;
// stockade_free() finds the arena in front of the object.
#pragma once

#include <stddef.h>

#include "proto/arena.h"

// Allocates zeroed memory for an object that stockade_free() accepts after the arena was passed on. NULL: beyond the
// maximum.
void *hand_out(struct arena *a, size_t bytes);
