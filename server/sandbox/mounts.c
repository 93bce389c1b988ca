// SPDX-License-Identifier: Apache-2.0
// See mounts.h.
#include "mounts.h"

#include <stdlib.h>

struct mounts *
mounts_new(void)
{
    struct mounts *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->refs = 1;
    return m;
}

struct mounts *
mounts_ref(struct mounts *m)
{
    if (m != NULL)
        m->refs++;
    return m;
}

void
mounts_unref(struct mounts *m)
{
    if (m != NULL && --m->refs == 0)
        free(m);
}
