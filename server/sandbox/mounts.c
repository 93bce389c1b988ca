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

struct mounts *
mounts_read_only(const struct mounts *m)
{
    struct mounts *copy = mounts_new();
    if (copy == NULL)
        return NULL;
    copy->n = m->n;
    for (uint32_t i = 0; i < m->n; i++) {
        copy->mount[i] = m->mount[i];
        copy->mount[i].read_only = true;
    }
    return copy;
}
