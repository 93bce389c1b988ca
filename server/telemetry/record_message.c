// SPDX-License-Identifier: Apache-2.0
// See record.h: makes the message from a record and the kernel's counters, and shortens it to fit into a result.
#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "finding.h"
#include "proto/utf8.h"
#include "server/network/witness.h"
#include "server/base/syscall_names.h"

static Google__Protobuf__Timestamp *
time_of(struct arena *a, int64_t ns)
{
    return wire_make_time(a, ns / 1000000000, (int32_t)(ns % 1000000000));
}

const char *
record_class_name(uint32_t class)
{
    static const char *const names[EVENT_CLASSES] = {
        [CLASS_DENIAL] = "denial",         [CLASS_ALARM] = "alarm",
        [CLASS_PROCESS] = "exec",          [CLASS_FILE] = "file",
        [CLASS_NETWORK] = "network",       [CLASS_SIGNAL] = "signal",
        [CLASS_SYSCALL] = "syscall",       [CLASS_UNCOUNTED] = "uncounted",
        [CLASS_PROFILE] = "profile",       [CLASS_EXIT] = "exit",
        [CLASS_NEW] = "new-executable",    [CLASS_RULED_NETWORK] = "ruled-network",
        [CLASS_RULED_CALL] = "ruled-call",
    };
    return class < EVENT_CLASSES && names[class] != NULL ? names[class] : "other";
}

// Length of one character that is not a control character, or 0.
static size_t
good_character(const char *s, size_t n)
{
    uint32_t code = 0;
    size_t length = utf8_decode(s, n, &code);
    return code < 0x20 || (code >= 0x7f && code < 0xa0) ? 0 : length;
}

const char *
record_text(const char *bytes, size_t n, char *out, size_t out_n)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    size_t at = 0;
    for (size_t i = 0; i < n && bytes[i] != '\0';) {
        size_t good = good_character(bytes + i, n - i);
        const char *from = good > 0 ? bytes + i : replacement;
        size_t more = good > 0 ? good : sizeof replacement - 1;
        if (at + more >= out_n)
            break;
        memcpy(out + at, from, more);
        at += more;
        i += good > 0 ? good : 1;
    }
    out[at] = '\0';
    return out;
}

// ---- lists, each shortened to the remaining `room`

// Removes entries from the middle that do not fit, and subtracts the size of the others from `room`.
static void
keep_ends(Stockade__V1__Record *m, void *list, size_t *n, size_t *room)
{
    ProtobufCMessage **all = list;
    size_t first = 0;
    size_t last = *n;
    for (bool front = true; first < last; front = !front) {
        size_t bytes =
            protobuf_c_message_get_packed_size(all[front ? first : last - 1]) + 5; // tag and length
        if (bytes > *room)
            break;
        *room -= bytes;
        first += front;
        last -= !front;
    }
    m->cut = m->cut || first < last;
    memmove(all + first, all + last, (*n - last) * sizeof(void *));
    *n -= last - first;
}

static bool
add_denials(Stockade__V1__Record *m, const struct record *r, struct arena *a, size_t *room)
{
    m->denials_total = r->denials_total + r->lost[CLASS_DENIAL];
    m->denials = arena_alloc(a, sizeof(void *) * (r->denials_n + 1));
    for (uint32_t i = 0; m->denials != NULL && i < r->denials_n; i++) {
        const struct record_denial *from = &r->denials[i];
        Stockade__V1__Denial *to = wire_make(a, &stockade__v1__denial__descriptor);
        if (to == NULL)
            return false;
        const char *hint = from->hint != NULL ? from->hint : "";
        to->time = time_of(a, from->time_ns);
        to->pid = from->pid;
        to->comm = arena_copy(a, from->comm, strlen(from->comm));
        to->operation = from->operation;
        to->destination = arena_copy(a, from->destination, strlen(from->destination));
        to->protocol = from->protocol;
        to->reason = from->reason;
        to->hint = arena_copy(a, hint, strlen(hint));
        to->rule = from->rule;
        to->count = from->count;
        if (to->time == NULL || to->comm == NULL || to->destination == NULL || to->hint == NULL)
            return false;
        m->denials[m->n_denials++] = to;
    }
    if (m->denials == NULL)
        return false;
    keep_ends(m, m->denials, &m->n_denials, room);
    return true;
}

static bool
add_executions(Stockade__V1__Record *m, const struct record *r, struct arena *a, size_t *room)
{
    m->executed_total = r->executions_total;
    m->executed = arena_alloc(a, sizeof(void *) * (r->executions_n + 1));
    for (uint32_t i = 0; m->executed != NULL && i < r->executions_n; i++) {
        const struct record_execution *from = &r->executions[i];
        Stockade__V1__Execution *to = wire_make(a, &stockade__v1__execution__descriptor);
        if (to == NULL)
            return false;
        char hash[17];
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, from->args_hash);
        to->time = time_of(a, from->time_ns);
        to->pid = from->pid;
        to->path = arena_copy(a, from->path, strlen(from->path));
        to->args_hash = arena_copy(a, hash, sizeof hash - 1);
        to->inode = from->inode;
        to->unnamed = from->unnamed;
        to->count = from->count;
        if (to->time == NULL || to->path == NULL || to->args_hash == NULL)
            return false;
        m->executed[m->n_executed++] = to;
    }
    if (m->executed == NULL)
        return false;
    keep_ends(m, m->executed, &m->n_executed, room);
    return true;
}

static bool
add_tags(Stockade__V1__Finding *to, const struct finding *from, struct arena *a)
{
    const char *tags[FINDING_TAGS_MAX];
    const uint32_t n = finding_tag_list(from, tags);
    to->tags = arena_alloc(a, (n + 1) * sizeof(void *));
    for (uint32_t i = 0; to->tags != NULL && i < n; i++) {
        to->tags[i] = arena_copy(a, tags[i], strlen(tags[i]));
        if (to->tags[to->n_tags++] == NULL)
            return false;
    }
    return to->tags != NULL;
}

static bool
add_findings(Stockade__V1__Record *m, const struct record *r, struct arena *a, size_t *room)
{
    m->findings_total = r->findings_total;
    m->findings = arena_alloc(a, sizeof(void *) * (r->findings_n + 1));
    for (uint32_t i = 0; m->findings != NULL && i < r->findings_n; i++) {
        const struct finding *from = &r->findings[i];
        Stockade__V1__Finding *to = wire_make(a, &stockade__v1__finding__descriptor);
        if (to == NULL)
            return false;
        to->time = time_of(a, (int64_t)from->time_ns);
        to->rule = from->rule;
        to->severity = (Stockade__V1__Severity)from->severity;
        to->text = arena_copy(a, from->text, strlen(from->text));
        to->score = from->score;
        to->threshold = from->threshold;
        to->response = finding_response_name(from->response);
        to->pid = from->pid;
        to->comm = arena_copy(a, from->comm, strlen(from->comm));
        to->sequence = from->sequence;
        to->tenant_rule = from->tenant_rule;
        to->silence_id = arena_copy(a, from->silence, strlen(from->silence));
        to->silenced = from->silenced;
        if (to->time == NULL || to->text == NULL || to->comm == NULL || to->silence_id == NULL ||
            !add_tags(to, from, a))
            return false;
        m->findings[m->n_findings++] = to;
    }
    if (m->findings == NULL)
        return false;
    keep_ends(m, m->findings, &m->n_findings, room);
    return true;
}

// ---- figures

static int
more_calls_first(const void *a, const void *b)
{
    const Stockade__V1__SyscallCount *x = *(Stockade__V1__SyscallCount *const *)a;
    const Stockade__V1__SyscallCount *y = *(Stockade__V1__SyscallCount *const *)b;
    return (x->count < y->count) - (x->count > y->count);
}

static Stockade__V1__SyscallCount *
count(struct arena *a, const char *name, uint64_t n)
{
    Stockade__V1__SyscallCount *m = wire_make(a, &stockade__v1__syscall_count__descriptor);
    if (m != NULL) {
        m->name = name;
        m->count = n;
    }
    return m;
}

static bool
add_syscalls(Stockade__V1__Record *m, const struct watch_account *w, struct arena *a)
{
    static const char *const errors[WATCH_ERRORS] = {
        [WATCH_DENIED] = "denied", [WATCH_MISSING] = "missing", [WATCH_AGAIN] = "again",
        [WATCH_FULL] = "full",     [WATCH_NOSYS] = "nosys",     [WATCH_INVALID] = "invalid",
        [WATCH_OTHER] = "other",
    };
    m->by_number = arena_alloc(a, sizeof(void *) * WATCH_SYSCALLS);
    m->by_error = arena_alloc(a, sizeof(void *) * WATCH_ERRORS);
    if (m->by_number == NULL || m->by_error == NULL)
        return false;
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++) {
        m->syscalls += w->syscalls[i];
        if (w->syscalls[i] == 0)
            continue;
        Stockade__V1__SyscallCount *c = count(a, syscall_name(i), w->syscalls[i]);
        if (c == NULL)
            return false;
        m->by_number[m->n_by_number++] = c;
    }
    for (uint32_t i = WATCH_OK + 1; i < WATCH_ERRORS; i++) {
        m->syscalls_failed += w->errors[i];
        if (w->errors[i] == 0)
            continue;
        Stockade__V1__SyscallCount *c = count(a, errors[i], w->errors[i]);
        if (c == NULL)
            return false;
        m->by_error[m->n_by_error++] = c;
    }
    qsort(m->by_number, m->n_by_number, sizeof(void *), more_calls_first);
    return true;
}

static void
add_account(Stockade__V1__Record *m, const struct watch_account *w)
{
    m->forks = w->forks;
    m->execs = w->execs;
    m->exits = w->exits;
    m->exits_by_signal = w->exits_by_signal;
    m->signals = w->signals;
    m->opens_write = w->opens_write;
    m->opens_sensitive = w->opens_sensitive;
    m->unlinks = w->unlinks;
    m->renames = w->renames;
    m->io_urings = w->io_urings;
    m->unnamed_execs = w->memfd_execs;
    m->oom_kills = w->ooms;
}

// ---- completeness

static Stockade__V1__Lost *
lost(struct arena *a, const struct record *r, uint32_t class)
{
    Stockade__V1__Lost *m = wire_make(a, &stockade__v1__lost__descriptor);
    if (m == NULL)
        return NULL;
    m->event_class = record_class_name(class);
    m->events = r->lost[class];
    m->cpus = arena_alloc(a, sizeof *m->cpus * RECORD_CPUS);
    for (uint32_t cpu = 0; m->cpus != NULL && cpu < RECORD_CPUS; cpu++)
        if ((r->lost_cpus[class][cpu / 64] >> cpu % 64 & 1) != 0)
            m->cpus[m->n_cpus++] = cpu;
    return m->cpus != NULL ? m : NULL;
}

static bool
copy_notes(const char ***to, size_t *to_n, const char *const *from, size_t n, struct arena *a)
{
    *to = arena_alloc(a, sizeof(char *) * (n + 1)); // with room for one more entry
    for (size_t i = 0; *to != NULL && i < n; i++) {
        const char *text = arena_copy(a, from[i], strlen(from[i]));
        if (text == NULL)
            return false;
        (*to)[(*to_n)++] = text;
    }
    return *to != NULL;
}

static bool
add_completeness(Stockade__V1__Record *m, const struct record *r, const struct record_view *v,
                 struct arena *a)
{
    Stockade__V1__Completeness *c = wire_make(a, &stockade__v1__completeness__descriptor);
    if (c == NULL)
        return false;
    m->completeness = c;
    c->complete = v->whole; // unless something was lost or is not listed
    c->start_time = time_of(a, r->start_ns);
    c->end_time = time_of(a, v->end_ns);
    c->lost = arena_alloc(a, sizeof(void *) * EVENT_CLASSES);
    if (c->start_time == NULL || c->end_time == NULL || c->lost == NULL)
        return false;
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++) {
        if (r->lost[class] == 0)
            continue;
        c->complete = false;
        c->lost[c->n_lost] = lost(a, r, class);
        if (c->lost[c->n_lost++] == NULL)
            return false;
    }
    return copy_notes(&c->hooks, &c->n_hooks, v->hooks, v->hooks_n, a) &&
           copy_notes(&c->missing, &c->n_missing, v->missing, v->missing_n, a);
}

static const char more_than_listed[] =
    "lists: some refusals, executions, findings or destinations are not listed; the totals include all";

// Entries that are not listed count as missing.
static void
note_cut(Stockade__V1__Record *m)
{
    Stockade__V1__Completeness *c = m->completeness;
    if (!m->cut)
        return;
    c->complete = false;
    c->missing[c->n_missing++] = more_than_listed;
}

// Short, and the first ones only, so they fit always.
static bool
add_reached(Stockade__V1__Record *m, const struct record *r, struct arena *a)
{
    m->reached_total = r->reached_total;
    return copy_notes(&m->reached, &m->n_reached, (const char *const *)r->reached, r->reached_n, a);
}

static void
fill_witnesses(const struct witness *w, Stockade__V1__KernelTraffic *k,
               Stockade__V1__RelayTraffic *r)
{
    k->connections = w->after.connections;
    k->resets = w->after.resets;
    k->tcp_sent_bytes = w->after.tcp_sent;
    k->tcp_acknowledged_bytes = w->after.tcp_acknowledged;
    k->tcp_received_bytes = w->after.tcp_received;
    k->udp_sent_bytes = w->after.udp_sent;
    k->udp_received_bytes = w->after.udp_received;
    r->connections = w->relay.connections;
    r->reported = w->reported;
    r->tcp_out_bytes = w->relay.tcp_out;
    r->tcp_left_bytes = w->relay.tcp_left;
    r->tcp_in_bytes = w->relay.tcp_in;
    r->tcp_unsent_bytes = w->relay.tcp_unsent;
    r->udp_out_bytes = w->relay.udp_out;
    r->udp_dropped_bytes = w->relay.udp_dropped;
    r->udp_in_bytes = w->relay.udp_in;
}

static bool
add_witnesses(Stockade__V1__Record *m, const struct witness *w, struct arena *a)
{
    static const Stockade__V1__Agreement says[] = {
        [WITNESS_AGREE] = STOCKADE__V1__AGREEMENT__AGREEMENT_YES,
        [WITNESS_DISAGREE] = STOCKADE__V1__AGREEMENT__AGREEMENT_NO,
        [WITNESS_UNKNOWN] = STOCKADE__V1__AGREEMENT__AGREEMENT_UNKNOWN,
    };
    Stockade__V1__TrafficWitnesses *t = wire_make(a, &stockade__v1__traffic_witnesses__descriptor);
    if (t == NULL)
        return false;
    t->kernel = wire_make(a, &stockade__v1__kernel_traffic__descriptor);
    t->relay = wire_make(a, &stockade__v1__relay_traffic__descriptor);
    if (t->kernel == NULL || t->relay == NULL)
        return false;
    fill_witnesses(w, t->kernel, t->relay);
    t->agreement = says[witness_judge(w, &t->reason)];
    m->witnesses = t;
    return true;
}

Stockade__V1__Record *
record_message(const struct record *r, const struct record_view *v, struct arena *a)
{
    Stockade__V1__Record *m = wire_make(a, &stockade__v1__record__descriptor);
    if (m == NULL)
        return NULL;
    m->cut = r->cut;
    if (v->network != NULL) {
        m->network = wire_make(a, &stockade__v1__network_use__descriptor);
        if (m->network == NULL)
            return NULL;
        *m->network = *v->network;
    }
    if (v->witness != NULL && !add_witnesses(m, v->witness, a))
        return NULL;
    if (v->account != NULL)
        add_account(m, v->account);
    if (v->account != NULL && v->syscalls && !add_syscalls(m, v->account, a))
        return NULL;
    if (!add_completeness(m, r, v, a) || !add_reached(m, r, a))
        return NULL;
    size_t used = protobuf_c_message_get_packed_size(&m->base) + sizeof more_than_listed + 8;
    size_t room = used < RECORD_BYTES ? RECORD_BYTES - used : 0;
    size_t half = room / 2; // refusals and findings have priority over executed programs
    size_t left = room - half;
    if (!add_denials(m, r, a, &half))
        return NULL;
    left += half;
    if (!add_findings(m, r, a, &left) || !add_executions(m, r, a, &left))
        return NULL;
    note_cut(m);
    return m;
}
