// SPDX-License-Identifier: Apache-2.0
// See tree_layers.h.
#include "tree_layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io.h"

enum { BYTES_LEAST = 64 * 1024, INODES_LEAST = 64, NUMBERS_FIRST = 64 };

// Pointers into it stay valid while a fork gets its layers.
_Static_assert(TREE_DEPTH + 2 <= NUMBERS_FIRST, "room for all that it inherits");

_Static_assert(TREE_DEPTH *(sizeof "AA/s:" - 1) + sizeof "l0:l1" <= TREE_LOWER_MAX,
               "all of them fit");

struct tree_layers *
tree_layers_new(void)
{
    struct tree_layers *l = calloc(1, sizeof *l);
    struct tree_sealed *sealed = l == NULL ? NULL : calloc(NUMBERS_FIRST + 1, sizeof *sealed);
    if (sealed == NULL) {
        free(l);
        return NULL;
    }
    l->upper_fd = l->copy_fd = l->under_fd = -1;
    l->sealed = sealed;
    l->numbers = NUMBERS_FIRST;
    return l;
}

void
tree_layers_free(struct tree_layers *l)
{
    if (l == NULL)
        return;
    io_close(&l->upper_fd);
    io_close(&l->copy_fd);
    io_close(&l->under_fd);
    free(l->sealed);
    free(l);
}

// Few sandboxes have many.
static bool
grow(struct tree_layers *l)
{
    uint32_t n = 2 * l->numbers;
    n = n > TREE_NUMBERS ? (uint32_t)TREE_NUMBERS : n;
    struct tree_sealed *more =
        n == l->numbers ? NULL : realloc(l->sealed, (n + 1) * sizeof *l->sealed);
    if (more == NULL)
        return false;
    memset(more + l->numbers + 1, 0, (n - l->numbers) * sizeof *more);
    l->sealed = more;
    l->numbers = n;
    return true;
}

uint32_t
tree_layers_take(struct tree_layers *l, uint32_t except)
{
    uint32_t n = 1;
    do {
        for (; n <= l->numbers; n++)
            if (!l->sealed[n].there && n != l->upper && n != except)
                return n;
    } while (grow(l));
    return 0;
}

uint32_t
tree_layers_count(const struct tree_layers *l)
{
    uint32_t count = 0;
    for (uint32_t n = 1; n <= l->numbers; n++)
        count += l->sealed[n].there;
    return count;
}

bool
tree_layers_have(const struct tree_layers *l, uint32_t n)
{
    return n >= 1 && n <= l->numbers && l->sealed[n].there;
}

bool
tree_layers_need(const struct tree_layers *l, uint32_t n)
{
    bool yes = l->top == n;
    for (uint32_t i = 1; i <= l->numbers && !yes; i++)
        yes = l->sealed[i].there && l->sealed[i].below == n;
    return yes;
}

uint32_t
tree_layers_chain(const struct tree_layers *l, uint32_t top, uint32_t out[TREE_DEPTH])
{
    uint32_t n = 0;
    for (uint32_t at = top; at != 0 && n < TREE_DEPTH; at = l->sealed[at].below)
        out[n++] = at;
    return n;
}

int
tree_layers_may_add(const struct tree_layers *l, uint32_t on, struct err *e)
{
    uint32_t chain[TREE_DEPTH];
    int r = 0;
    if (tree_layers_count(l) >= TREE_LAYERS_OF_SANDBOX) {
        r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox has %d layers already, its maximum",
                    TREE_LAYERS_OF_SANDBOX);
        err_detail(e, "LAYERS", "layers", "delete snapshots");
    } else if (tree_layers_chain(l, on, chain) >= TREE_DEPTH) {
        r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%d layers lie on each other already, the maximum",
                    TREE_DEPTH);
        err_detail(e, "LAYERS", "layers", "restore an early snapshot, or try again later");
    }
    return r;
}

uint32_t
tree_layers_mount_points(const struct tree_layers *l)
{
    return 4 * (tree_layers_count(l) + 3);
}

void
tree_layers_mount_point(uint32_t n, char out[TREE_MOUNT_POINT])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    enum { DIGITS = sizeof digits - 1, CAPITALS = 26 };
    _Static_assert(TREE_NUMBERS < DIGITS * CAPITALS, "two characters are enough");
    // capital letters first: no other folder of the disk has such a name
    out[0] = (char)('A' + n / DIGITS % CAPITALS);
    out[1] = digits[n % DIGITS];
    out[2] = '\0';
}

char
tree_layers_folder(uint32_t part)
{
    if (part == 0)
        return 's';
    return (char)('a' + part);
}

static size_t
lower_one(uint32_t number, uint32_t part, char *out)
{
    tree_layers_mount_point(number, out);
    const char rest[] = {'/', tree_layers_folder(part), ':', '\0'};
    memcpy(out + 2, rest, sizeof rest);
    return 2 + sizeof rest - 1;
}

void
tree_layers_lower(const struct tree_layers *l, uint32_t top, uint32_t part,
                  char out[TREE_LOWER_MAX])
{
    uint32_t chain[TREE_DEPTH];
    uint32_t n = tree_layers_chain(l, top, chain);
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++)
        at += lower_one(chain[i], part, out + at);
    if (part == 0)
        (void)snprintf(out + at, TREE_LOWER_MAX - at, "l0:l1");
    else
        (void)snprintf(out + at, TREE_LOWER_MAX - at, "b%u", part);
}

static void
sum(const struct tree_layers *l, uint64_t *bytes, uint64_t *inodes)
{
    *bytes = *inodes = 0;
    for (uint32_t n = 1; n <= l->numbers; n++) {
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
