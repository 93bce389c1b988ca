// See telemetry.h: from a record of a ring, or a report of the relay, to an event with its owner.
//
// The programs run in the kernel, but what they hand over are bytes: size, kind, slot and generation are looked at before
// anything else is, text is cleaned, and a record that does not fit is counted and passed over.
#include "telemetry_private.h"

#include <arpa/inet.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "relay/relay.h"
#include "syscall_names.h"

#define KIND(name)   STOCKADE__V1__EVENT_KIND__EVENT_KIND_##name
#define GRAVE(name)  STOCKADE__V1__SEVERITY__SEVERITY_##name
#define DETAIL(name) STOCKADE__V1__EVENT__DETAIL_##name

enum { TEXT = 3 * WATCH_PATH + 1, DESTINATION = 321 };

static const uint64_t TIME_MAX = UINT64_C(1)
                                 << 62; // with the clocks' difference it is a time still

// An event on its way: the message and all that it points to.
struct told {
    struct telemetry *t;
    struct box *box;
    struct job *job; // NULL: none, or not known
    int64_t time_ns; // CLOCK_REALTIME
    Stockade__V1__Event m;
    Google__Protobuf__Timestamp time;
    union {
        Stockade__V1__Execution execution;
        Stockade__V1__ProcessExit exit;
        Stockade__V1__FileOpen file;
        Stockade__V1__SignalSent signal;
        Stockade__V1__SystemCall call;
        Stockade__V1__Denial denial;
        Stockade__V1__Flow flow;
        Stockade__V1__ProfileScore score;
        Stockade__V1__Finding finding;
    } d;
    char comm[64], text[TEXT], destination[DESTINATION], hash[17], hint[256];
    const char *calls[3];
};

// ---- events of ours

void
telemetry_fill(Stockade__V1__Event *m, const struct sandbox *s, const struct job *j,
               Stockade__V1__EventKind kind, Stockade__V1__Severity severity)
{
    stockade__v1__event__init(m);
    m->kind = kind;
    m->severity = severity;
    m->sandbox_id = s->id.id;
    m->process_id = j != NULL ? j->id.id : "";
    m->tenant = s->tenant != NULL ? s->tenant->name : "";
    m->template_ = s->spec.template->name;
}

void
telemetry_tell(struct telemetry *t, struct box *b, Stockade__V1__Event *m)
{
    b->alerts += m->severity >= GRAVE(WARNING);
    b->denials += m->kind == KIND(DENIED);
    events_publish(t->events, m);
}

void
telemetry_finding(void *cookie, const struct anomaly_finding *f, struct sandbox *s, struct job *j)
{
    static const char *const responses[] = {
        [RESPONSE_LOG] = "log",     [RESPONSE_ALERT] = "alert", [RESPONSE_THROTTLE] = "throttle",
        [RESPONSE_PAUSE] = "pause", [RESPONSE_KILL] = "kill",
    };
    struct telemetry *t = cookie;
    struct box *b = s->live ? telemetry_box(t, s->slot, s->generation) : NULL;
    if (j != NULL && j->watch != NULL)
        record_finding(j->watch->record, f);
    if (b == NULL || f->response == RESPONSE_LOG)
        return;
    Stockade__V1__Event m;
    Stockade__V1__Finding d = STOCKADE__V1__FINDING__INIT;
    telemetry_fill(&m, s, j, KIND(FINDING), (Stockade__V1__Severity)f->severity);
    d.rule = f->rule;
    d.severity = (Stockade__V1__Severity)f->severity;
    d.text = f->text;
    d.score = f->score;
    d.threshold = f->threshold;
    d.response = f->response <= RESPONSE_KILL ? responses[f->response] : "";
    d.sequence = f->sequence;
    m.detail_case = DETAIL(FINDING);
    m.finding = &d;
    telemetry_tell(t, b, &m);
}

// ---- network

static const char *const hooks[] = {
    [NET_HOOK_SOCKET] = "socket",     [NET_HOOK_CONNECT] = "connect",
    [NET_HOOK_SENDMSG] = "sendmsg",   [NET_HOOK_BIND] = "bind",
    [NET_HOOK_OPTION] = "setsockopt", [NET_HOOK_EGRESS] = "egress",
    [NET_HOOK_INGRESS] = "ingress",   [NET_HOOK_DEVICE] = "device",
    [NET_HOOK_UNIX] = "unix",         [NET_HOOK_RELAY] = "relay",
};

static const char *const reasons[NET_REASONS] = {
    [NET_NO_POLICY] = "no-policy",
    [NET_MODE_NONE] = "mode-none",
    [NET_NO_RULE] = "no-rule",
    [NET_SOCKET_TYPE] = "socket-type",
    [NET_OPTION] = "option",
    [NET_BIND] = "bind",
    [NET_QUOTA] = "quota",
    [NET_PACKET] = "packet",
    [NET_UNIX] = "unix",
    [NET_DEVICE] = "device",
    [NET_NAME] = "name",
    [NET_NAME_RATE] = "name-rate",
    [NET_NAME_ADDRESS] = "name-address",
    [NET_NAME_QUOTA] = "name-quota",
    [NET_FULL] = "full",
};

static const char *
name_in(const char *const *names, size_t n, uint32_t i)
{
    return i < n && names[i] != NULL ? names[i] : "other";
}

static const char *
protocol_name(uint32_t protocol)
{
    return protocol == IPPROTO_TCP ? "tcp" : protocol == IPPROTO_UDP ? "udp" : "";
}

// What socket(2) was asked for; constant, since records keep it.
static const char *
socket_name(const struct net_event *n)
{
    static const struct {
        uint8_t protocol;
        const char *name;
    } protocols[] = {
        {IPPROTO_TCP, "tcp"},       {IPPROTO_UDP, "udp"},   {IPPROTO_ICMP, "icmp"},
        {IPPROTO_ICMPV6, "icmpv6"}, {IPPROTO_SCTP, "sctp"}, {IPPROTO_UDPLITE, "udplite"},
        {IPPROTO_DCCP, "dccp"},     {IPPROTO_RAW, "raw"},
    };
    if (n->type == SOCK_RAW)
        return "raw";
    for (size_t i = 0; i < sizeof protocols / sizeof protocols[0]; i++)
        if (protocols[i].protocol == n->protocol)
            return protocols[i].name;
    return n->type == SOCK_STREAM ? "stream" : n->type == SOCK_DGRAM ? "datagram" : "other";
}

static void
show_address(const uint8_t address[16], uint16_t port, char *out, size_t n)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char text[INET6_ADDRSTRLEN] = "";
    bool v4 = memcmp(address, mapped, sizeof mapped) == 0;
    (void)inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address + 12 : address, text, sizeof text);
    if (port != 0)
        (void)snprintf(out, n, v4 ? "%s:%u" : "[%s]:%u", text, port);
    else
        (void)snprintf(out, n, "%s", text);
}

static void
show_target(const struct net_event *n, char *out, size_t out_n)
{
    uint32_t device[2];
    memcpy(device, n->address, sizeof device);
    if (n->hook == NET_HOOK_DEVICE)
        (void)snprintf(out, out_n, "device %u:%u", device[0], device[1]);
    else if (n->hook == NET_HOOK_UNIX)
        (void)record_text((const char *)n->address + (n->address[0] == '\0'), 15, out, out_n);
    else if (n->hook == NET_HOOK_OPTION)
        (void)snprintf(out, out_n, "level %u, option %u", n->protocol, n->port);
    else if (n->hook == NET_HOOK_SOCKET)
        (void)snprintf(out, out_n, "family %u, type %u, protocol %u", n->family, n->type,
                       n->protocol);
    else
        show_address(n->address, n->port, out, out_n);
}

static void
keep_denial(struct told *o)
{
    const Stockade__V1__Denial *d = &o->d.denial;
    struct record_denial r = {
        .time_ns = o->time_ns,
        .pid = o->m.pid,
        .rule = d->rule,
        .operation = d->operation,
        .protocol = d->protocol,
        .reason = d->reason,
        .destination = o->destination,
    };
    memcpy(r.comm, o->comm, sizeof r.comm);
    if (o->job != NULL && o->job->watch != NULL)
        record_denial(o->job->watch->record, &r);
}

static void
fill_denial(struct told *o, const char *operation, const char *protocol, uint32_t reason)
{
    Stockade__V1__Denial *d = &o->d.denial;
    stockade__v1__denial__init(d);
    d->operation = operation;
    d->protocol = protocol;
    d->reason = name_in(reasons, NET_REASONS, reason);
    d->destination = o->destination;
    d->hint = record_hint(d->reason, o->destination, protocol, o->hint, sizeof o->hint);
    d->count = 1;
    o->m.kind = KIND(DENIED);
    o->m.severity = GRAVE(NOTICE);
    o->m.detail_case = DETAIL(DENIAL);
    o->m.denial = d;
    keep_denial(o);
}

static void
fill_denied(struct told *o, const void *body)
{
    const struct net_event *n = body;
    show_target(n, o->destination, sizeof o->destination);
    bool socket = n->hook == NET_HOOK_SOCKET;
    fill_denial(o, name_in(hooks, sizeof hooks / sizeof hooks[0], n->hook),
                socket ? socket_name(n)
                : n->hook == NET_HOOK_OPTION || n->hook == NET_HOOK_DEVICE ||
                        n->hook == NET_HOOK_UNIX
                    ? ""
                    : protocol_name(n->protocol),
                n->reason);
}

static void
fill_flow(struct told *o, Stockade__V1__EventKind kind, const char *protocol, uint32_t rule)
{
    Stockade__V1__Flow *f = &o->d.flow;
    stockade__v1__flow__init(f);
    f->destination = o->destination;
    f->protocol = protocol;
    f->rule = rule == UINT32_MAX ? 0 : rule + 1;
    o->m.kind = kind;
    o->m.detail_case = DETAIL(FLOW);
    o->m.flow = f;
}

static void
fill_connect(struct told *o, const void *body)
{
    const struct net_event *n = body;
    show_target(n, o->destination, sizeof o->destination);
    fill_flow(o, KIND(CONNECT), protocol_name(n->protocol), n->rule);
}

// ---- processes and calls

static void
fill_exec(struct told *o, const void *body)
{
    const struct watch_exec *x = body;
    Stockade__V1__Execution *d = &o->d.execution;
    stockade__v1__execution__init(d);
    uint32_t n = x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH;
    (void)snprintf(o->hash, sizeof o->hash, "%016" PRIx64, (uint64_t)x->args_hash);
    d->path = record_text(x->path, n, o->text, sizeof o->text);
    d->args_hash = o->hash;
    d->inode = x->exe.inode;
    d->unnamed = x->memfd != 0;
    d->count = 1;
    o->m.detail_case = DETAIL(EXECUTION);
    o->m.execution = d;
    if (d->unnamed || x->socket != 0)
        o->m.severity = GRAVE(WARNING);
    struct record_execution r = {
        .time_ns = o->time_ns,
        .pid = o->m.pid,
        .unnamed = d->unnamed,
        .inode = d->inode,
        .args_hash = x->args_hash,
        .path = o->text,
    };
    if (o->job != NULL && o->job->watch != NULL)
        record_execution(o->job->watch->record, &r);
}

static void
fill_exit(struct told *o, const void *body)
{
    const struct watch_exit *x = body;
    stockade__v1__process_exit__init(&o->d.exit);
    o->d.exit.code = x->code;
    o->d.exit.signal = x->signal;
    o->d.exit.lived_ns = x->lived_ns;
    o->m.detail_case = DETAIL(EXIT);
    o->m.exit = &o->d.exit;
}

static void
fill_open(struct told *o, const void *body)
{
    const struct watch_open *x = body;
    stockade__v1__file_open__init(&o->d.file);
    uint32_t n = x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH;
    o->d.file.path = record_text(x->path, n, o->text, sizeof o->text);
    o->d.file.flags = x->flags;
    o->d.file.error = x->result < 0 ? (uint32_t)-x->result : 0;
    o->m.detail_case = DETAIL(FILE);
    o->m.file = &o->d.file;
}

static void
fill_signal(struct told *o, const void *body)
{
    const struct watch_signal *x = body;
    stockade__v1__signal_sent__init(&o->d.signal);
    o->d.signal.signal = x->signal;
    o->d.signal.target = x->target;
    o->m.detail_case = DETAIL(SIGNAL);
    o->m.signal = &o->d.signal;
}

static void
fill_call(struct told *o, const void *body)
{
    const struct watch_syscall *x = body;
    stockade__v1__system_call__init(&o->d.call);
    o->d.call.name = syscall_name(x->number);
    o->d.call.result = x->result;
    o->d.call.first = x->args[0];
    o->d.call.second = x->args[1];
    o->m.detail_case = DETAIL(CALL);
    o->m.call = &o->d.call;
}

static void
fill_score(struct told *o, const void *body)
{
    const struct watch_score *x = body;
    stockade__v1__profile_score__init(&o->d.score);
    o->d.score.unseen = x->unseen;
    o->d.score.window = x->window;
    for (size_t i = 0; i < 3; i++)
        o->calls[i] = syscall_name(x->last[i]);
    o->d.score.calls = o->calls;
    o->d.score.n_calls = 3;
    o->m.detail_case = DETAIL(SCORE);
    o->m.score = &o->d.score;
}

static void
fill_nothing(struct told *o, const void *body)
{
    (void)o;
    (void)body;
}

// ---- one record

struct kind_row {
    uint32_t size; // of the body
    Stockade__V1__EventKind kind;
    Stockade__V1__Severity severity;
    void (*fill)(struct told *o, const void *body);
};

static const struct kind_row kinds[EVENT_KINDS] = {
    [EVENT_DENIED] = {sizeof(struct net_event), KIND(DENIED), GRAVE(NOTICE), fill_denied},
    [EVENT_CONNECT] = {sizeof(struct net_event), KIND(CONNECT), GRAVE(INFO), fill_connect},
    [EVENT_EXEC] = {sizeof(struct watch_exec), KIND(EXEC), GRAVE(INFO), fill_exec},
    [EVENT_EXIT] = {sizeof(struct watch_exit), KIND(EXIT), GRAVE(INFO), fill_exit},
    [EVENT_OPEN] = {sizeof(struct watch_open), KIND(SENSITIVE_OPEN), GRAVE(NOTICE), fill_open},
    [EVENT_SIGNAL] = {sizeof(struct watch_signal), KIND(SIGNAL), GRAVE(INFO), fill_signal},
    [EVENT_DANGEROUS] = {sizeof(struct watch_syscall), KIND(DANGEROUS_CALL), GRAVE(WARNING),
                         fill_call},
    [EVENT_URING] = {sizeof(struct watch_syscall), KIND(IO_URING), GRAVE(NOTICE), fill_call},
    [EVENT_OOM] = {0, KIND(OUT_OF_MEMORY), GRAVE(WARNING), fill_nothing},
    [EVENT_PROFILE] = {sizeof(struct watch_score), KIND(PROFILE), GRAVE(WARNING), fill_score},
};

// Whose a cgroup is. Directories are looked at only when a cgroup is seen for the first time.
static struct job *
job_of(struct box *b, uint64_t cgroup)
{
    if (cgroup == b->guest_cgroup || cgroup == b->stray_cgroup)
        return NULL;
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        if (j->watch != NULL && j->watch->cgroup == cgroup)
            return j;
    }
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        if (j->watch != NULL && j->watch->cgroup == 0 && telemetry_job_cgroup(j) &&
            j->watch->cgroup == cgroup)
            return j;
    }
    b->stray_cgroup = cgroup; // of a job that has ended, or the sandbox's own
    return NULL;
}

static void
begin(struct told *o, struct telemetry *t, struct box *b, struct job *j, uint64_t boot_ns)
{
    o->t = t;
    o->box = b;
    o->job = j;
    o->time_ns = (int64_t)boot_ns + t->clock_offset_ns;
    google__protobuf__timestamp__init(&o->time);
    o->time.seconds = o->time_ns / 1000000000;
    o->time.nanos = (int32_t)(o->time_ns % 1000000000);
    telemetry_fill(&o->m, b->sandbox, j, KIND(UNSPECIFIED), GRAVE(INFO));
    o->m.time = &o->time;
    o->comm[0] = '\0';
}

// What the guest does in the job's cgroup before it executes the job: it joins a new session keyring. A job cannot: its
// filter refuses keyctl, so its calls fail.
static bool
is_set_up(const struct event *e, const void *body)
{
    enum { JOIN_SESSION_KEYRING = 1 };
    struct watch_syscall call;
    if (e->kind != EVENT_DANGEROUS)
        return false;
    memcpy(&call, body, sizeof call);
    return call.number == SYS_keyctl && call.result >= 0 && call.args[0] == JOIN_SESSION_KEYRING &&
           call.args[1] == 0;
}

bool
telemetry_event(struct telemetry *t, const void *data, size_t n)
{
    struct event e;
    if (n < sizeof e)
        return false;
    memcpy(&e, data, sizeof e);
    const struct kind_row *row = e.kind < EVENT_KINDS ? &kinds[e.kind] : NULL;
    if (row == NULL || row->fill == NULL || e.size != row->size || n < sizeof e + e.size ||
        e.slot >= BPF_SLOTS || e.class >= EVENT_CLASSES || e.time_ns > TIME_MAX)
        return false;
    struct box *b = telemetry_box(t, e.slot, e.generation);
    // What happened before it was somebody's belongs to its birth: the guest, too, is executed, from a file without a name.
    if (b == NULL || b->sandbox->tenant == NULL || e.time_ns < b->taken_ns)
        return true;
    const void *body = (const char *)data + sizeof e;
    if (is_set_up(&e, body))
        return true;
    struct told o;
    begin(&o, t, b, job_of(b, e.cgroup), e.time_ns);
    o.m.kind = row->kind;
    o.m.severity = row->severity;
    o.m.pid = e.pid;
    o.m.comm = record_text(e.comm, sizeof e.comm, o.comm, sizeof o.comm);
    row->fill(&o, body);
    telemetry_tell(t, b, &o.m);
    if (t->srv->anomaly != NULL)
        anomaly_event(t->srv->anomaly, b->sandbox, o.job, &e, body);
    return true;
}

static int
on_record(void *cookie, void *data, size_t n)
{
    struct telemetry *t = cookie;
    if (!telemetry_event(t, data, n))
        t->bad++;
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

// Whose it is, the flow says, which the kernel noted when it was asked for; where it does not, just one job may run.
static struct job *
job_of_report(struct box *b, const struct relay_report *r)
{
    if (r->user.cgroup != 0)
        return job_of(b, r->user.cgroup);
    return b->sandbox->jobs_n == 1 ? job_of_sandbox(b->sandbox->jobs.next) : NULL;
}

static void
relay_destination(struct told *o, const struct relay_report *r, bool by_name)
{
    static const uint8_t nowhere[16];
    if (by_name && r->name[0] != '\0')
        (void)snprintf(o->destination, sizeof o->destination, "%.*s", RELAY_NAME_MAX, r->name);
    else if (memcmp(r->address, nowhere, sizeof nowhere) != 0)
        show_address(r->address, r->port, o->destination, sizeof o->destination);
    else
        o->destination[0] = '\0';
}

static void
relay_denied(struct told *o, const struct relay_report *r)
{
    bool dns = r->reason == NET_NAME || r->reason == NET_NAME_RATE || r->reason == NET_NAME_ADDRESS;
    relay_destination(o, r, true);
    fill_denial(o, dns ? "dns" : "relay", protocol_name(r->protocol), r->reason);
    o->d.denial.rule = r->rule == UINT32_MAX ? 0 : r->rule + 1;
}

static void
relay_flow(struct told *o, const struct relay_report *r)
{
    static const Stockade__V1__EventKind as[] = {
        [RELAY_LOOKUP] = KIND(LOOKUP),
        [RELAY_FLOW] = KIND(FLOW),
        [RELAY_FLOW_END] = KIND(FLOW_ENDED),
    };
    relay_destination(o, r, false);
    (void)snprintf(o->text, sizeof o->text, "%.*s", RELAY_NAME_MAX, r->name);
    fill_flow(o, as[r->kind], protocol_name(r->protocol), r->rule);
    o->d.flow.name = o->text;
    o->d.flow.out_bytes = r->out_bytes;
    o->d.flow.in_bytes = r->in_bytes;
}

// The relay's clock is the kernel's. A time that has not come would stop every window of a detector.
static uint64_t
time_that_was(uint64_t boot_ns)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    return boot_ns < now ? boot_ns : now;
}

void
telemetry_relay(struct telemetry *t, const struct relay_report *r)
{
    struct relay_report report = *r;
    report.time_ns = time_that_was(r->time_ns);
    r = &report;
    struct box *b = t != NULL ? telemetry_box(t, r->slot, r->generation) : NULL;
    if (b == NULL || b->sandbox->tenant == NULL)
        return;
    if (r->lost > b->relay_lost)
        b->relay_lost = r->lost;
    if (r->kind == RELAY_SUMS) {
        b->queries = r->queries > b->queries ? r->queries : b->queries;
        return;
    }
    if (r->kind < RELAY_DENIED || r->kind > RELAY_FLOW_END)
        return;
    struct told o;
    begin(&o, t, b, job_of_report(b, r), r->time_ns);
    o.m.pid = r->user.pid;
    o.m.comm = record_text(r->user.comm, sizeof r->user.comm, o.comm, sizeof o.comm);
    if (r->kind == RELAY_DENIED)
        relay_denied(&o, r);
    else
        relay_flow(&o, r);
    telemetry_tell(t, b, &o.m);
    if (t->srv->anomaly != NULL)
        anomaly_relay(t->srv->anomaly, b->sandbox, r);
}
