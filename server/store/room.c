// SPDX-License-Identifier: Apache-2.0
// See store.h: what a tenant keeps, and whether there is room for more.
#include <string.h>
#include <sys/statvfs.h>

#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "private.h"

bool
store_counts_to(const struct stored *r, const struct tenant *t)
{
    return r->tenant == t && (r->pending || !r->dropped);
}

// Bytes and number of the records of a tenant. Each layer counts once.
uint64_t
store_held(struct store *s, const struct tenant *t, uint32_t *records)
{
    uint64_t bytes = 0;
    const uint64_t sum = ++s->sums;
    *records = 0;
    list_each(it, &s->records)
    {
        const struct stored *r = list_entry(it, struct stored, node);
        if (!store_counts_to(r, t))
            continue;
        for (uint32_t i = 0; i < r->layers_n; i++) {
            bytes += r->layer[i]->counted != sum ? r->layer[i]->bytes : 0;
            r->layer[i]->counted = sum;
        }
        ++*records;
    }
    return bytes;
}

int
store_refuse_bytes(struct store *s, const struct tenant *t, uint64_t more, struct err *e)
{
    uint32_t records = 0;
    const uint64_t held = store_held(s, t, &records);
    return quota_refuse(&(struct quota_refusal){QUOTA_KEPT_BYTES, t->name, held, more,
                                                tenant_quota(t, QUOTA_KEPT_BYTES)},
                        e);
}

int
store_has_room(struct store *s, const char *tenant, uint64_t bytes, struct err *e)
{
    uint32_t records = 0;
    const struct tenant *t = tenant_find(s->srv->tenants, tenant);
    if (t != NULL && store_held(s, t, &records) + bytes > tenant_quota(t, QUOTA_KEPT_BYTES))
        return store_refuse_bytes(s, t, bytes, e);
    return store_has_disk(s, bytes, e);
}

int
store_has_disk(const struct store *s, uint64_t bytes, struct err *e)
{
    struct statvfs fs;
    if (statvfs(s->state_dir, &fs) < 0 || fs.f_bavail * (uint64_t)fs.f_frsize >= bytes)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "%llu MiB are to be kept, and %llu MiB are free in %s: No space left on device",
                    (unsigned long long)(bytes >> 20),
                    (unsigned long long)(fs.f_bavail * (uint64_t)fs.f_frsize >> 20), s->state_dir);
    err_detail(e, "DISK_FULL", "state_dir",
               "free some space on the disk of the state directory, or delete kept snapshots");
    return r;
}
