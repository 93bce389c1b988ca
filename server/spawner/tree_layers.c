// SPDX-License-Identifier: Apache-2.0
// See tree_layers.h.
#include "tree_layers.h"

#include <stdio.h>
#include <stdlib.h>

#include "io.h"

enum { BYTES_LEAST = 64 * 1024, INODES_LEAST = 64 };

_Static_assert(TREE_LAYERS_OF_SANDBOX *(sizeof "01/s:" - 1) + sizeof "l0:l1" <= TREE_LOWER_MAX,
               "all of them fit");

struct tree_layers *
tree_layers_new(void)
{
    struct tree_layers *l = calloc(1, sizeof *l);
    if (l != NULL)
        l->upper_fd = l->copy_fd = -1;
    return l;
}

void
tree_layers_free(struct tree_layers *l)
{
    if (l == NULL)
        return;
    io_close(&l->upper_fd);
    io_close(&l->copy_fd);
    free(l);
}

uint32_t
tree_layers_take(const struct tree_layers *l, uint32_t except)
{
    for (uint32_t n = 1; n <= TREE_NUMBERS; n++)
        if (!l->sealed[n].there && n != l->upper && n != except)
            return n;
    return 0;
}

uint32_t
tree_layers_count(const struct tree_layers *l)
{
    uint32_t count = 0;
    for (uint32_t n = 1; n <= TREE_NUMBERS; n++)
        count += l->sealed[n].there;
    return count;
}

bool
tree_layers_have(const struct tree_layers *l, uint32_t n)
{
    return n >= 1 && n <= TREE_NUMBERS && l->sealed[n].there;
}

bool
tree_layers_need(const struct tree_layers *l, uint32_t n)
{
    bool yes = l->top == n;
    for (uint32_t i = 1; i <= TREE_NUMBERS && !yes; i++)
        yes = l->sealed[i].there && l->sealed[i].below == n;
    return yes;
}

uint32_t
tree_layers_chain(const struct tree_layers *l, uint32_t top, uint32_t out[TREE_LAYERS_OF_SANDBOX])
{
    uint32_t n = 0;
    for (uint32_t at = top; at != 0 && n < TREE_LAYERS_OF_SANDBOX; at = l->sealed[at].below)
        out[n++] = at;
    return n;
}

void
tree_layers_place(uint32_t n, char out[TREE_PLACE])
{
    (void)snprintf(out, TREE_PLACE, "%02x", n & 0xff);
}

char
tree_layers_folder(uint32_t part)
{
    if (part == 0)
        return 's';
    return (char)('a' + part);
}

void
tree_layers_lower(const struct tree_layers *l, uint32_t top, uint32_t part,
                  char out[TREE_LOWER_MAX])
{
    uint32_t chain[TREE_LAYERS_OF_SANDBOX];
    uint32_t n = tree_layers_chain(l, top, chain);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, TREE_LOWER_MAX - at, "%02x/%c:", chain[i],
                               tree_layers_folder(part));
    if (part == 0)
        (void)snprintf(out + at, TREE_LOWER_MAX - at, "l0:l1");
    else
        (void)snprintf(out + at, TREE_LOWER_MAX - at, "b%u", part);
}

static void
sum(const struct tree_layers *l, uint64_t *bytes, uint64_t *inodes)
{
    *bytes = *inodes = 0;
    for (uint32_t n = 1; n <= TREE_NUMBERS; n++) {
        if (!l->sealed[n].there)
            continue;
        *bytes += l->sealed[n].bytes;
        *inodes += l->sealed[n].inodes;
    }
}

void
tree_layers_room(const struct tree_layers *l, uint64_t disk_bytes, uint32_t inodes,
                 uint64_t *bytes_left, uint32_t *inodes_left)
{
    uint64_t used_bytes, used_inodes;
    sum(l, &used_bytes, &used_inodes);
    *bytes_left =
        disk_bytes > used_bytes + BYTES_LEAST ? disk_bytes - used_bytes : (uint64_t)BYTES_LEAST;
    *inodes_left = inodes > used_inodes + INODES_LEAST ? (uint32_t)(inodes - used_inodes)
                                                       : (uint32_t)INODES_LEAST;
}

bool
tree_layers_fit(const struct tree_layers *l, uint64_t disk_bytes, uint32_t inodes)
{
    uint64_t used_bytes, used_inodes;
    sum(l, &used_bytes, &used_inodes);
    return used_bytes < disk_bytes && used_inodes < inodes;
}
