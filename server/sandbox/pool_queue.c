// SPDX-License-Identifier: Apache-2.0
// See pool_queue.h.
#include "pool_queue.h"

#include <errno.h>
#include <stdlib.h>

enum { STRIDE = 1000000 }; // of weight 1

static struct pool_line *
line_of(struct list *node)
{
    return list_entry(node, struct pool_line, node);
}

static struct pool_entry *
entry_of(struct list *node)
{
    return list_entry(node, struct pool_entry, node);
}

static struct pool_line *
find(const struct pool_queue *q, const void *who)
{
    for (struct list *it = q->lines.next; it != &q->lines; it = it->next)
        if (line_of(it)->who == who)
            return line_of(it);
    return NULL;
}

void
pool_queue_init(struct pool_queue *q)
{
    list_init(&q->lines);
    q->n = 0;
    q->at = 0;
}

// Behind those of the same turn.
static void
insert(struct pool_queue *q, struct pool_line *line)
{
    struct list *before = &q->lines;
    while (before->prev != &q->lines && line_of(before->prev)->at > line->at)
        before = before->prev;
    list_append(before, &line->node); // before it
}

static uint64_t
stride(uint32_t weight)
{
    return STRIDE / weight;
}

int
pool_queue_add(struct pool_queue *q, struct pool_entry *p, struct pool_owner owner)
{
    struct pool_line *line = find(q, owner.who);
    if (line == NULL) {
        line = calloc(1, sizeof *line);
        if (line == NULL)
            return -ENOMEM;
        line->who = owner.who;
        list_init(&line->entries);
        line->at = q->at + stride(owner.weight);
        insert(q, line);
    }
    line->weight = owner.weight;
    p->line = line;
    list_append(&line->entries, &p->node);
    line->n++;
    q->n++;
    return 0;
}

void
pool_queue_remove(struct pool_queue *q, struct pool_entry *p)
{
    struct pool_line *line = p->line;
    if (line == NULL)
        return;
    p->line = NULL;
    list_remove(&p->node);
    q->n--;
    if (--line->n > 0)
        return;
    list_remove(&line->node);
    free(line);
}

struct pool_entry *
pool_queue_take(struct pool_queue *q)
{
    return pool_queue_take_if(q, NULL, NULL);
}

struct pool_entry *
pool_queue_take_if(struct pool_queue *q, bool (*may)(void *cookie, struct pool_entry *p),
                   void *cookie)
{
    list_each(it, &q->lines)
    {
        struct pool_line *line = line_of(it);
        struct pool_entry *p = entry_of(line->entries.next);
        if (may != NULL && !may(cookie, p))
            continue;
        q->at = line->at > q->at ? line->at : q->at; // one that could not be served may be behind
        line->at = q->at + stride(line->weight);
        list_remove(&line->node);
        insert(q, line);
        pool_queue_remove(q, p);
        return p;
    }
    return NULL;
}

uint32_t
pool_queue_of(const struct pool_queue *q, const void *who)
{
    const struct pool_line *line = find(q, who);
    return line != NULL ? line->n : 0;
}

struct pool_line *
pool_queue_longest(const struct pool_queue *q)
{
    struct pool_line *longest = NULL;
    for (struct list *it = q->lines.next; it != &q->lines; it = it->next)
        if (longest == NULL || line_of(it)->n > longest->n)
            longest = line_of(it);
    return longest;
}

struct pool_entry *
pool_line_last(const struct pool_line *line)
{
    return entry_of(line->entries.prev);
}

bool
pool_queue_each_first(struct pool_queue *q, bool (*fn)(void *cookie, struct pool_entry *p),
                      void *cookie)
{
    list_each(it, &q->lines)
    {
        if (fn(cookie, entry_of(line_of(it)->entries.next)))
            return true;
    }
    return false;
}
