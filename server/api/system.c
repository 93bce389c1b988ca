// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SystemService: the features of this broker and its host.
#include "api.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "server/config/config.h"
#include "server/sandbox/job.h"
#include "server/base/metrics.h"
#include "server/sandbox/pool.h"
#include "server/rpc/rpc.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"
#include "server/store/store.h"
#include "server/volume/volumes.h"
#include "convert.h"
#include "stockade/v1/system_service.pb-c.h"

static const char *
degraded_line(struct arena *a, const struct spawn_feature *f)
{
    char line[sizeof f->name + sizeof f->detail + 4];
    int n = snprintf(line, sizeof line, "%s: %s", f->name, f->detail);
    return arena_copy(a, line, (size_t)n);
}

static bool
add_features(struct arena *a, const struct spawn_features *f, Stockade__V1__InfoResponse *m)
{
    m->features = arena_alloc(a, sizeof(void *) * SPAWN_FEATURES_MAX);
    m->degraded = arena_alloc(a, sizeof(void *) * (SPAWN_FEATURES_MAX + METRICS_N + 1));
    if (m->features == NULL || m->degraded == NULL)
        return false;
    for (uint32_t i = 0; i < f->n && i < SPAWN_FEATURES_MAX; i++) {
        const struct spawn_feature *from = &f->feature[i];
        Stockade__V1__Feature *to = wire_make(a, &stockade__v1__feature__descriptor);
        if (to == NULL)
            return false;
        to->name = from->name;
        to->available = from->available != 0;
        to->detail = from->detail;
        m->features[m->n_features++] = to;
        if (from->degraded == 0)
            continue;
        const char *line = degraded_line(a, from);
        if (line == NULL)
            return false;
        m->degraded[m->n_degraded++] = line;
    }
    return true;
}

// Counters that should stay 0 (base/metrics_table.h); adds those that did not.
static bool
add_losses(struct arena *a, Stockade__V1__InfoResponse *m)
{
    for (uint32_t i = 0; i < METRICS_N; i++) {
        const struct metric_row *row = metrics_row((enum metric)i);
        uint64_t n = row->sentence != NULL ? metrics_sum((enum metric)i) : 0;
        char line[192];
        if (n == 0)
            continue;
        int length = snprintf(line, sizeof line, "%s: %" PRIu64 " %s", row->part, n, row->sentence);
        const char *copy = arena_copy(a, line, (size_t)length);
        if (copy == NULL)
            return false;
        m->degraded[m->n_degraded++] = copy;
    }
    return true;
}

static bool
add_trouble(struct arena *a, const struct access *access, Stockade__V1__InfoResponse *m)
{
    char line[512];
    if (!access_trouble(access, line, sizeof line))
        return true;
    const char *copy = arena_copy(a, line, strlen(line));
    if (copy != NULL)
        m->degraded[m->n_degraded++] = copy;
    return copy != NULL;
}

static bool
add_templates(struct arena *a, const struct server *s, Stockade__V1__InfoResponse *m)
{
    m->templates = arena_alloc(a, sizeof(void *) * TEMPLATES_MAX);
    if (m->templates == NULL)
        return false;
    for (uint32_t i = 0; i < s->config->sandbox.templates_n; i++) {
        const struct template *from = &s->config->sandbox.template[i];
        if (from->removed)
            continue;
        Stockade__V1__Template *to = wire_make(a, &stockade__v1__template__descriptor);
        if (to == NULL)
            return false;
        to->name = from->name;
        to->tier = "process";
        to->limits = wire_make(a, &stockade__v1__limits__descriptor);
        to->limits_max = wire_make(a, &stockade__v1__limits__descriptor);
        if (to->limits == NULL || to->limits_max == NULL)
            return false;
        limits_to_message(&from->limits, to->limits);
        limits_to_message(&from->limits_max, to->limits_max);
        to->pool_size = from->pool;
        to->pool_ready = pool_ready(s->pool, from);
        struct pool_warmth warmth;
        pool_warmth(s->pool, from, &warmth);
        to->pool_warm = warmth.n;
        to->warm_bytes = warmth.bytes_each;
        to->warm_failed = (char *)(uintptr_t)warmth.failed;
        to->disabled = (char *)(uintptr_t)from->disabled;
        to->on_disk = from->on_disk;
        m->templates[m->n_templates++] = to;
    }
    return true;
}

static uint64_t
used_of(const struct server *s, const char *tenant, enum quota which)
{
    const struct tenant *t = tenant_find(s->tenants, tenant);
    struct volumes_held volumes = {0};
    uint32_t records = 0;
    if (quota_table[which].account != LEDGER_ACCOUNTS)
        return t != NULL ? tenant_held(t, quota_table[which].account) : 0;
    if (which == QUOTA_JOBS_PER_MINUTE)
        return t != NULL ? tenant_jobs_begun(t, uv_hrtime()) : 0;
    if (which == QUOTA_KEPT_BYTES)
        return s->store != NULL && t != NULL ? store_held(s->store, t, &records) : 0;
    volumes_held(s->volumes, tenant, &volumes);
    return which == QUOTA_VOLUMES ? volumes.n : volumes.bytes;
}

static bool
add_quotas(struct arena *a, const struct server *s, const char *tenant,
           Stockade__V1__InfoResponse *m)
{
    m->quotas = arena_alloc(a, sizeof(void *) * QUOTAS_N);
    m->tenant = (char *)(uintptr_t)tenant;
    m->weight = quota_weight(s->tenants->quotas, tenant);
    for (int i = 0; m->quotas != NULL && i < QUOTAS_N; i++) {
        const uint64_t most = quota_of(s->tenants->quotas, tenant, (enum quota)i);
        Stockade__V1__QuotaUse *to = wire_make(a, &stockade__v1__quota_use__descriptor);
        if (to == NULL)
            return false;
        to->name = quota_table[i].name;
        to->used = used_of(s, tenant, (enum quota)i);
        to->unlimited = most == UINT64_MAX;
        to->limit = to->unlimited ? 0 : most;
        m->quotas[m->n_quotas++] = to;
    }
    return m->quotas != NULL;
}

static bool
add_listeners(struct arena *a, const struct server *s, Stockade__V1__InfoResponse *m)
{
    m->listeners = arena_alloc(a, sizeof(void *) * (s->listeners_n + 1));
    for (uint32_t i = 0; m->listeners != NULL && i < s->listeners_n; i++)
        m->listeners[m->n_listeners++] = s->listeners[i];
    return m->listeners != NULL;
}

static void
info(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    static const char *tiers[] = {"process"};
    const char *whose = ((const Stockade__V1__InfoRequest *)req)->tenant;
    const char *tenant = whose[0] != '\0' ? whose : call_tenant(c);
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__InfoResponse m = STOCKADE__V1__INFO_RESPONSE__INIT;
    if (a == NULL || !add_features(a, s->features, &m) || !add_losses(a, &m) ||
        !add_trouble(a, s->access, &m) || !add_templates(a, s, &m) || !add_listeners(a, s, &m) ||
        !add_quotas(a, s, tenant, &m)) {
        convert_no_memory(c);
        return;
    }
    struct utsname name;
    m.kernel = uname(&name) == 0 ? name.release : "";
    m.version = STOCKADE_VERSION;
    m.cgroups = s->features->hybrid != 0 ? "hybrid" : "v2";
    m.tiers = tiers;
    m.n_tiers = 1;
    m.sandboxes_own = sandboxes_count_of(s->sandboxes, tenant);
    m.sandboxes = sandboxes_count(s->sandboxes);
    m.processes = jobs_running(s->jobs);
    m.uptime_ms = (uv_hrtime() - s->started_ns) / 1000000;
    m.nng_version = rpc_nng_version();
    call_reply(c, &m.base);
}

const struct call_method system_methods[] = {
    {"/stockade.v1.SystemService/Info", &stockade__v1__info_request__descriptor,
     &stockade__v1__info_response__descriptor, info},
    {0},
};
