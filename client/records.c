// SPDX-License-Identifier: Apache-2.0
// Records of jobs, and resource use of sandboxes (stockade.h).
#include <stddef.h>

#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/telemetry_service.pb-c.h"

#define SERVICE "/stockade.v1.TelemetryService/"

static struct stockade_network_use
network_from(const Stockade__V1__NetworkUse *m)
{
    return (struct stockade_network_use){
        .out_bytes = m->out_bytes,
        .out_packets = m->out_packets,
        .in_bytes = m->in_bytes,
        .in_packets = m->in_packets,
        .connects_allowed = m->connects_allowed,
        .connects_denied = m->connects_denied,
        .queries = m->queries,
        .shared = m->shared,
    };
}

static struct stockade_witnesses
witnesses_from(const Stockade__V1__TrafficWitnesses *m)
{
    static const Stockade__V1__KernelTraffic no_kernel = STOCKADE__V1__KERNEL_TRAFFIC__INIT;
    static const Stockade__V1__RelayTraffic no_relay = STOCKADE__V1__RELAY_TRAFFIC__INIT;
    const Stockade__V1__KernelTraffic *k = m->kernel != NULL ? m->kernel : &no_kernel;
    const Stockade__V1__RelayTraffic *r = m->relay != NULL ? m->relay : &no_relay;
    return (struct stockade_witnesses){
        .agreement = (uint32_t)m->agreement,
        .reason = m->reason,
        .kernel = {.connections = k->connections,
                   .resets = k->resets,
                   .tcp_sent_bytes = k->tcp_sent_bytes,
                   .tcp_acknowledged_bytes = k->tcp_acknowledged_bytes,
                   .tcp_received_bytes = k->tcp_received_bytes,
                   .udp_sent_bytes = k->udp_sent_bytes,
                   .udp_received_bytes = k->udp_received_bytes},
        .relay = {.connections = r->connections,
                  .reported = r->reported,
                  .tcp_out_bytes = r->tcp_out_bytes,
                  .tcp_left_bytes = r->tcp_left_bytes,
                  .tcp_in_bytes = r->tcp_in_bytes,
                  .tcp_unsent_bytes = r->tcp_unsent_bytes,
                  .udp_out_bytes = r->udp_out_bytes,
                  .udp_dropped_bytes = r->udp_dropped_bytes,
                  .udp_in_bytes = r->udp_in_bytes},
    };
}

static bool
count_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__SyscallCount *m = (const Stockade__V1__SyscallCount *)from;
    (void)a;
    *(struct stockade_count *)to = (struct stockade_count){m->name, m->count};
    return true;
}

static bool
denial_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Denial *m = (const Stockade__V1__Denial *)from;
    (void)a;
    *(struct stockade_denial *)to = (struct stockade_denial){
        .time_ms = time_from(m->time),
        .pid = m->pid,
        .rule = m->rule,
        .comm = m->comm,
        .operation = m->operation,
        .destination = m->destination,
        .protocol = m->protocol,
        .reason = m->reason,
        .hint = m->hint,
        .count = m->count,
    };
    return true;
}

static bool
execution_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Execution *m = (const Stockade__V1__Execution *)from;
    (void)a;
    *(struct stockade_execution *)to = (struct stockade_execution){
        .time_ms = time_from(m->time),
        .pid = m->pid,
        .path = m->path,
        .args_hash = m->args_hash,
        .inode = m->inode,
        .count = m->count,
        .unnamed = m->unnamed,
    };
    return true;
}

static bool
lost_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Lost *m = (const Stockade__V1__Lost *)from;
    (void)a;
    *(struct stockade_lost *)to =
        (struct stockade_lost){m->event_class, m->events, m->cpus, m->n_cpus};
    return true;
}

#define ALL(field, from_n, one)                                                                    \
    LIST_FROM(to->field, to->field##_n, a, from->field, from->from_n, one)

static bool
lists_from(struct stockade_record *to, struct arena *a, const Stockade__V1__Record *from)
{
    return ALL(by_number, n_by_number, count_from) && ALL(by_error, n_by_error, count_from) &&
           ALL(denials, n_denials, denial_from) && ALL(executed, n_executed, execution_from) &&
           ALL(findings, n_findings, finding_from);
}

static bool
completeness_from(struct stockade_record *to, struct arena *a,
                  const Stockade__V1__Completeness *from)
{
    if (from == NULL)
        return true;
    to->complete = from->complete;
    to->start_ms = time_from(from->start_time);
    to->end_ms = time_from(from->end_time);
    to->hooks = from->hooks;
    to->hooks_n = from->n_hooks;
    to->missing = from->missing;
    to->missing_n = from->n_missing;
    return ALL(lost, n_lost, lost_from);
}

bool
record_from(struct stockade_record *to, struct arena *a, const Stockade__V1__Record *from)
{
    static const Stockade__V1__Record none = STOCKADE__V1__RECORD__INIT;
    if (from == NULL)
        from = &none;
    *to = (struct stockade_record){
        .syscalls = from->syscalls,
        .syscalls_failed = from->syscalls_failed,
        .forks = from->forks,
        .execs = from->execs,
        .exits = from->exits,
        .exits_by_signal = from->exits_by_signal,
        .signals = from->signals,
        .opens_write = from->opens_write,
        .opens_sensitive = from->opens_sensitive,
        .unlinks = from->unlinks,
        .renames = from->renames,
        .io_urings = from->io_urings,
        .unnamed_execs = from->unnamed_execs,
        .oom_kills = from->oom_kills,
        .denials_total = from->denials_total,
        .executed_total = from->executed_total,
        .findings_total = from->findings_total,
        .cut = from->cut,
        .message = from,
    };
    if (from->network != NULL) {
        struct stockade_network_use *n = arena_alloc(a, sizeof *n);
        if (n == NULL)
            return false;
        *n = network_from(from->network);
        to->network = n;
    }
    if (from->witnesses != NULL) {
        struct stockade_witnesses *w = arena_alloc(a, sizeof *w);
        if (w == NULL)
            return false;
        *w = witnesses_from(from->witnesses);
        to->witnesses = w;
    }
    return lists_from(to, a, from) && completeness_from(to, a, from->completeness);
}

static bool
job_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    static const Stockade__V1__Process none = STOCKADE__V1__PROCESS__INIT;
    const Stockade__V1__GetRecordResponse *m = (const Stockade__V1__GetRecordResponse *)from;
    struct stockade_job *j = to;
    j->tenant = m->tenant;
    j->template_name = m->template_;
    return record_from(&j->record, a, m->record) &&
           process_from(&j->process, a, m->process != NULL ? m->process : &none);
}

int
stockade_inspect(struct stockade *s, const char *process_id, const struct stockade_job **out,
                 struct stockade_error *e)
{
    Stockade__V1__GetRecordRequest m = STOCKADE__V1__GET_RECORD_REQUEST__INIT;
    if (process_id != NULL)
        m.process_id = process_id;
    const struct invocation i = {.method = SERVICE "GetRecord",
                                 .request = &m.base,
                                 .response = &stockade__v1__get_record_response__descriptor,
                                 .size = sizeof **out,
                                 .read = job_from};
    return invoke(s, &i, out, e);
}

// ---- usage

static struct stockade_pressure
pressure_from(const Stockade__V1__Pressure *m)
{
    if (m == NULL)
        return (struct stockade_pressure){0};
    return (struct stockade_pressure){true, m->some_centipercent, m->full_centipercent, m->some_us,
                                      m->full_us};
}

static bool
usage_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Usage *m = (const Stockade__V1__Usage *)from;
    (void)a;
    *(struct stockade_usage *)to = (struct stockade_usage){
        .sandbox_id = m->sandbox_id,
        .name = m->name,
        .tenant = m->tenant,
        .template_name = m->template_,
        .paused = m->paused,
        .jobs = m->jobs,
        .pids = m->pids,
        .pids_limit = m->pids_limit,
        .time_ms = time_from(m->time),
        .cpu_ns = m->cpu_ns,
        .throttled_ns = m->throttled_ns,
        .memory_bytes = m->memory_bytes,
        .memory_limit_bytes = m->memory_limit_bytes,
        .io_read_bytes = m->io_read_bytes,
        .io_write_bytes = m->io_write_bytes,
        .network = m->network != NULL ? network_from(m->network) : (struct stockade_network_use){0},
        .denials = m->denials,
        .alerts = m->alerts,
        .forks = m->forks,
        .execs = m->execs,
        .lost = m->lost,
        .cpu = pressure_from(m->cpu_pressure),
        .memory = pressure_from(m->memory_pressure),
        .io = pressure_from(m->io_pressure),
        .unknown = m->unknown,
        .unknown_n = m->n_unknown,
    };
    return true;
}

static bool
usages_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListUsageResponse *m = (const Stockade__V1__ListUsageResponse *)from;
    struct stockade_usages *all = to;
    all->next_page = m->next_page_token;
    return LIST_FROM(all->items, all->n, a, m->usage, m->n_usage, usage_from);
}

int
stockade_usage(struct stockade *s, const char *sandbox, const char *tenant, const char *page,
               const struct stockade_usages **out, struct stockade_error *e)
{
    Stockade__V1__ListUsageRequest m = STOCKADE__V1__LIST_USAGE_REQUEST__INIT;
    if (sandbox != NULL)
        m.sandbox_id = sandbox;
    if (tenant != NULL)
        m.tenant = tenant;
    if (page != NULL)
        m.page_token = page;
    const struct invocation i = {.method = SERVICE "ListUsage",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_usage_response__descriptor,
                                 .size = sizeof **out,
                                 .read = usages_from};
    return invoke(s, &i, out, e);
}
