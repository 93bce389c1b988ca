// SPDX-License-Identifier: Apache-2.0
// Intrusive doubly linked lists: the node is embedded in the object, so adding and removing cannot fail and need no
// search.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/container_of.h"

// A head, or a node in an object. A node that is in no list points to itself.
struct list {
    struct list *prev, *next;
};

static inline void
list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool
list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void
list_append(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

// Removes a node from its list. Does nothing if it is in no list.
static inline void
list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

// The object that contains a node.
#define list_entry container_of

// NOLINTBEGIN(bugprone-macro-parentheses): a new variable cannot stand in them
// Walks a list; the body may remove `it` itself, but no other node.
#define list_each(it, head)                                                                        \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                      \
         it = it##_next, it##_next = it->next)
// NOLINTEND(bugprone-macro-parentheses)
