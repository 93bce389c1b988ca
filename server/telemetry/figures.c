// SPDX-License-Identifier: Apache-2.0
// See telemetry.h: the kernel's counters, losses, and the record that is made from both.
#include "private.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/sandbox/job_message.h"
#include "proto/now.h"
#include "server/base/metrics.h"
#include "server/network/net.h"
#include "server/network/witness.h"
#include "server/sandbox/spawn.h"

// ---- accounts

bool
telemetry_job_cgroup(const struct telemetry *t, const struct job *j)
{
    struct job_watch *w = telemetry_watch(t, j);
    if (w->cgroup == 0 && job_sandbox(j) != NULL)
        w->cgroup = cgstat_cgroup_id(&job_sandbox(j)->dirs, job_number(j));
    return w->cgroup != 0;
}

static bool
find_cell(const struct telemetry *t, uint64_t cgroup, struct watch_cell *cell)
{
    const struct bpf *bpf = t->srv->bpf;
    return cgroup != 0 && bpf != NULL && bpf->accounts != NULL && bpf->fd[BPF_FD_CELLS] >= 0 &&
           bpf_map_lookup_elem(bpf->fd[BPF_FD_CELLS], &cgroup, cell) == 0 &&
           cell->account < WATCH_ACCOUNTS;
}

const struct watch_account *
telemetry_account(const struct telemetry *t, uint64_t cgroup)
{
    struct watch_cell cell;
    if (!find_cell(t, cgroup, &cell))
        return NULL;
    const struct watch_account *a = &t->srv->bpf->accounts[cell.account];
    return a->cgroup == cgroup ? a : NULL;
}

// Like telemetry_account(), for a job, whose account is looked up once.
const struct watch_account *
telemetry_job_account(const struct telemetry *t, const struct job *j)
{
    struct job_watch *w = telemetry_watch(t, j);
    if (w == NULL || !telemetry_job_cgroup(t, j))
        return NULL;
    if (w->account == NULL || w->account->cgroup != w->cgroup)
        w->account = telemetry_account(t, w->cgroup);
    return w->account;
}

// What RLIMIT_FSIZE and RLIMIT_NOFILE refused, as counted by the programs. Lower limits are the job's own.
void
telemetry_job_exited(void *telemetry, struct job *j)
{
    const struct watch_account *account = telemetry_job_account(telemetry, j);
    const struct limits *limits = job_limits(j);
    if (account == NULL)
        return;
    job_set_oversized(
        j, account->oversized_at >= limits->v[LIMIT_FILE_SIZE_BYTES] ? account->oversized : 0);
    job_set_no_file(j, account->no_file_at >= limits->v[LIMIT_FILES] ? account->no_file : 0);
}

void
telemetry_cell_back(const struct telemetry *t, uint64_t cgroup)
{
    const struct bpf *bpf = t->srv->bpf;
    struct watch_cell cell;
    if (cgroup == 0 || bpf == NULL || bpf->accounts == NULL || bpf->fd[BPF_FD_CELLS] < 0)
        return;
    if (bpf_map_lookup_and_delete_elem(bpf->fd[BPF_FD_CELLS], &cgroup, &cell) == 0 &&
        cell.account < WATCH_ACCOUNTS)
        (void)bpf_map_update_elem(bpf->fd[BPF_FD_ACCOUNTS_FREE], NULL, &cell.account, BPF_ANY);
}

// ---- losses

static void
publish_gap(struct telemetry *t, struct telemetry_box *b, uint32_t class, uint64_t n,
            const uint64_t *by_cpu)
{
    Stockade__V1__Event m;
    Stockade__V1__Lost l = STOCKADE__V1__LOST__INIT;
    uint32_t cpus[RECORD_CPUS];
    if (b->sandbox->tenant == NULL)
        return;
    for (uint32_t cpu = 0; cpu < t->cpus && l.n_cpus < RECORD_CPUS; cpu++)
        if (by_cpu[cpu] > 0)
            cpus[l.n_cpus++] = cpu;
    telemetry_fill(&m, b->sandbox, NULL, KIND(GAP), GRAVE(NOTICE));
    l.event_class = record_class_name(class);
    l.events = n;
    l.cpus = cpus;
    m.detail_case = DETAIL(LOST);
    m.lost = &l;
    telemetry_publish(t, b, &m);
}

// Adds new losses on one CPU to the record of each job that ran.
static void
note_lost(const struct telemetry *t, const struct telemetry_box *b, uint32_t class, uint32_t cpu,
          uint64_t more)
{
    list_each(it, &b->sandbox->jobs)
    {
        const struct job_watch *w = telemetry_watch(t, job_of_sandbox(it));
        if (w != NULL)
            record_lost(w->record, class, cpu, more);
    }
}

void
telemetry_relay_lost(struct telemetry *t, struct telemetry_box *b, uint64_t more)
{
    memset(t->scratch, 0, t->cpus * sizeof *t->scratch);
    metrics_add(METRIC_RELAY_REPORTS_LOST, more);
    note_lost(t, b, CLASS_NETWORK, RECORD_CPUS, more);
    publish_gap(t, b, CLASS_NETWORK, more, t->scratch);
}

void
telemetry_read_lost(struct telemetry *t, struct telemetry_box *b)
{
    const struct bpf *bpf = t->srv->bpf;
    if (bpf == NULL || bpf->lost == NULL)
        return;
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++) {
        uint64_t n = 0;
        for (uint32_t cpu = 0; cpu < t->cpus; cpu++) {
            uint64_t now = bpf->lost[lost_at(cpu, b->sandbox->slot, class)];
            uint64_t *old = b->lost + (size_t) class * t->cpus + cpu;
            uint64_t more = now - *old;
            *old = now;
            t->scratch[cpu] = more;
            n += more;
            if (more > 0)
                note_lost(t, b, class, cpu, more);
        }
        b->lost_total += n;
        if (b->sandbox->tenant != NULL) // else it is the sum of all earlier sandboxes of this slot
            metrics_add_by(METRIC_KERNEL_LOST, class, 0, n);
        if (n > 0)
            publish_gap(t, b, class, n, t->scratch);
    }
}

// ---- sums

void
telemetry_add_account(struct activity *to, const struct watch_account *w)
{
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++)
        to->syscalls += w->syscalls[i];
    for (uint32_t i = WATCH_OK + 1; i < WATCH_ERRORS; i++)
        to->errors[i] += w->errors[i];
    to->forks += w->forks;
    to->execs += w->execs;
    to->exits += w->exits;
    to->signals += w->signals;
    to->opens_write += w->opens_write;
    to->opens_exclusive += w->opens_exclusive;
    to->opens_sensitive += w->opens_sensitive;
    to->looks_sensitive += w->looks_sensitive;
    to->unlinks += w->unlinks;
    to->rewrites += w->rewrites;
    to->links += w->links;
    to->renames += w->renames;
    to->memfd_execs += w->memfd_execs;
    to->io_urings += w->io_urings;
    to->ooms += w->ooms;
    to->dangerous += w->dangerous;
    to->socket_execs += w->socket_execs;
    to->new_execs += w->new_execs;
    to->preloads += w->preloads;
}

static uint64_t
rose(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

static void
network_since(const struct net_counters *now, const struct net_counters *before,
              Stockade__V1__NetworkUse *out)
{
    out->out_bytes = rose(now->out_bytes, before->out_bytes);
    out->out_packets = rose(now->out_packets, before->out_packets);
    out->in_bytes = rose(now->in_bytes, before->in_bytes);
    out->in_packets = rose(now->in_packets, before->in_packets);
    out->connects_allowed = rose(now->connects_allowed, before->connects_allowed);
    out->connects_denied = rose(now->connects_denied, before->connects_denied);
}

void
telemetry_sums(const struct telemetry *t, const struct telemetry_box *b,
               const struct cgstat *just_read, struct activity *out)
{
    const struct bpf *bpf = t->srv->bpf;
    *out = b->ended;
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        out->output_bytes += job_output_bytes(j);
        const struct watch_account *account = telemetry_job_account(t, j);
        if (account != NULL)
            telemetry_add_account(out, account);
    }
    out->queries = b->queries;
    out->cpu_ns =
        just_read != NULL ? just_read->v[STAT_CPU_NS] : cgstat_cpu_ns(&b->sandbox->dirs, 0);
    if (bpf == NULL || bpf->net == NULL)
        return;
    Stockade__V1__NetworkUse n = STOCKADE__V1__NETWORK_USE__INIT;
    const struct net_counters now = bpf->net[b->sandbox->slot];
    network_since(&now, &b->net, &n);
    out->listens = rose(now.listens, b->net.listens);
    out->out_bytes = n.out_bytes;
    out->out_packets = n.out_packets;
    out->in_bytes = n.in_bytes;
    out->in_packets = n.in_packets;
    out->connects_allowed = n.connects_allowed;
    out->connects_denied = n.connects_denied;
}

void
telemetry_sandbox_sums(struct telemetry *t, const struct sandbox *s, struct telemetry_sums *out)
{
    *out = (struct telemetry_sums){0};
    struct telemetry_box *b = telemetry_box_of(t, s);
    if (b == NULL)
        return;
    telemetry_sums(t, b, NULL, &out->sums);
    out->denials = b->denials;
    out->alerts = b->alerts;
    out->lost = b->lost_total + b->relay_lost;
}

// ---- the record

// The hooks that were active, and those that were not.
struct notes {
    const char *hooks[RECORD_NOTES], *missing[RECORD_NOTES];
    size_t hooks_n, missing_n;
    bool whole;
};

static void
note_missing(struct notes *n, bool counts, const char *text)
{
    if (n->missing_n < RECORD_NOTES)
        n->missing[n->missing_n++] = text;
    n->whole = n->whole && !counts;
}

static void
note_hooks(struct notes *n, uint32_t has)
{
    static const struct {
        uint32_t has;
        const char *hook;
    } rows[] = {
        {BPF_HAS_NET, "socket"},     {BPF_HAS_NET, "connect"},  {BPF_HAS_NET, "sendmsg"},
        {BPF_HAS_NET, "bind"},       {BPF_HAS_NET, "egress"},   {BPF_HAS_NET, "ingress"},
        {BPF_HAS_NET, "setsockopt"}, {BPF_HAS_NET, "device"},   {BPF_HAS_UNIX, "unix"},
        {BPF_HAS_RELAY, "relay"},    {BPF_HAS_WATCH, "exec"},   {BPF_HAS_WATCH, "fork"},
        {BPF_HAS_WATCH, "exit"},     {BPF_HAS_WATCH, "signal"}, {BPF_HAS_WATCH, "oom"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((has & rows[i].has) != 0)
            n->hooks[n->hooks_n++] = rows[i].hook;
    if ((has & BPF_HAS_NET) == 0)
        note_missing(
            n, true,
            "network: no BPF program checks or counts traffic; only the network namespace isolates "
            "the job");
    else if ((has & BPF_HAS_UNIX) == 0)
        note_missing(n, false,
                     "unix: this kernel has no hooks for unix sockets (Linux 6.7 added them)");
    if ((has & BPF_HAS_WATCH) == 0)
        note_missing(
            n, true,
            "processes: no BPF program watches exec, fork, exit, signals and lack of memory");
}

static void
note_syscalls(struct notes *n, const struct telemetry *t, const struct job *j, bool counted)
{
    const struct job_watch *w = telemetry_watch(t, j);
    const struct bpf *bpf = t->srv->bpf;
    bool ever = w->syscalls && t->watching == WATCH_IS_ON && w->detached == t->detached;
    bool off = t->settings->syscalls == SYSCALLS_OFF;
    bool must = w->wants || (!off && telemetry_detectors_want(t));
    if (ever || counted) {
        n->hooks[n->hooks_n++] = "syscalls";
        n->hooks[n->hooks_n++] = "open";
    }
    if (ever)
        return;
    if (counted)
        note_missing(n, must, "syscalls: counted only for a part of the time");
    else if (bpf == NULL || (bpf->has & BPF_HAS_SYSCALLS) == 0)
        note_missing(n, must, "syscalls: the tracepoint cannot be attached on this host");
    else if (t->settings->syscalls == SYSCALLS_OFF)
        note_missing(n, must, "syscalls: telemetry.syscalls is off");
    else
        note_missing(n, must, "syscalls: not requested (--syscalls)");
}

static void
note_network(struct notes *n, const struct net_counters *now, const struct net_counters *before)
{
    if (now->failures > before->failures)
        note_missing(n, true, "network: a kernel helper failed, or a table was full");
}

static void
note_account(struct notes *n, const struct telemetry *t, const struct watch_account *account)
{
    const struct bpf *bpf = t->srv->bpf;
    if (account == NULL && bpf != NULL && (bpf->has & BPF_HAS_WATCH) != 0)
        note_missing(n, true, "figures: the kernel counted nothing for this job");
    if (account != NULL && account->failures > 0)
        note_missing(n, true, "figures: a kernel helper failed; some are missing");
    if (account != NULL && account->evicted > 0)
        note_missing(n, false,
                     "profiles: for some threads not every sequence of calls was compared");
}

// The witnesses of a job that ends. NULL: there are none, or it runs.
static const struct witness *
witness_of(const struct telemetry *t, const struct job *j, struct witness *out)
{
    const struct sandbox *s = job_sandbox(j);
    struct job_view v;
    job_view(j, &v);
    return t->srv->net != NULL && v.result != NULL
               ? witnesses_of(net_witnesses(t->srv->net), s->slot, s->generation, out)
               : NULL;
}

Stockade__V1__Record *
telemetry_record(struct telemetry *t, struct job *j, struct arena *a)
{
    struct job_watch *w = t != NULL ? telemetry_watch(t, j) : NULL;
    if (w == NULL || job_sandbox(j) == NULL)
        return NULL;
    struct telemetry_box *b = telemetry_box_of(t, job_sandbox(j));
    const struct bpf *bpf = t->srv->bpf;
    const struct watch_account *account = telemetry_job_account(t, j);
    struct notes n = {.whole = true};
    bool counted = false;
    for (uint32_t i = 0; account != NULL && i < WATCH_SYSCALLS && !counted; i++)
        counted = account->syscalls[i] > 0;
    note_hooks(&n, bpf != NULL ? bpf->has : 0);
    note_syscalls(&n, t, j, counted);
    note_account(&n, t, account);
    Stockade__V1__NetworkUse net = STOCKADE__V1__NETWORK_USE__INIT;
    bool has_net = bpf != NULL && bpf->net != NULL;
    if (has_net) {
        const struct net_counters now = bpf->net[job_sandbox(j)->slot];
        network_since(&now, &w->net, &net);
        note_network(&n, &now, &w->net);
    }
    net.queries = b != NULL ? rose(b->queries, w->queries) : 0;
    net.shared = !w->alone;
    struct witness witness;
    const struct record_view v = {
        .network = has_net ? &net : NULL,
        .witness = witness_of(t, j, &witness),
        .account = account,
        .syscalls = counted,
        .whole = n.whole,
        .end_ns = now_ns(CLOCK_REALTIME),
        .hooks = n.hooks,
        .hooks_n = n.hooks_n,
        .missing = n.missing,
        .missing_n = n.missing_n,
    };
    return record_message(w->record, &v, a);
}

void
telemetry_store(struct telemetry *t, struct job *j)
{
    struct arena *auto_arena a = arena_new(RECORD_ARENA_BYTES);
    Stockade__V1__GetRecordResponse m = STOCKADE__V1__GET_RECORD_RESPONSE__INIT;
    union { // protobuf-c requires a writable pointer, although packing only reads
        const Stockade__V1__Record *from;
        Stockade__V1__Record *to;
    } record = {.from = job_result(j)->record};
    m.process = a != NULL ? job_message_process(a, j) : NULL;
    if (m.process == NULL || record.to == NULL) {
        telemetry_audit(t, j, NULL, 0);
        telemetry_unwatched(job_id(j));
        return;
    }
    m.record = record.to;
    m.tenant = job_tenant(j);
    m.template_ = job_sandbox(j)->spec.template->name;
    size_t n = protobuf_c_message_get_packed_size(&m.base);
    uint8_t *bytes = malloc(n);
    if (bytes != NULL)
        (void)protobuf_c_message_pack(&m.base, bytes);
    telemetry_audit(t, j, bytes, n);
    if (bytes == NULL || !record_store_add(t->records, m.tenant, job_id(j), bytes, n))
        telemetry_unwatched(job_id(j));
}
