// Records of jobs and what sandboxes use (stockade.h, "What happens").
#include <stddef.h>

#include "../proto/auto.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/telemetry_service.pb-c.h"

#define SERVICE "/stockade.v1.TelemetryService/"

static int64_t
time_of(const Google__Protobuf__Timestamp *t)
{
    if (t == NULL || t->seconds < 0 || t->seconds > INT64_MAX / 2000)
        return 0;
    return t->seconds * 1000 + t->nanos / 1000000;
}

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

// An array of what `one` makes of each message.
static bool
all_from(const void *to, size_t *to_n, struct arena *a, size_t size, ProtobufCMessage **from,
         size_t n, void (*one)(void *to, const ProtobufCMessage *m))
{
    char *items = arena_alloc(a, (n + 1) * size);
    for (size_t i = 0; items != NULL && i < n; i++)
        one(items + i * size, from[i]);
    *(char **)(uintptr_t)to = items;
    *to_n = n;
    return items != NULL;
}

static void
count_from(void *to, const ProtobufCMessage *from)
{
    const Stockade__V1__SyscallCount *m = (const Stockade__V1__SyscallCount *)from;
    *(struct stockade_count *)to = (struct stockade_count){m->name, m->count};
}

static void
denial_from(void *to, const ProtobufCMessage *from)
{
    const Stockade__V1__Denial *m = (const Stockade__V1__Denial *)from;
    *(struct stockade_denial *)to = (struct stockade_denial){
        .time_ms = time_of(m->time),
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
}

static void
execution_from(void *to, const ProtobufCMessage *from)
{
    const Stockade__V1__Execution *m = (const Stockade__V1__Execution *)from;
    *(struct stockade_execution *)to = (struct stockade_execution){
        .time_ms = time_of(m->time),
        .pid = m->pid,
        .path = m->path,
        .args_hash = m->args_hash,
        .inode = m->inode,
        .count = m->count,
        .unnamed = m->unnamed,
    };
}

static void
one_finding_from(void *to, const ProtobufCMessage *from)
{
    *(struct stockade_finding *)to = finding_from((const Stockade__V1__Finding *)from);
}

static void
lost_from(void *to, const ProtobufCMessage *from)
{
    const Stockade__V1__Lost *m = (const Stockade__V1__Lost *)from;
    *(struct stockade_lost *)to =
        (struct stockade_lost){m->event_class, m->events, m->cpus, m->n_cpus};
}

#define ALL(field, type, n_field, fn)                                                              \
    all_from(&to->field, &to->field##_n, a, sizeof(struct type), (ProtobufCMessage **)from->field, \
             from->n_field, fn)

static bool
lists_from(struct stockade_record *to, struct arena *a, const Stockade__V1__Record *from)
{
    return ALL(by_number, stockade_count, n_by_number, count_from) &&
           ALL(by_error, stockade_count, n_by_error, count_from) &&
           ALL(denials, stockade_denial, n_denials, denial_from) &&
           ALL(executed, stockade_execution, n_executed, execution_from) &&
           ALL(findings, stockade_finding, n_findings, one_finding_from);
}

static bool
completeness_from(struct stockade_record *to, struct arena *a,
                  const Stockade__V1__Completeness *from)
{
    if (from == NULL)
        return true;
    to->complete = from->complete;
    to->start_ms = time_of(from->start_time);
    to->end_ms = time_of(from->end_time);
    to->hooks = from->hooks;
    to->hooks_n = from->n_hooks;
    to->missing = from->missing;
    to->missing_n = from->n_missing;
    return ALL(lost, stockade_lost, n_lost, lost_from);
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
    };
    if (from->network != NULL) {
        struct stockade_network_use *n = arena_alloc(a, sizeof *n);
        if (n == NULL)
            return false;
        *n = network_from(from->network);
        to->network = n;
    }
    return lists_from(to, a, from) && completeness_from(to, a, from->completeness);
}

int
stockade_inspect(struct stockade *s, const char *process_id, const struct stockade_job **out,
                 struct stockade_error *e)
{
    Stockade__V1__GetRecordRequest m = STOCKADE__V1__GET_RECORD_REQUEST__INIT;
    if (process_id != NULL)
        m.process_id = process_id;
    struct invocation i = {.method = SERVICE "GetRecord",
                           .request = &m.base,
                           .response = &stockade__v1__get_record_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    struct arena *auto_arena a = NULL;
    Stockade__V1__GetRecordResponse *got = NULL;
    int rc = invoke(s, &i, &a, (ProtobufCMessage **)&got, e);
    if (rc < 0)
        return rc;
    struct stockade_job *j = hand_out(a, sizeof *j);
    static const Stockade__V1__Process none = STOCKADE__V1__PROCESS__INIT;
    if (j == NULL || !record_from(&j->record, a, got->record) ||
        !process_from(&j->process, a, got->process != NULL ? got->process : &none))
        return invoke_too_large(e);
    j->tenant = got->tenant;
    j->template_name = got->template_;
    *out = j;
    (void)take_ptr(a);
    return 0;
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

static void
usage_from(void *to, const ProtobufCMessage *from)
{
    const Stockade__V1__Usage *m = (const Stockade__V1__Usage *)from;
    *(struct stockade_usage *)to = (struct stockade_usage){
        .sandbox_id = m->sandbox_id,
        .name = m->name,
        .tenant = m->tenant,
        .template_name = m->template_,
        .paused = m->paused,
        .jobs = m->jobs,
        .pids = m->pids,
        .pids_limit = m->pids_limit,
        .time_ms = time_of(m->time),
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
    struct invocation i = {.method = SERVICE "ListUsage",
                           .request = &m.base,
                           .response = &stockade__v1__list_usage_response__descriptor,
                           .deadline_ms = UNARY_DEADLINE_MS};
    struct arena *auto_arena a = NULL;
    Stockade__V1__ListUsageResponse *got = NULL;
    int rc = invoke(s, &i, &a, (ProtobufCMessage **)&got, e);
    if (rc < 0)
        return rc;
    struct stockade_usages *all = hand_out(a, sizeof *all);
    if (all == NULL || !all_from(&all->items, &all->n, a, sizeof *all->items,
                                 (ProtobufCMessage **)got->usage, got->n_usage, usage_from))
        return invoke_too_large(e);
    all->next_page = got->next_page_token;
    *out = all;
    (void)take_ptr(a);
    return 0;
}
