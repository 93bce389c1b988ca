// SPDX-License-Identifier: Apache-2.0
// See results.h.
#include "results.h"

#include <stddef.h>
#include <string.h>

#include "stockade/v1/process_service.pb-c.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "stockade/v1/system_service.pb-c.h"

bool
list_from(void *items, size_t *items_n, size_t size, struct arena *a, ProtobufCMessage **from,
          size_t from_n, invoke_reader *one)
{
    char *all = arena_alloc(a, (from_n + 1) * size);
    for (size_t i = 0; all != NULL && i < from_n; i++)
        if (!one(all + i * size, a, from[i]))
            return false;
    memcpy(items, &all, sizeof all);
    *items_n = from_n;
    return all != NULL;
}

static struct stockade_figure
figure(const Stockade__V1__Figure *from)
{
    if (from == NULL)
        return (struct stockade_figure){0};
    return (struct stockade_figure){
        .value = from->value, .source = (uint32_t)from->source, .scope = (uint32_t)from->scope};
}

static void
bill_from(struct stockade_bill *to, const Stockade__V1__Bill *from)
{
    to->wall_us = figure(from->wall_us);
    to->queue_us = figure(from->queue_us);
    to->setup_us = figure(from->setup_us);
    to->cpu_user_ns = figure(from->cpu_user_ns);
    to->cpu_system_ns = figure(from->cpu_system_ns);
    to->memory_peak_bytes = figure(from->memory_peak_bytes);
    to->faults_minor = figure(from->faults_minor);
    to->faults_major = figure(from->faults_major);
    to->io_read_bytes = figure(from->io_read_bytes);
    to->io_write_bytes = figure(from->io_write_bytes);
    to->io_read_ops = figure(from->io_read_ops);
    to->io_write_ops = figure(from->io_write_ops);
    to->pids_peak = figure(from->pids_peak);
    to->switches_voluntary = figure(from->switches_voluntary);
    to->switches_involuntary = figure(from->switches_involuntary);
    to->throttled_ns = figure(from->throttled_ns);
    to->output_bytes = figure(from->output_bytes);
    to->output_cut_bytes = figure(from->output_cut_bytes);
    to->unknown = from->unknown;
    to->unknown_n = from->n_unknown;
}

static struct stockade_limit_hit
limit_from(const Stockade__V1__LimitHit *from)
{
    return (struct stockade_limit_hit){
        .name = from->name, .value = from->value, .over = from->over, .count = from->count};
}

bool
result_from(struct stockade_result *to, struct arena *a, const Stockade__V1__Result *from)
{
    static const Stockade__V1__Result none = STOCKADE__V1__RESULT__INIT;
    if (from == NULL)
        from = &none;
    *to = (struct stockade_result){.outcome = (uint32_t)from->outcome,
                                   .exit_code = from->exit_code,
                                   .signal = from->signal,
                                   .reason = from->reason};
    if (from->bill != NULL)
        bill_from(&to->bill, from->bill);
    struct stockade_limit_hit *hits = arena_alloc(a, (from->n_limits_also_hit + 1) * sizeof *hits);
    if (hits == NULL)
        return false;
    if (from->limit_hit != NULL)
        hits[to->limits_n++] = limit_from(from->limit_hit);
    for (size_t i = 0; i < from->n_limits_also_hit; i++)
        hits[to->limits_n++] = limit_from(from->limits_also_hit[i]);
    to->limits = hits;
    if (from->record == NULL)
        return true;
    struct stockade_record *record = arena_alloc(a, sizeof *record);
    to->record = record;
    return record != NULL && record_from(record, a, from->record);
}

static struct stockade_limits
limits_from(const Stockade__V1__Limits *from)
{
    if (from == NULL)
        return (struct stockade_limits){0};
    return (struct stockade_limits){
        .memory_bytes = from->memory_bytes,
        .cpu_millis = from->cpu_millis,
        .cpu_weight = from->cpu_weight,
        .cpu_time_ms = from->cpu_time_ms,
        .wall_ms = from->wall_ms,
        .pids = from->pids,
        .files = from->files,
        .file_size_bytes = from->file_size_bytes,
        .disk_bytes = from->disk_bytes,
        .inodes = from->inodes,
        .output_bytes = from->output_bytes,
    };
}

int64_t
time_from(const Google__Protobuf__Timestamp *from)
{
    if (from == NULL || from->seconds < 0 || from->seconds > INT64_MAX / 2000)
        return 0;
    return from->seconds * 1000 + from->nanos / 1000000;
}

static bool
sleep_from(const struct stockade_sleep **out, struct arena *a, const Stockade__V1__Sleep *from)
{
    if (from == NULL)
        return true;
    struct stockade_sleep *to = arena_alloc(a, sizeof *to);
    *out = to;
    if (to == NULL)
        return false;
    *to = (struct stockade_sleep){
        .asleep_ms = time_from(from->sleep_time),
        .awake_ms = time_from(from->wake_time),
        .idle = from->idle,
        .fell_back = from->fell_back,
        .bytes = from->bytes,
        .inodes = from->inodes,
        .processes_ended = from->processes_ended,
        .contexts_ended = from->contexts_ended,
        .operations_ended = from->operations_ended,
        .connections_closed = from->connections_closed,
    };
    return true;
}

bool
sandbox_from(struct stockade_sandbox *to, struct arena *a, const Stockade__V1__Sandbox *from)
{
    static const Stockade__V1__Sandbox none = STOCKADE__V1__SANDBOX__INIT;
    if (from == NULL)
        from = &none;
    *to = (struct stockade_sandbox){
        .id = from->id,
        .name = from->name,
        .template_name = from->template_,
        .state = (uint32_t)from->state,
        .limits = limits_from(from->limits),
        .network = from->network != NULL ? (uint32_t)from->network->mode : 0,
        .created_ms = time_from(from->create_time),
        .expires_ms = time_from(from->expire_time),
        .processes = from->processes,
        .sleep_after_ms = from->sleep_after_ms,
    };
    struct stockade_pair *labels = arena_alloc(a, (from->n_metadata + 1) * sizeof *labels);
    if (labels == NULL)
        return false;
    for (size_t i = 0; i < from->n_metadata; i++)
        labels[i] = (struct stockade_pair){from->metadata[i]->key, from->metadata[i]->value};
    to->labels = labels;
    to->labels_n = from->n_metadata;
    struct stockade_mount *mounts = arena_alloc(a, (from->n_volumes + 1) * sizeof *mounts);
    if (mounts == NULL)
        return false;
    for (size_t i = 0; i < from->n_volumes; i++)
        mounts[i] = (struct stockade_mount){from->volumes[i]->volume, from->volumes[i]->path,
                                            from->volumes[i]->read_only};
    to->mounts = mounts;
    to->mounts_n = from->n_volumes;
    return sleep_from(&to->sleep, a, from->last_sleep) &&
           policy_from(&to->policy, a, from->network);
}

bool
process_from(struct stockade_process *to, struct arena *a, const Stockade__V1__Process *from)
{
    *to = (struct stockade_process){
        .id = from->id,
        .sandbox_id = from->sandbox_id,
        .pid = from->pid,
        .args = from->args,
        .args_n = from->n_args,
        .started_ms = time_from(from->start_time),
        .output_bytes = from->output_bytes,
        .terminal = from->terminal,
    };
    if (from->result == NULL)
        return true;
    struct stockade_result *r = arena_alloc(a, sizeof *r);
    to->result = r;
    return r != NULL && result_from(r, a, from->result);
}

static bool
feature_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Feature *m = (const Stockade__V1__Feature *)from;
    (void)a;
    *(struct stockade_feature *)to = (struct stockade_feature){m->name, m->available, m->detail};
    return true;
}

static bool
template_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Template *m = (const Stockade__V1__Template *)from;
    (void)a;
    *(struct stockade_template *)to = (struct stockade_template){
        .name = m->name,
        .tier = m->tier,
        .limits = limits_from(m->limits),
        .limits_max = limits_from(m->limits_max),
        .pool_size = m->pool_size,
        .pool_ready = m->pool_ready,
        .pool_warm = m->pool_warm,
        .warm_bytes = m->warm_bytes,
        .warm_failed = m->warm_failed,
        .disabled = m->disabled,
        .on_disk = m->on_disk,
    };
    return true;
}

static bool
quota_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__QuotaUse *m = (const Stockade__V1__QuotaUse *)from;
    (void)a;
    *(struct stockade_quota *)to = (struct stockade_quota){
        .name = m->name, .used = m->used, .limit = m->limit, .unlimited = m->unlimited};
    return true;
}

bool
info_from(struct stockade_info *to, struct arena *a, const Stockade__V1__InfoResponse *from)
{
    *to = (struct stockade_info){
        .version = from->version,
        .kernel = from->kernel,
        .cgroups = from->cgroups,
        .nng_version = from->nng_version,
        .tiers = from->tiers,
        .tiers_n = from->n_tiers,
        .degraded = from->degraded,
        .degraded_n = from->n_degraded,
        .listeners = from->listeners,
        .listeners_n = from->n_listeners,
        .sandboxes_own = from->sandboxes_own,
        .sandboxes = from->sandboxes,
        .processes = from->processes,
        .uptime_ms = from->uptime_ms,
        .tenant = from->tenant,
        .weight = from->weight,
    };
    return LIST_FROM(to->quotas, to->quotas_n, a, from->quotas, from->n_quotas, quota_from) &&
           LIST_FROM(to->features, to->features_n, a, from->features, from->n_features,
                     feature_from) &&
           LIST_FROM(to->templates, to->templates_n, a, from->templates, from->n_templates,
                     template_from);
}
