// SPDX-License-Identifier: Apache-2.0
// See handout.h.
#include "handout.h"

#include <stdint.h>

#include "stockade.h"

struct front {
    _Alignas(max_align_t) struct arena *arena;
};

void *
hand_out(struct arena *a, size_t bytes)
{
    struct front *f = arena_alloc(a, sizeof *f + bytes);
    if (f == NULL)
        return NULL;
    f->arena = a;
    return f + 1;
}

void
stockade_free(const void *handed_out)
{
    if (handed_out != NULL)
        arena_free(((const struct front *)handed_out - 1)->arena);
}
