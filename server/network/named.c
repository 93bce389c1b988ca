// SPDX-License-Identifier: Apache-2.0
// See named.h. An entry is a prefix with the port ranges that rules have for it. The map contains the entries in use.
#include "named.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "server/base/list.h"
#include "server/policy/rule.h"

enum { BUCKETS = 1024 };

struct range {
    struct net_ports ports;
    uint32_t refs;
};

struct entry {
    struct list node; // in its hash bucket
    uint8_t bits;
    uint8_t address[16];
    uint32_t n, room;
    struct range *range; // owned
};

struct net_named {
    int fd;
    struct list bucket[BUCKETS];
};

struct net_named *
net_named_new(int map_fd)
{
    struct net_named *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->fd = map_fd;
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&all->bucket[i]);
    return all;
}

static void
entry_free(struct entry *t)
{
    list_remove(&t->node);
    free(t->range);
    free(t);
}

void
net_named_free(struct net_named *all)
{
    if (all == NULL)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        list_each(it, &all->bucket[i]) entry_free(list_entry(it, struct entry, node));
    free(all);
}

static struct list *
bucket_of(struct net_named *all, const struct relay_rule *r)
{
    uint32_t h = r->prefix;
    for (size_t i = 0; i < sizeof r->address; i++)
        h = (h ^ r->address[i]) * 0x01000193;
    return &all->bucket[(h ^ h >> 16) % BUCKETS];
}

static struct entry *
find(struct net_named *all, const struct relay_rule *r)
{
    list_each(it, bucket_of(all, r))
    {
        struct entry *t = list_entry(it, struct entry, node);
        if (t->bits == r->prefix && memcmp(t->address, r->address, sizeof t->address) == 0)
            return t;
    }
    return NULL;
}

static struct entry *
find_or_make(struct net_named *all, const struct relay_rule *r)
{
    struct entry *t = find(all, r);
    if (t != NULL)
        return t;
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->bits = r->prefix;
    memcpy(t->address, r->address, sizeof t->address);
    list_append(bucket_of(all, r), &t->node);
    return t;
}

static bool
same_ports(const struct net_ports *a, const struct net_ports *b)
{
    return a->first == b->first && a->last == b->last && a->protocol == b->protocol;
}

// The range of an entry; NULL: it has no such range.
static struct range *
find_range(const struct entry *t, const struct net_ports *p)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (same_ports(&t->range[i].ports, p))
            return &t->range[i];
    return NULL;
}

// Makes the map's value equal to the entry. If there are more ranges than fit, the value means every port.
static int
put(const struct net_named *all, const struct entry *t)
{
    struct net_named_key key = {.prefixlen = t->bits};
    struct net_named_ports value = {.bits = t->bits};
    memcpy(key.address, t->address, sizeof key.address);
    if (all->fd < 0)
        return 0;
    if (t->n == 0)
        return bpf_map_delete_elem(all->fd, &key) < 0 && errno != ENOENT ? -errno : 0;
    for (uint32_t i = 0; t->n <= NET_NAMED_PORTS && i < t->n; i++)
        value.ports[value.n++] = t->range[i].ports;
    return bpf_map_update_elem(all->fd, &key, &value, BPF_ANY) < 0 ? -errno : 0;
}

static int
add_range(const struct net_named *all, struct entry *t, const struct net_ports *p)
{
    struct range *r = find_range(t, p);
    if (r != NULL) {
        r->refs++;
        return 0;
    }
    if (t->n == t->room) {
        uint32_t room = t->room == 0 ? 2 : t->room * 2;
        struct range *more = realloc(t->range, room * sizeof *more);
        if (more == NULL)
            return -ENOMEM;
        t->range = more;
        t->room = room;
    }
    t->range[t->n++] = (struct range){.ports = *p, .refs = 1};
    int rc = put(all, t);
    if (rc < 0)
        t->n--;
    return rc;
}

static void
drop_range(const struct net_named *all, struct entry *t, const struct net_ports *p)
{
    struct range *r = find_range(t, p);
    assert(r != NULL && r->refs > 0);
    if (--r->refs > 0)
        return;
    *r = t->range[--t->n];
    (void)put(all, t); // cannot fail: the entry exists already, or is removed
}

static const struct net_ports every = {.last = UINT16_MAX};

static uint32_t
ranges_of(const struct relay_rule *r)
{
    return r->ports_n != 0 ? r->ports_n : 1;
}

static const struct net_ports *
ports_of(const struct relay_rule *r, uint32_t i)
{
    return r->ports_n != 0 ? &r->ports[i] : &every;
}

// Removes the first `ranges` of a rule.
static void
drop_rule(struct net_named *all, const struct relay_rule *r, uint32_t ranges)
{
    struct entry *t = find(all, r);
    if (t == NULL)
        return;
    for (uint32_t i = 0; i < ranges; i++)
        drop_range(all, t, ports_of(r, i));
    if (t->n == 0)
        entry_free(t);
}

static int
add_rule(struct net_named *all, const struct relay_rule *r)
{
    struct entry *t = find_or_make(all, r);
    if (t == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < ranges_of(r); i++) {
        int rc = add_range(all, t, ports_of(r, i));
        if (rc < 0) {
            drop_rule(all, r, i);
            return rc;
        }
    }
    return 0;
}

int
net_named_add(struct net_named *all, const struct relay_rule *rules, uint32_t n, struct err *e)
{
    for (uint32_t i = 0; i < n; i++) {
        int rc = net_rule_names(&rules[i]) != 0 ? add_rule(all, &rules[i]) : 0;
        if (rc < 0) {
            net_named_drop(all, rules, i);
            return err_sys(e, -rc, "write the addresses that the relay may reach");
        }
    }
    return 0;
}

void
net_named_drop(struct net_named *all, const struct relay_rule *rules, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (net_rule_names(&rules[i]) != 0)
            drop_rule(all, &rules[i], ranges_of(&rules[i]));
}
