// SPDX-License-Identifier: Apache-2.0
// See event_draft.h: converts each kind of record and report to an event.
//
// It sanitizes texts, names unknown numbers "other", and passes entries to the job's record.
#include "event_draft.h"

#include <inttypes.h>
#include <errno.h>
#include <linux/audit.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/network/hint.h"
#include "server/policy/rule.h"
#include "server/rpc/socket_options.h"
#include "server/base/syscall_names.h"

// ---- network

static const char *const hooks[] = {
    [NET_HOOK_SOCKET] = "socket",     [NET_HOOK_CONNECT] = "connect",
    [NET_HOOK_SENDMSG] = "sendmsg",   [NET_HOOK_BIND] = "bind",
    [NET_HOOK_OPTION] = "setsockopt", [NET_HOOK_EGRESS] = "egress",
    [NET_HOOK_INGRESS] = "ingress",   [NET_HOOK_DEVICE] = "device",
    [NET_HOOK_UNIX] = "unix",         [NET_HOOK_RELAY] = "relay",
    [NET_HOOK_LISTEN] = "listen",
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
    [NET_SOCKETS] = "sockets",
    [NET_IN_QUOTA] = "ingress-quota",
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

// The arguments of socket(2), as a name; constant, because records keep it.
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
show_target(const struct net_event *n, char *out, size_t out_n)
{
    uint32_t pair[2]; // of a device or an option
    memcpy(pair, n->address, sizeof pair);
    if (n->hook == NET_HOOK_DEVICE)
        (void)snprintf(out, out_n, "device %u:%u", ntohl(pair[0]), ntohl(pair[1]));
    else if (n->hook == NET_HOOK_UNIX)
        (void)record_text((const char *)n->address + (n->address[0] == '\0'), 15, out, out_n);
    else if (n->hook == NET_HOOK_OPTION)
        (void)socket_option_name(ntohl(pair[0]), ntohl(pair[1]), out, out_n);
    else if (n->hook == NET_HOOK_SOCKET)
        (void)snprintf(out, out_n, "family %u, type %u, protocol %u", n->family, n->type,
                       n->protocol);
    else
        net_rule_address(n->address, n->port, out, out_n);
}

static void
keep_denial(struct event_draft *o)
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
        .hint = o->hint,
    };
    memcpy(r.comm, o->comm, sizeof r.comm);
    if (o->watch != NULL)
        record_denial(o->watch->record, &r);
}

// Refusals that no hook made: values of the label DENIAL after those of the hooks.
enum { DENIAL_OTHER = 0, DENIAL_DNS = 14, DENIAL_RELAY = NET_HOOK_RELAY };
_Static_assert(sizeof hooks / sizeof hooks[0] <= DENIAL_DNS, "the hooks come first");

void
telemetry_name_denials(void)
{
    metrics_name_value(METRIC_BY_DENIAL, DENIAL_OTHER, "other");
    for (uint32_t i = 1; i < sizeof hooks / sizeof hooks[0]; i++)
        if (i != NET_HOOK_LISTEN)
            metrics_name_value(METRIC_BY_DENIAL, i, hooks[i]);
    metrics_name_value(METRIC_BY_DENIAL, DENIAL_DNS, "dns");
}

// The label of an operation that is named like this.
static uint32_t
denial_value(const char *operation)
{
    for (uint32_t i = 0; i < METRIC_VALUES_DENIAL; i++) {
        const char *name = metrics_label_value(METRIC_BY_DENIAL, i);
        if (name != NULL && strcmp(name, operation) == 0)
            return i;
    }
    return DENIAL_OTHER;
}

static void
fill_denial(struct event_draft *o, const char *operation, const char *protocol, uint32_t rule,
            struct net_refused *what)
{
    const struct sandbox *s = o->box->sandbox;
    Stockade__V1__Denial *d = &o->d.denial;
    stockade__v1__denial__init(d);
    metrics_add_by(METRIC_DENIALS, denial_value(operation), 0, 1);
    metrics_add_by(METRIC_TENANT_DENIALS, sandbox_tenant_metric(s), 0, 1);
    d->operation = operation;
    d->protocol = protocol;
    d->reason = name_in(reasons, NET_REASONS, what->reason);
    d->rule = rule;
    d->destination = o->destination;
    what->template = s->spec.template->name;
    what->most = s->spec.template->network_max;
    what->now = s->net.in_force;
    what->of_rule = rule != 0;
    d->hint = net_hint(what, o->hint, sizeof o->hint);
    d->count = 1;
    o->m.kind = KIND(DENIED);
    o->m.severity = GRAVE(NOTICE);
    o->m.detail_case = DETAIL(DENIAL);
    o->m.denial = d;
    keep_denial(o);
}

// NULL: the address is not synthetic, or its name is forgotten.
static const char *
name_behind(const struct telemetry_box *b, const uint8_t a[16])
{
    static const uint8_t v6[12] = NET_SYNTHETIC_V6_PREFIX;
    static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
    uint32_t index = (uint32_t)a[12] << 24 | (uint32_t)a[13] << 16 | (uint32_t)a[14] << 8 | a[15];
    if (memcmp(a, v4, sizeof v4) == 0 &&
        (index & ~(uint32_t)NET_SYNTHETIC_V4_MASK) == NET_SYNTHETIC_V4)
        index &= NET_SYNTHETIC_V4_MASK;
    else if (memcmp(a, v6, sizeof v6) != 0)
        return NULL;
    for (uint32_t i = 0; b->names != NULL && i < KNOWN_NAMES; i++)
        if (index != 0 && b->names[i].index == index)
            return b->names[i].text;
    return NULL;
}

static void
keep_name(struct telemetry_box *b, const struct relay_report *r)
{
    if (b->names == NULL)
        b->names = calloc(KNOWN_NAMES, sizeof *b->names);
    if (b->names == NULL || r->names == 0)
        return; // then the address itself is shown
    struct box_name *n = NULL;
    for (uint32_t i = 0; i < KNOWN_NAMES && n == NULL; i++)
        if (b->names[i].index == r->names)
            n = &b->names[i];
    if (n == NULL)
        n = &b->names[b->names_n++ % KNOWN_NAMES];
    n->index = r->names;
    (void)snprintf(n->text, sizeof n->text, "%s", r->name);
}

static void
fill_denied(struct event_draft *o, const void *body)
{
    const struct net_event *n = body;
    struct net_refused what = {.reason = (enum net_reason)n->reason};
    show_target(n, o->destination, sizeof o->destination);
    if (n->hook == NET_HOOK_CONNECT || n->hook == NET_HOOK_SENDMSG || n->hook == NET_HOOK_EGRESS) {
        memcpy(what.address, n->address, sizeof what.address);
        what.port = n->port;
        what.protocol = n->protocol;
        what.name = name_behind(o->box, n->address);
    }
    if (what.name != NULL)
        (void)snprintf(o->destination, sizeof o->destination, "%s:%u", what.name, n->port);
    bool socket = n->hook == NET_HOOK_SOCKET;
    fill_denial(o, name_in(hooks, sizeof hooks / sizeof hooks[0], n->hook),
                socket ? socket_name(n)
                : n->hook == NET_HOOK_OPTION || n->hook == NET_HOOK_DEVICE ||
                        n->hook == NET_HOOK_UNIX
                    ? ""
                    : protocol_name(n->protocol),
                0, &what);
}

static void
fill_flow(struct event_draft *o, Stockade__V1__EventKind kind, const char *protocol, uint32_t rule)
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
fill_connect(struct event_draft *o, const void *body)
{
    const struct net_event *n = body;
    show_target(n, o->destination, sizeof o->destination);
    fill_flow(o, KIND(CONNECT), protocol_name(n->protocol), n->rule);
}

// ---- processes and calls

static void
show_process(struct event_draft *o, const struct watch_exec *x)
{
    Stockade__V1__Execution *d = &o->d.execution;
    char argv[WATCH_ARGV + 1];
    uint32_t n = x->args_n < WATCH_ARGV ? x->args_n : WATCH_ARGV;
    size_t at = 0;
    memcpy(argv, x->argv, n);
    argv[n] = '\0';
    o->args[0] = '\0';
    for (uint32_t i = 0; i < n; i += (uint32_t)strlen(argv + i) + 1)
        at = telemetry_add_argument(o->args, at, sizeof o->args, argv + i);
    d->arguments = o->args;
    d->arguments_cut = x->args_n > WATCH_ARGV || at == sizeof o->args - 1;
    d->parent_pid = x->parent;
    d->uid = x->uid;
    d->cwd =
        record_text(x->cwd, x->cwd_n < WATCH_CWD ? x->cwd_n : WATCH_CWD, o->cwd, sizeof o->cwd);
}

static void
fill_exec(struct event_draft *o, const void *body)
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
    d->on_socket = x->socket != 0;
    d->unprofiled = x->fresh != 0;
    d->unnamed_argument = telemetry_names_nameless(x);
    show_process(o, x);
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
    if (o->watch != NULL)
        record_execution(o->watch->record, &r);
}

static void
fill_exit(struct event_draft *o, const void *body)
{
    const struct watch_exit *x = body;
    stockade__v1__process_exit__init(&o->d.exit);
    o->d.exit.code = x->code;
    o->d.exit.signal = x->signal;
    o->d.exit.lived_ns = x->lived_ns;
    o->m.detail_case = DETAIL(EXIT);
    o->m.exit = &o->d.exit;
}

static const char *const file_operations[WATCH_FILE_OPS] = {
    [WATCH_FILE_OPEN] = "open",         [WATCH_FILE_LOOK] = "stat",
    [WATCH_FILE_RENAME] = "rename",     [WATCH_FILE_LINK] = "link",
    [WATCH_FILE_SYMLINK] = "symlink",   [WATCH_FILE_UNLINK] = "unlink",
    [WATCH_FILE_TRUNCATE] = "truncate", [WATCH_FILE_EXEC] = "exec",
    [WATCH_FILE_PRELOAD] = "preload",
};

static void
fill_open(struct event_draft *o, const void *body)
{
    const struct watch_open *x = body;
    stockade__v1__file_open__init(&o->d.file);
    uint32_t n = x->path_n < WATCH_PATH ? x->path_n : WATCH_PATH;
    o->d.file.path = record_text(x->path, n, o->text, sizeof o->text);
    uint32_t more = x->resolved_n < WATCH_PATH ? x->resolved_n : WATCH_PATH;
    o->d.file.resolved = record_text(x->resolved, more, o->more, sizeof o->more);
    o->d.file.operation = name_in(file_operations, WATCH_FILE_OPS, x->op);
    o->d.file.flags = x->flags;
    o->d.file.error = x->result < 0 ? (uint32_t)-x->result : 0;
    o->m.detail_case = DETAIL(FILE);
    o->m.file = &o->d.file;
}

static void
fill_signal(struct event_draft *o, const void *body)
{
    const struct watch_signal *x = body;
    stockade__v1__signal_sent__init(&o->d.signal);
    o->d.signal.signal = x->signal;
    o->d.signal.target = x->target;
    o->m.detail_case = DETAIL(SIGNAL);
    o->m.signal = &o->d.signal;
}

static void
fill_call(struct event_draft *o, const void *body)
{
    const struct watch_syscall *x = body;
    stockade__v1__system_call__init(&o->d.call);
    o->d.call.name = syscall_name(x->number);
    o->text[0] = '\0';
    const char *x32 = syscall_name(x->number & ~UINT32_C(0x40000000));
    if (x->arch == AUDIT_ARCH_I386)
        (void)snprintf(o->text, sizeof o->text, "i386_%u", x->number);
    else if (x->arch == AUDIT_ARCH_X86_64 && x32 != o->d.call.name)
        (void)snprintf(o->text, sizeof o->text, "x32_%s", x32);
    if (o->text[0] != '\0')
        o->d.call.name = o->text;
    o->d.call.result = x->result;
    o->d.call.first = x->args[0];
    o->d.call.second = x->args[1];
    o->d.call.ruled = x->own == WATCH_OWN_RULED;
    if (o->d.call.ruled)
        o->m.severity = GRAVE(INFO);
    o->m.detail_case = DETAIL(CALL);
    o->m.call = &o->d.call;
}

static void
fill_terminal(struct event_draft *o, const void *body)
{
    const struct watch_terminal *x = body;
    stockade__v1__remote_terminal__init(&o->d.terminal);
    o->d.terminal.shell_pid = x->shell;
    o->d.terminal.shell =
        record_text(x->comm, (uint32_t)strnlen(x->comm, sizeof x->comm), o->text, sizeof o->text);
    o->m.detail_case = DETAIL(TERMINAL);
    o->m.terminal = &o->d.terminal;
}

static void
fill_listen(struct event_draft *o, const void *body)
{
    const struct net_event *n = body;
    show_target(n, o->destination, sizeof o->destination);
    fill_flow(o, KIND(LISTEN), protocol_name(n->protocol), UINT32_MAX);
}

static void
fill_score(struct event_draft *o, const void *body)
{
    const struct watch_score *x = body;
    stockade__v1__profile_score__init(&o->d.score);
    o->d.score.unseen = x->unseen;
    o->d.score.window = x->window;
    for (size_t i = 0; i < 3; i++)
        o->calls[i] = syscall_name(x->last[i]);
    o->d.score.calls = o->calls;
    o->d.score.n_calls = 3;
    o->d.score.first_refusal = x->last[0] == WATCH_REFUSED && x->last[1] == WATCH_REFUSED;
    o->m.detail_case = DETAIL(SCORE);
    o->m.score = &o->d.score;
}

static void
fill_nothing(struct event_draft *o, const void *body)
{
    (void)o;
    (void)body;
}

// ---- the relay

static void
relay_destination(struct event_draft *o, const struct relay_report *r, bool by_name)
{
    static const uint8_t nowhere[16];
    bool flow = r->reason == NET_NO_RULE || r->reason == NET_QUOTA || r->reason == NET_NAME_QUOTA;
    if (by_name && r->name[0] != '\0' && flow && r->port != 0)
        (void)snprintf(o->destination, sizeof o->destination, "%.*s:%u", RELAY_NAME_MAX, r->name,
                       r->port);
    else if (by_name && r->name[0] != '\0')
        (void)snprintf(o->destination, sizeof o->destination, "%.*s", RELAY_NAME_MAX, r->name);
    else if (memcmp(r->address, nowhere, sizeof nowhere) != 0)
        net_rule_address(r->address, r->port, o->destination, sizeof o->destination);
    else
        o->destination[0] = '\0';
}

static bool
is_about_name(const struct relay_report *r)
{
    return r->reason == NET_NAME || r->reason == NET_NAME_RATE || r->reason == NET_NAME_ADDRESS;
}

// FLOW_END with an error comes without a FLOW: the connection failed.
static void
count_relay(const struct relay_report *r)
{
    if (r->kind == RELAY_DENIED && !is_about_name(r))
        metrics_add_by(METRIC_RELAYED_DIALS, DIAL_REFUSED, 0, 1);
    else if (r->kind == RELAY_FLOW)
        metrics_add_by(METRIC_RELAYED_DIALS, DIAL_OPENED, 0, 1);
    else if (r->error != 0)
        metrics_add_by(METRIC_RELAYED_DIALS, DIAL_FAILED, 0, 1);
    else if (r->kind == RELAY_FLOW_END && r->reason != NET_REASON_NONE)
        metrics_add(METRIC_RELAYED_CUT, 1);
}

static void
relay_denied(struct event_draft *o, const struct relay_report *r)
{
    bool dns = is_about_name(r);
    struct net_refused what = {.reason = (enum net_reason)r->reason,
                               .name = r->name[0] != '\0' ? r->name : NULL,
                               .port = r->reason == NET_NAME ? 0 : r->port,
                               .protocol = r->protocol};
    memcpy(what.address, r->address, sizeof what.address);
    relay_destination(o, r, true);
    fill_denial(o, dns ? "dns" : "relay", protocol_name(r->protocol),
                r->rule == UINT32_MAX ? 0 : r->rule + 1, &what);
}

// The reason why a permitted destination could not be reached.
static const char *
dial_failure(uint32_t error)
{
    static const struct {
        uint32_t error;
        const char *name;
    } names[] = {
        {ECONNREFUSED, "connection-refused"},
        {ETIMEDOUT, "timed-out"},
        {EHOSTUNREACH, "host-unreachable"},
        {ENETUNREACH, "network-unreachable"},
        {ECONNRESET, "connection-reset"},
        {EADDRNOTAVAIL, "no-local-port"},
        {ENOENT, "name-not-found"},
        {EAGAIN, "name-not-resolved"},
        {EMFILE, "too-many-files"},
        {ENFILE, "too-many-files"},
        {ENOBUFS, "no-memory"},
        {ENOMEM, "no-memory"},
        {EACCES, "refused-by-host"},
        {EPERM, "refused-by-host"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == error)
            return names[i].name;
    return "failed";
}

// Adds the failure to the job's record, among the refusals but with an operation of its own, because the job sees
// only a reset.
static void
keep_failure(struct event_draft *o)
{
    struct record_denial failure = {
        .time_ns = o->time_ns,
        .pid = o->m.pid,
        .rule = o->d.flow.rule,
        .operation = "dial",
        .protocol = o->d.flow.protocol,
        .reason = o->d.flow.reason,
        .destination = o->destination,
    };
    memcpy(failure.comm, o->comm, sizeof failure.comm);
    if (o->watch != NULL)
        record_denial(o->watch->record, &failure);
}

// By name where the job used one.
static void
keep_reached(const struct event_draft *o, const struct relay_report *r)
{
    char text[RELAY_NAME_MAX + 8];
    (void)snprintf(text, sizeof text, "%.*s:%u", RELAY_NAME_MAX, o->text, r->port);
    record_reached(o->watch->record, o->text[0] != '\0' ? text : o->destination);
}

static void
relay_flow(struct event_draft *o, const struct relay_report *r)
{
    static const Stockade__V1__EventKind as[] = {
        [RELAY_LOOKUP] = KIND(LOOKUP),
        [RELAY_FLOW] = KIND(FLOW),
        [RELAY_FLOW_END] = KIND(FLOW_ENDED),
    };
    relay_destination(o, r, false);
    if (r->kind == RELAY_LOOKUP)
        keep_name(o->box, r);
    (void)snprintf(o->text, sizeof o->text, "%.*s", RELAY_NAME_MAX, r->name);
    fill_flow(o, as[r->kind], protocol_name(r->protocol), r->rule);
    o->d.flow.name = o->text;
    o->d.flow.out_bytes = r->out_bytes;
    o->d.flow.in_bytes = r->in_bytes;
    if (r->reason != NET_REASON_NONE)
        o->d.flow.reason = name_in(reasons, NET_REASONS, r->reason);
    if (r->kind == RELAY_FLOW && r->error == 0 && o->watch != NULL)
        keep_reached(o, r);
    if (r->error == 0)
        return;
    o->d.flow.reason = dial_failure(r->error);
    keep_failure(o);
}

void
telemetry_fill_relay(struct event_draft *o, const struct relay_report *r)
{
    count_relay(r);
    if (r->kind == RELAY_DENIED)
        relay_denied(o, r);
    else
        relay_flow(o, r);
}

// ---- the table

static const struct telemetry_kind kinds[EVENT_KINDS] = {
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
    [EVENT_TERMINAL] = {sizeof(struct watch_terminal), KIND(REMOTE_TERMINAL), GRAVE(WARNING),
                        fill_terminal},
    [EVENT_LISTEN] = {sizeof(struct net_event), KIND(LISTEN), GRAVE(INFO), fill_listen},
};

const struct telemetry_kind *
telemetry_kind(uint32_t kind)
{
    return kind < EVENT_KINDS && kinds[kind].fill != NULL ? &kinds[kind] : NULL;
}
