// SPDX-License-Identifier: Apache-2.0
// See idtable.h.
#include "idtable.h"

#include <assert.h>
#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

_Static_assert((ID_BUCKETS & (ID_BUCKETS - 1)) == 0, "the mask below wants a power of two");

static const char node_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

bool
id_node_is_valid(const char *node)
{
    size_t n = strlen(node);
    return n <= ID_NODE_MAX && strspn(node, node_letters) == n;
}

void
id_make(const char *node, uint8_t bytes[ID_BYTES], char text[ID_TEXT_MAX + 1])
{
    char hex[ID_HEX + 1];
    assert(id_node_is_valid(node));
    randombytes_buf(bytes, ID_BYTES);
    (void)sodium_bin2hex(hex, sizeof hex, bytes, ID_BYTES);
    (void)snprintf(text, ID_TEXT_MAX + 1, "%s%s%s", node, node[0] != '\0' ? "-" : "", hex);
}

// Where the hex digits begin. A text that is no id may have no digits there.
static const char *
digits_of(const char *id)
{
    const char *dash = strchr(id, '-');
    return dash != NULL ? dash + 1 : id;
}

bool
id_begins(const char *id, const char *beginning)
{
    size_t n = strlen(beginning);
    return strncmp(id, beginning, n) == 0 || strncmp(digits_of(id), beginning, n) == 0;
}

// Length of the node name in a text that has the form of an id; -1: it has another form.
static int
node_of(const char *text)
{
    const char *digits = digits_of(text);
    size_t n = digits > text ? (size_t)(digits - text) - 1 : 0;
    bool is_id = (digits == text || n > 0) && n <= ID_NODE_MAX && strspn(text, node_letters) >= n &&
                 strlen(digits) == ID_HEX && strspn(digits, "0123456789abcdef") == ID_HEX;
    return is_id ? (int)n : -1;
}

int
id_not_found(const char *what, const char *node, const char *id, struct err *e)
{
    int n = node_of(id);
    if (n < 0 || ((size_t)n == strlen(node) && strncmp(id, node, (size_t)n) == 0)) {
        char reason[sizeof e->reason];
        (void)snprintf(reason, sizeof reason, "%s_UNKNOWN", what);
        for (char *p = reason; *p != '\0'; p++)
            *p = (char)toupper((unsigned char)*p);
        int unknown = err_set(e, ERR_NOT_FOUND, "there is no %s %s", what, id);
        err_detail(e, reason, NULL, NULL);
        return unknown;
    }
    char other[ID_NODE_MAX + 1];
    (void)snprintf(other, sizeof other, "%.*s", n, id);
    int r = err_set(e, ERR_NOT_FOUND, "%s %s belongs to %s%s; this broker %s%s", what, id,
                    n > 0 ? "node " : "a broker without a node name", other,
                    node[0] != '\0' ? "is node " : "has no node name", node);
    err_detail(e, "OTHER_NODE", other, "send the request to the broker that made the id");
    return r;
}

// The last digits: the first bytes are the same in all ids of a node.
static size_t
bucket_of(const char *id)
{
    size_t h = 0;
    size_t n = strlen(id);
    for (size_t i = n > 8 ? n - 8 : 0; i < n; i++)
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
