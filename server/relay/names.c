// SPDX-License-Identifier: Apache-2.0
// See names.h. The table is one mapping, of which only used pages are ever touched; two hash tables refer to it.
#include "names.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "address.h"
#include "maps.h"

enum { BUCKETS = 65536 };

static struct {
    struct name *all;   // NET_NAMES
    uint32_t used;      // entries that were ever used
    uint32_t given;     // entries in use
    struct list unused; // released entries
    uint64_t seed;
    struct name *by_text[BUCKETS], *by_index[BUCKETS];
} t;

bool
names_init(void)
{
    list_init(&t.unused);
    void *p = mmap(NULL, NET_NAMES * sizeof(struct name), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || getrandom(&t.seed, sizeof t.seed, 0) != (ssize_t)sizeof t.seed)
        return false;
    t.all = p;
    return true;
}

// FNV-1a with a secret start value: jobs choose names, and must not be able to fill one bucket.
static struct name **
text_bucket(uint32_t slot, const char *text)
{
    uint64_t h = (t.seed ^ slot) * UINT64_C(0x100000001b3);
    for (; *text != '\0'; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return &t.by_text[(h ^ h >> 32) % BUCKETS];
}

static struct name **
index_bucket(uint32_t slot, uint32_t index)
{
    return &t.by_index[(slot * 31 + index) % BUCKETS];
}

struct name *
names_find(const struct sandbox *s, const char *text)
{
    struct name *n = *text_bucket(s->slot, text);
    while (n != NULL && (n->slot != s->slot || strcmp(n->text, text) != 0))
        n = n->next_text;
    return n;
}

struct name *
names_at(const struct sandbox *s, uint32_t index)
{
    struct name *n = *index_bucket(s->slot, index);
    while (n != NULL && (n->slot != s->slot || n->index != index))
        n = n->next_index;
    return n;
}

static bool
publish(const struct sandbox *s, const struct name *n)
{
    struct net_name value = {.generation = s->generation};
    permit_ports(s->permit, n->text, &value);
    if (value.n > 0)
        return maps_name_set(s->relay->names_fd, s->slot, n->index, &value);
    maps_name_remove(s->relay->names_fd, s->slot, n->index);
    return true;
}

static struct name *
take(void)
{
    if (!list_empty(&t.unused)) {
        struct name *n = list_entry(t.unused.next, struct name, node);
        list_remove(&n->node);
        return n;
    }
    return t.used < NET_NAMES ? &t.all[t.used++] : NULL;
}

static void
forget(struct sandbox *s, struct name *n)
{
    maps_name_remove(s->relay->names_fd, s->slot, n->index);
    struct name **at = text_bucket(n->slot, n->text);
    while (*at != n)
        at = &(*at)->next_text;
    *at = n->next_text;
    at = index_bucket(n->slot, n->index);
    while (*at != n)
        at = &(*at)->next_index;
    *at = n->next_index;
    list_remove(&n->node);
    list_append(&t.unused, &n->node);
    s->names_n--;
    t.given--;
}

static bool
forget_idle(struct sandbox *s)
{
    list_each(it, &s->names)
    {
        struct name *n = list_entry(it, struct name, node);
        if (n->users > 0)
            continue;
        forget(s, n);
        return true;
    }
    return false;
}

void
names_touch(struct sandbox *s, struct name *n)
{
    list_remove(&n->node);
    list_append(&s->names, &n->node);
}

void
names_hold(struct sandbox *s, struct name *n)
{
    if (n == NULL)
        return;
    n->users++;
    names_touch(s, n);
}

void
names_release(struct name *n)
{
    if (n != NULL)
        n->users--;
}

struct name *
names_make(struct sandbox *s, const char *text)
{
    struct name *n = names_find(s, text);
    if (n != NULL) {
        names_touch(s, n);
        return n;
    }
    uint32_t index = s->names_last + 1;
    bool full = s->names_n >= NET_NAMES_PER_SLOT || !share_left(s->names_n, t.given, NET_NAMES);
    if (index > NET_SYNTHETIC_V4_MASK || (full && !forget_idle(s)))
        return NULL;
    n = take();
    if (n == NULL)
        return NULL;
    *n = (struct name){.slot = s->slot, .index = index};
    list_init(&n->node);
    (void)snprintf(n->text, sizeof n->text, "%s", text);
    if (!publish(s, n)) {
        list_append(&t.unused, &n->node);
        return NULL;
    }
    s->names_last = index;
    s->names_n++;
    t.given++;
    struct name **bucket = text_bucket(s->slot, text);
    n->next_text = *bucket;
    *bucket = n;
    bucket = index_bucket(s->slot, n->index);
    n->next_index = *bucket;
    *bucket = n;
    list_append(&s->names, &n->node);
    return n;
}

void
names_renew(struct sandbox *s)
{
    list_each(it, &s->names)(void) publish(s, list_entry(it, struct name, node));
}

void
names_drop(struct sandbox *s)
{
    list_each(it, &s->names) forget(s, list_entry(it, struct name, node));
}

uint32_t
names_index(const uint8_t a[16])
{
    static const uint8_t v6[12] = NET_SYNTHETIC_V6_PREFIX;
    uint32_t low = (uint32_t)a[12] << 24 | (uint32_t)a[13] << 16 | (uint32_t)a[14] << 8 | a[15];
    if (address_is_v4(a))
        return (low & ~(uint32_t)NET_SYNTHETIC_V4_MASK) == NET_SYNTHETIC_V4
                   ? low & NET_SYNTHETIC_V4_MASK
                   : 0;
    return memcmp(a, v6, sizeof v6) == 0 ? low : 0;
}

static void
put_u32(uint8_t *out, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (24 - 8 * i));
}

void
names_v4(uint32_t index, uint8_t out[4])
{
    put_u32(out, NET_SYNTHETIC_V4 | index);
}

void
names_v6(uint32_t index, uint8_t out[16])
{
    static const uint8_t v6[12] = NET_SYNTHETIC_V6_PREFIX;
    memcpy(out, v6, sizeof v6);
    put_u32(out + sizeof v6, index);
}
