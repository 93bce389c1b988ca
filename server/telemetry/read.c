// SPDX-License-Identifier: Apache-2.0
// See telemetry.h: reads records of a ring and reports of the relay, and finds their owner.
//
// The programs run in the kernel, but their records are checked like any input: first size, kind, slot and
// generation. An invalid record is counted and skipped. kinds.c converts valid ones to events.
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "server/network/enforce.h"
#include "proto/now.h"
#include "server/base/metrics.h"
#include "event_draft.h"

// adding the difference of the clocks to it cannot overflow
static const uint64_t TIME_MAX = UINT64_C(1) << 62;

// ---- the broker's own events

void
telemetry_fill(Stockade__V1__Event *m, const struct sandbox *s, const struct job *j,
               Stockade__V1__EventKind kind, Stockade__V1__Severity severity)
{
    stockade__v1__event__init(m);
    m->kind = kind;
    m->severity = severity;
    m->sandbox_id = s->id.id;
    m->process_id = j != NULL ? job_id(j) : "";
    m->tenant = s->tenant != NULL ? s->tenant->name : "";
    m->template_ = s->spec.template->name;
}

// Publishes every event, after adding the sandbox's name and labels.
void
telemetry_publish(struct telemetry *t, struct telemetry_box *b, Stockade__V1__Event *m)
{
    const struct sandbox_spec *spec = &b->sandbox->spec;
    Stockade__V1__Event__MetadataEntry entry[LABELS_MAX];
    Stockade__V1__Event__MetadataEntry *entries[LABELS_MAX];
    for (uint32_t i = 0; i < spec->labels_n && i < LABELS_MAX; i++) {
        stockade__v1__event__metadata_entry__init(&entry[i]);
        entry[i].key = spec->labels[i].key;
        entry[i].value = spec->labels[i].value;
        entries[m->n_metadata++] = &entry[i];
    }
    m->metadata = entries;
    m->sandbox_name = spec->name;
    b->alerts += m->severity >= GRAVE(WARNING);
    b->denials += m->kind == KIND(DENIED);
    events_publish(t->events, m);
    if (t->detectors != NULL && t->detectors->published != NULL)
        t->detectors->published(t->detectors_cookie, b->sandbox, m);
    m->metadata = NULL;
    m->n_metadata = 0;
}

void
telemetry_finding(struct telemetry *t, const struct finding *f, struct sandbox *s, struct job *j)
{
    struct telemetry_box *b = telemetry_box_of(t, s);
    list_each(it, &s->jobs)
    {
        const struct job *one = job_of_sandbox(it);
        const struct job_watch *w = telemetry_watch(t, one);
        if (w != NULL && (j == NULL || one == j))
            record_finding(w->record, f);
    }
    if (b == NULL || f->sequence == 0)
        return;
    Stockade__V1__Event m;
    Stockade__V1__Finding d = STOCKADE__V1__FINDING__INIT;
    const char *tags[FINDING_TAGS_MAX];
    telemetry_fill(&m, s, j, KIND(FINDING), (Stockade__V1__Severity)f->severity);
    m.pid = d.pid = f->pid;
    m.comm = d.comm = f->comm;
    d.rule = f->rule;
    d.severity = (Stockade__V1__Severity)f->severity;
    d.text = f->text;
    d.score = f->score;
    d.threshold = f->threshold;
    d.response = finding_response_name(f->response);
    d.sequence = f->sequence;
    d.n_tags = finding_tag_list(f, tags);
    d.tags = tags;
    d.tenant_rule = f->tenant_rule;
    d.silence_id = f->silence;
    d.silenced = f->silenced;
    d.instance = events_instance(t->events);
    m.detail_case = DETAIL(FINDING);
    m.finding = &d;
    telemetry_publish(t, b, &m);
}

// Finds the job of a cgroup. Reads a directory only when a cgroup is seen for the first time.
static struct job *
job_of(const struct telemetry *t, struct telemetry_box *b, uint64_t cgroup)
{
    if (cgroup == b->guest_cgroup || cgroup == b->stray_cgroup)
        return NULL;
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        const struct job_watch *w = telemetry_watch(t, j);
        if (w != NULL && w->cgroup == cgroup)
            return j;
    }
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        const struct job_watch *w = telemetry_watch(t, j);
        if (w != NULL && w->cgroup == 0 && telemetry_job_cgroup(t, j) && w->cgroup == cgroup)
            return j;
    }
    b->stray_cgroup = cgroup; // it belongs to an ended job, or is the sandbox's own
    return NULL;
}

static void
begin(struct event_draft *o, struct telemetry *t, struct telemetry_box *b, struct job *j,
      uint64_t boot_ns)
{
    o->box = b;
    o->job = j;
    o->watch = j != NULL ? telemetry_watch(t, j) : NULL;
    o->time_ns = (int64_t)boot_ns + t->clock_offset_ns;
    google__protobuf__timestamp__init(&o->time);
    o->time.seconds = o->time_ns / 1000000000;
    o->time.nanos = (int32_t)(o->time_ns % 1000000000);
    telemetry_fill(&o->m, b->sandbox, j, KIND(UNSPECIFIED), GRAVE(INFO));
    o->m.time = &o->time;
    o->comm[0] = '\0';
}

// A dropped packet, which its sender does not notice.
static bool
is_over_quota(const struct event *e, const void *body)
{
    struct net_event n;
    if (e->kind != EVENT_DENIED)
        return false;
    memcpy(&n, body, sizeof n);
    return n.hook == NET_HOOK_EGRESS && n.reason == NET_QUOTA;
}

bool
telemetry_event(struct telemetry *t, const void *data, size_t n)
{
    struct event e;
    if (n < sizeof e)
        return false;
    memcpy(&e, data, sizeof e);
    const struct telemetry_kind *row = telemetry_kind(e.kind);
    if (row == NULL || e.size != row->size || n < sizeof e + e.size || e.slot >= BPF_SLOTS ||
        e.class >= EVENT_CLASSES || e.time_ns > TIME_MAX)
        return false;
    metrics_add_by(METRIC_KERNEL_EVENTS, e.class, 0, 1);
    struct telemetry_box *b = telemetry_box(t, e.slot, e.generation);
    // Events before it had an owner belong to its creation: the guest, too, is executed from a file without a name.
    if (b == NULL || b->sandbox->tenant == NULL || e.time_ns < b->taken_ns)
        return true;
    const void *body = (const char *)data + sizeof e;
    struct event_draft o;
    begin(&o, t, b, job_of(t, b, e.cgroup), e.time_ns);
    o.m.kind = row->kind;
    o.m.severity = row->severity;
    o.m.pid = e.pid;
    o.m.comm = record_text(e.comm, sizeof e.comm, o.comm, sizeof o.comm);
    row->fill(&o, body);
    telemetry_publish(t, b, &o.m);
    if (is_over_quota(&e, body))
        enforce_spent(b->sandbox);
    if (t->detectors != NULL)
        t->detectors->event(t->detectors_cookie, b->sandbox, o.job, &e, body, &o.m);
    return true;
}

static int
on_record(void *cookie, void *data, size_t n)
{
    struct telemetry *t = cookie;
    if (!telemetry_event(t, data, n))
        metrics_add(METRIC_KERNEL_BAD, 1);
    return 0;
}

int
telemetry_rings_open(struct telemetry *t, struct err *e)
{
    const struct bpf *bpf = t->srv->bpf;
    if (bpf->fd[BPF_FD_ALERTS] >= 0)
        t->alerts_ring = ring_buffer__new(bpf->fd[BPF_FD_ALERTS], on_record, t, NULL);
    if (bpf->fd[BPF_FD_ALERTS] >= 0 && t->alerts_ring == NULL)
        return err_sys(e, errno, "map the ring of alerts");
    if (bpf->fd[BPF_FD_EVENTS] >= 0)
        t->events_ring = ring_buffer__new(bpf->fd[BPF_FD_EVENTS], on_record, t, NULL);
    if (bpf->fd[BPF_FD_EVENTS] >= 0 && t->events_ring == NULL)
        return err_sys(e, errno, "map the ring of events");
    return 0;
}

void
telemetry_rings_close(struct telemetry *t)
{
    ring_buffer__free(t->alerts_ring);
    ring_buffer__free(t->events_ring);
}

// ---- the relay

// The flow contains the job, which the kernel noted when the flow was requested. If it does not, and only one job
// runs, it is that one.
static struct job *
job_of_report(const struct telemetry *t, struct telemetry_box *b, const struct relay_report *r)
{
    if (r->user.cgroup != 0)
        return job_of(t, b, r->user.cgroup);
    return b->sandbox->jobs_n == 1 ? job_of_sandbox(b->sandbox->jobs.next) : NULL;
}

// The relay uses the kernel's clock. A time in the future would stop every window of a detector, so it becomes the
// current time.
static uint64_t
time_that_was(uint64_t boot_ns)
{
    uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    return boot_ns < now ? boot_ns : now;
}

void
telemetry_relay(struct telemetry *t, const struct relay_report *r)
{
    struct relay_report report = *r;
    report.time_ns = time_that_was(r->time_ns);
    r = &report;
    struct telemetry_box *b = t != NULL ? telemetry_box(t, r->slot, r->generation) : NULL;
    if (b == NULL || b->sandbox->tenant == NULL)
        return;
    if (r->lost > b->relay_lost) {
        telemetry_relay_lost(t, b, r->lost - b->relay_lost);
        b->relay_lost = r->lost;
    }
    if (r->kind == RELAY_SUMS) {
        b->queries = r->queries > b->queries ? r->queries : b->queries;
        return;
    }
    if (r->kind < RELAY_DENIED || r->kind > RELAY_FLOW_END)
        return;
    struct event_draft o;
    begin(&o, t, b, job_of_report(t, b, r), r->time_ns);
    o.m.pid = r->user.pid;
    o.m.comm = record_text(r->user.comm, sizeof r->user.comm, o.comm, sizeof o.comm);
    telemetry_fill_relay(&o, r);
    telemetry_publish(t, b, &o.m);
    if (t->detectors != NULL)
        t->detectors->report(t->detectors_cookie, b->sandbox, o.job, r);
}
