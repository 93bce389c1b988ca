// SPDX-License-Identifier: Apache-2.0
// See archives.h.
#include "archives.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "made.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"

#define MS UINT64_C(1000000)

static uint64_t
waits_ns(const struct archive *a, uint64_t now_ns)
{
    return a->since_ns == 0 ? 0 : now_ns - a->since_ns;
}

static uint64_t
bytes_per_s(const struct archive *a, uint64_t now_ns)
{
    const uint64_t ms = (a->waited_ns + waits_ns(a, now_ns)) / MS;
    return ms == 0 ? UINT64_MAX : a->bytes * 1000 / ms;
}

static bool
is_slow(const struct archive *a, uint64_t now_ns)
{
    const uint64_t waits = waits_ns(a, now_ns);
    return waits >= ARCHIVE_IDLE_MS * MS || (a->waited_ns + waits >= ARCHIVE_SLOW_MS * MS &&
                                             bytes_per_s(a, now_ns) < ARCHIVE_SLOW_BYTES_PER_S);
}

// NULL: none is slow.
static struct archive *
slowest(const struct list *archives, uint64_t now_ns)
{
    struct archive *found = NULL;
    for (struct list *it = archives->next; it != archives; it = it->next) {
        struct archive *a = list_entry(it, struct archive, node);
        if (is_slow(a, now_ns) &&
            (found == NULL || bytes_per_s(a, now_ns) < bytes_per_s(found, now_ns)))
            found = a;
    }
    return found;
}

static void
cut(struct archive *a, uint64_t now_ns)
{
    struct err e;
    (void)err_set(&e, ERR_ABORTED,
                  "another caller needed the place of this transfer, which was slow: %" PRIu64
                  " bytes, and %" PRIu64 " s of waiting for them",
                  a->bytes, (a->waited_ns + waits_ns(a, now_ns)) / (1000 * MS));
    err_detail(&e, "TRANSFER_SLOW", a->tenant, "begin it again, over a faster connection");
    metrics_add(METRIC_TRANSFERS_CUT, 1);
    a->cut(a, &e);
}

static int
refuse(struct err *e, const char *tenant, uint32_t n, bool own)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u archives of templates are on their way%s", n,
                    own ? ", the maximum for one caller" : "");
    err_detail(e, "TRANSFERS", tenant, "try again when one of them is complete");
    return r;
}

int
archive_begin(struct made_all *all, const char *tenant, struct archive *a, struct err *e)
{
    struct list *archives = made_archives(all);
    const uint64_t now_ns = uv_hrtime();
    uint32_t n = 0, own = 0;
    uint8_t unused[ID_BYTES];
    list_each(it, archives)
    {
        n++;
        own += strcmp(list_entry(it, struct archive, node)->tenant, tenant) == 0;
    }
    if (own >= ARCHIVES_OF_TENANT)
        return refuse(e, tenant, own, true);
    struct archive *slow = n < ARCHIVES_MAX ? NULL : slowest(archives, now_ns);
    if (slow != NULL)
        cut(slow, now_ns);
    else if (n >= ARCHIVES_MAX)
        return refuse(e, tenant, n, false);
    (void)snprintf(a->tenant, sizeof a->tenant, "%s", tenant);
    id_make(made_node(all), unused, a->id);
    list_append(archives, &a->node);
    return 0;
}

void
archive_waits(struct archive *a)
{
    if (a->since_ns == 0)
        a->since_ns = uv_hrtime();
}

void
archive_moved(struct archive *a, size_t bytes)
{
    a->waited_ns += waits_ns(a, uv_hrtime());
    a->since_ns = 0;
    a->bytes += bytes;
}

struct archive *
archive_find(struct made_all *all, const char *tenant, const char *id)
{
    list_each(it, made_archives(all))
    {
        struct archive *a = list_entry(it, struct archive, node);
        if (a->loads && strcmp(a->id, id) == 0 && strcmp(a->tenant, tenant) == 0)
            return a;
    }
    return NULL;
}
