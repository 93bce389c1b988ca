// SPDX-License-Identifier: Apache-2.0
// See idtable.h.
#include "idtable.h"

#include <sodium.h>
#include <string.h>

_Static_assert((ID_BUCKETS & (ID_BUCKETS - 1)) == 0, "the mask below wants a power of two");

void
id_make(uint8_t bytes[ID_BYTES], char hex[ID_HEX + 1])
{
    randombytes_buf(bytes, ID_BYTES);
    (void)sodium_bin2hex(hex, ID_HEX + 1, bytes, ID_BYTES);
}

static size_t
bucket_of(const char *id)
{
    size_t h = 0;
    for (int i = 0; i < 8 && id[i] != '\0'; i++)
        h = h * 31 + (unsigned char)id[i];
    return (h ^ h >> 12) & (ID_BUCKETS - 1);
}

void
idtable_add(struct idtable *t, struct idnode *node)
{
    struct idnode **b = &t->bucket[bucket_of(node->id)];
    node->next = *b;
    *b = node;
    t->n++;
}

void
idtable_remove(struct idtable *t, struct idnode *node)
{
    for (struct idnode **p = &t->bucket[bucket_of(node->id)]; *p != NULL; p = &(*p)->next)
        if (*p == node) {
            *p = node->next;
            t->n--;
            return;
        }
}

struct idnode *
idtable_find(const struct idtable *t, const char *id)
{
    for (struct idnode *n = t->bucket[bucket_of(id)]; n != NULL; n = n->next)
        if (strcmp(n->id, id) == 0)
            return n;
    return NULL;
}
