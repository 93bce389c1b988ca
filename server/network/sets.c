// SPDX-License-Identifier: Apache-2.0
// See sets.h.
#include "sets.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "server/base/list.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/policy/network.h"

enum { BUCKETS = 256, SWEEP_MS = 20, SWEEP_ENTRIES = 128 };

struct net_set {
    struct list node; // in its hash bucket
    struct list idle; // if no policy uses it
    struct net_sets *all;
    uint32_t refs;
    uint32_t number;
    uint32_t n;
    uint32_t hash;
    struct net_rule_key *keys; // owned, with the set's number in each
    struct net_rule *values;   // owned
};

struct net_sets {
    uv_loop_t *loop;
    int fd;
    uint32_t last; // the last assigned number
    uint32_t kept, entries;
    struct list idle; // the longest unused first
    uint32_t idle_n;
    struct loop_timer *sweep;
    struct list bucket[BUCKETS];
};

struct net_sets *
net_sets_new(uv_loop_t *loop, int fd)
{
    struct net_sets *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->loop = loop;
    all->fd = fd;
    list_init(&all->idle);
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&all->bucket[i]);
    return all;
}

static void
set_free(struct net_set *s)
{
    if (s->all != NULL)
        s->all->kept--;
    list_remove(&s->node);
    list_remove(&s->idle);
    free(s->keys);
    free(s->values);
    free(s);
}

void
net_sets_free(struct net_sets *all)
{
    if (all == NULL)
        return;
    loop_timer_stop(&all->sweep);
    list_each(it, &all->idle) set_free(list_entry(it, struct net_set, idle));
    for (size_t i = 0; i < BUCKETS; i++) {
        list_each(it, &all->bucket[i])
        {
            struct net_set *s = list_entry(it, struct net_set, node);
            list_remove(&s->node);
            s->all = NULL;
        }
    }
    free(all);
}

// Hashes 32 bits at a time, and mixes each into the upper half. Policies with the same hash are compared as well.
static uint32_t
hash_words(uint32_t h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t mixed = h;
    for (size_t i = 0; i + sizeof(uint32_t) <= n; i += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, p + i, sizeof word);
        mixed = ((uint32_t)(mixed >> 32) ^ (uint32_t)mixed ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (uint32_t)(mixed >> 32);
}

// Hashes the used part of the entries; the rest is zero.
static uint32_t
hash_of(const struct network *n)
{
    _Static_assert(sizeof(struct net_rule_key) % 4 == 0 && sizeof(struct net_ports) % 4 == 0, "");
    uint32_t h = n->entries_n;
    for (uint32_t i = 0; i < n->entries_n; i++) {
        const struct net_rule *v = &n->values[i];
        h = hash_words(h, &n->keys[i], sizeof n->keys[i]);
        h = hash_words(h, v, offsetof(struct net_rule, ports) + v->n * sizeof v->ports[0]);
    }
    return h;
}

static bool
same(const struct net_set *s, const struct network *n, uint32_t hash)
{
    if (s->hash != hash || s->n != n->entries_n)
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->keys[i].prefixlen != n->keys[i].prefixlen ||
            memcmp(s->keys[i].address, n->keys[i].address, sizeof s->keys[i].address) != 0)
            return false;
    return memcmp(s->values, n->values, s->n * sizeof s->values[0]) == 0;
}

static void
take_out(const struct net_sets *all, const struct net_set *s, uint32_t n)
{
    for (uint32_t i = 0; i < n && all->fd >= 0; i++)
        if (bpf_map_delete_elem(all->fd, &s->keys[i]) < 0 && errno != ENOENT) {
            metrics_add(METRIC_RULES_LEFT, 1);
            log_event(LOG_WARNING, "network-rules", "cannot remove a rule: %s", strerror(errno));
        }
}

// Removes up to *left entries of a set from the map, the last first. True: none is left.
static bool
take_some(const struct net_sets *all, struct net_set *s, uint32_t *left)
{
    list_remove(&s->node); // so that it is not found again
    while (s->n > 0 && *left > 0) {
        s->n--;
        s->all->entries--;
        (*left)--;
        if (all->fd >= 0)
            (void)bpf_map_delete_elem(all->fd, &s->keys[s->n]);
    }
    return s->n == 0;
}

// Removes the longest unused sets until only so many are left, or `n` entries were removed. Returns how many entries.
static uint32_t
take_idle(struct net_sets *all, uint32_t keep, uint32_t n)
{
    uint32_t left = n;
    list_each(it, &all->idle)
    {
        struct net_set *s = list_entry(it, struct net_set, idle);
        if (all->idle_n <= keep || !take_some(all, s, &left))
            break;
        all->idle_n--;
        set_free(s);
    }
    return n - left;
}

// Returns 0, or a negative errno; then no entry was written.
static int
write_batch(const struct net_sets *all, const struct net_set *s)
{
    uint32_t n = s->n;
    if (bpf_map_update_batch(all->fd, s->keys, s->values, &n, NULL) == 0)
        return 0;
    int sys = errno;
    take_out(all, s, n < s->n ? n : s->n);
    return -sys;
}

// Writes a set completely or not at all. If the map is full, unused sets are removed early.
static int
write_set(struct net_sets *all, const struct net_set *s, struct err *e)
{
    if (all->fd < 0)
        return 0;
    int sys = write_batch(all, s);
    while (sys == -ENOSPC && take_idle(all, 0, s->n) > 0)
        sys = write_batch(all, s);
    if (sys == 0)
        return 0;
    if (sys == -ENOSPC) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the kernel already holds %d rules",
                        NET_RULE_ENTRIES);
        err_detail(e, "NETWORK_RULES_FULL", "network.outbound",
                   "request fewer, or try again later");
        return r;
    }
    return err_sys(e, -sys, "write network rules");
}

static struct net_set *
set_new(struct net_sets *all, const struct network *n, uint32_t hash)
{
    struct net_set *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    *s = (struct net_set){.all = all, .n = n->entries_n, .hash = hash, .number = ++all->last};
    list_init(&s->node);
    list_init(&s->idle);
    all->kept++;
    s->keys = calloc(s->n, sizeof s->keys[0]);
    s->values = calloc(s->n, sizeof s->values[0]);
    if (s->keys == NULL || s->values == NULL) {
        set_free(s);
        return NULL;
    }
    memcpy(s->values, n->values, s->n * sizeof s->values[0]);
    memcpy(s->keys, n->keys, s->n * sizeof s->keys[0]);
    for (uint32_t i = 0; i < s->n; i++)
        s->keys[i].rule_set = s->number;
    return s;
}

static struct net_set *
find(struct net_sets *all, const struct network *n, uint32_t hash)
{
    list_each(it, &all->bucket[hash % BUCKETS])
    {
        struct net_set *s = list_entry(it, struct net_set, node);
        if (!same(s, n, hash))
            continue;
        if (s->refs == 0) {
            list_remove(&s->idle);
            all->idle_n--;
        }
        return s;
    }
    return NULL;
}

int
net_sets_take(struct net_sets *all, struct network *n, struct err *e)
{
    if (n->entries_n == 0 || n->set != NULL)
        return 0;
    uint32_t hash = hash_of(n);
    struct net_set *s = find(all, n, hash);
    if (s == NULL) {
        s = set_new(all, n, hash);
        if (s == NULL)
            return err_sys(e, ENOMEM, "keep network rules");
        int r = write_set(all, s, e);
        if (r < 0) {
            set_free(s);
            return r;
        }
        list_append(&all->bucket[hash % BUCKETS], &s->node);
        all->entries += s->n;
    }
    s->refs++;
    n->set = s;
    n->set_release = net_set_release;
    return 0;
}

uint32_t
net_set_number(const struct net_set *s)
{
    return s != NULL ? s->number : 0;
}

uint32_t
net_sets_entries(const struct net_sets *all)
{
    return all->entries;
}

uint32_t
net_sets_kept(const struct net_sets *all)
{
    return all->kept;
}

static void
on_sweep(void *cookie)
{
    struct net_sets *all = cookie;
    loop_timer_stop(&all->sweep);
    (void)take_idle(all, NET_SETS_IDLE, SWEEP_ENTRIES);
    if (all->idle_n > NET_SETS_IDLE)
        (void)loop_timer_start(all->loop, &all->sweep, SWEEP_MS, on_sweep, all);
}

void
net_set_release(struct net_set *s)
{
    if (s == NULL)
        return;
    assert(s->refs > 0);
    if (--s->refs > 0)
        return;
    struct net_sets *all = s->all;
    if (all == NULL) {
        set_free(s);
        return;
    }
    list_append(&all->idle, &s->idle);
    all->idle_n++;
    if (all->idle_n > NET_SETS_IDLE && all->sweep == NULL)
        (void)loop_timer_start(all->loop, &all->sweep, SWEEP_MS, on_sweep, all);
}
