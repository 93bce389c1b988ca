// SPDX-License-Identifier: Apache-2.0
// What rules of the host ask of the kernel: its tables of paths, destinations and system calls; and its counters of the latter two,
// behind which the events of a rule must not fall. An event that was lost is the difference between a counter and the events that came:
//
//   counter as of the last look, 100 ms ago --due--> more than came: the difference counts for the rule (detect_counted())
//
// As of the last look, because an event is counted before it is in the ring.
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"
#include "proto/detect.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/syscall_names.h"
#include "server/sandbox/bpf.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/job.h"
#include "server/sandbox/sandbox.h"
#include "server/telemetry/telemetry.h"
#include "stockade/v1/telemetry_service.pb-c.h"

_Static_assert((int)DETECT_MARKS == (int)NET_MARKS, "the kernel's table has room for all");
_Static_assert((int)DETECT_MARK_RANGES == (int)NET_MARK_RANGES, "the same");
_Static_assert(2 * DETECT_MARK_PREFIXES <= NET_MARK_ENTRIES, "old and new ones during a change");

// ---- tables of the kernel

static uint32_t
write_sensitive(const struct bpf *bpf, const struct anomaly_settings *settings)
{
    static struct sensitive_table table;
    if (bpf->fd[BPF_FD_SENSITIVE] < 0 || bpf->fd[BPF_FD_SENSITIVE_HINTS] < 0)
        return 0;
    uint32_t lost = anomaly_sensitive_fill(&table, &settings->sensitive);
    lost += anomaly_sensitive_rules(&table, settings->rules);
    lost +=
        anomaly_sensitive_write(&table, bpf->fd[BPF_FD_SENSITIVE], bpf->fd[BPF_FD_SENSITIVE_HINTS]);
    metrics_add(METRIC_PATHS_UNWATCHED, lost);
    if (lost > 0)
        log_event(LOG_WARNING, "anomaly", "%u sensitive %s not watched", lost,
                  plural(lost, "path is", "paths are"));
    return lost;
}

static struct net_mark_key
key_of(const struct detect_mark_prefix *p)
{
    struct net_mark_key key = {.prefixlen = p->bits};
    memcpy(key.address, p->address, sizeof key.address);
    for (uint32_t bit = p->bits; bit < 128; bit++) // so that equal prefixes are equal keys
        key.address[bit / 8] &= (uint8_t) ~(0x80U >> bit % 8);
    return key;
}

static struct net_mark
mark_of(const struct detect_mark_prefix *p)
{
    struct net_mark m = {.n = p->n};
    for (uint32_t i = 0; i < p->n; i++) {
        const struct detect_mark_range *from = &p->range[i];
        m.range[i] = (struct net_mark_range){
            .first = from->first,
            .last = from->last,
            .protocol = from->protocol,
            .of = (uint8_t)((from->connect ? NET_MARK_CONNECT : 0) |
                            (from->denied ? NET_MARK_DENIED : 0)),
            .any = from->any,
            .mark = from->mark,
        };
    }
    return m;
}

static bool
has_key(const struct net_mark_key *all, uint32_t n, const struct net_mark_key *key)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(&all[i], key, sizeof *key) == 0)
            return true;
    return false;
}

// Adds before it removes, so that no destination is missed in between. Returns how many entries failed.
static uint32_t
write_marks(struct ruled *r, int fd, const struct detect_kernel *k)
{
    struct net_mark_key now[DETECT_MARK_PREFIXES];
    uint32_t n = 0, lost = 0;
    for (uint32_t i = 0; k != NULL && i < k->prefixes_n; i++) {
        const struct net_mark value = mark_of(&k->prefix[i]);
        now[n] = key_of(&k->prefix[i]);
        if (bpf_map_update_elem(fd, &now[n], &value, BPF_ANY) == 0)
            n++;
        else
            lost++;
    }
    for (uint32_t i = 0; i < r->keys_n; i++)
        if (!has_key(now, n, &r->key[i]))
            (void)bpf_map_delete_elem(fd, &r->key[i]);
    memcpy(r->key, now, n * sizeof now[0]);
    r->keys_n = n;
    return lost;
}

// The programs' own part of the table stays as it is.
static uint32_t
write_calls(struct ruled *r, int fd, const struct detect_kernel *k)
{
    uint8_t table[WATCH_SYSCALLS];
    uint32_t zero = 0, lost = 0;
    if (!r->has_calls && bpf_map_lookup_elem(fd, &zero, r->calls) < 0)
        return k != NULL ? k->calls_n : 0;
    r->has_calls = true;
    memcpy(table, r->calls, sizeof table);
    r->numbers_n = 0;
    for (uint32_t i = 0; k != NULL && i < k->calls_n; i++) {
        const int number = syscall_number(k->call[i]);
        if (number < 0 || number >= WATCH_SYSCALLS - 1) {
            log_event(LOG_WARNING, "anomaly",
                      "this host has no system call %.32s, which a rule names", k->call[i]);
            lost++;
            continue;
        }
        table[number] |= WATCH_CALL_RULED;
        r->number[r->numbers_n++] = (uint16_t)number;
    }
    if (bpf_map_update_elem(fd, &zero, table, BPF_ANY) == 0)
        return lost;
    r->numbers_n = 0;
    return k != NULL ? k->calls_n : 0;
}

// ---- counters

static const __u64 *
counters_of(const struct anomaly *a, const struct sandbox *s)
{
    const struct bpf *bpf = a->srv->bpf;
    return bpf != NULL && bpf->net != NULL && s->slot < BPF_SLOTS ? bpf->net[s->slot].marked : NULL;
}

// What is counted so far belongs to earlier rules.
static void
forget(struct anomaly *a, struct sandbox *s)
{
    const __u64 *marked = counters_of(a, s);
    struct anomaly_block *b = marked != NULL ? anomaly_block_of(a, s) : NULL;
    for (uint32_t i = 0; b != NULL && i < NET_MARKS; i++)
        b->marks.due[i] = b->marks.got[i] = marked[i];
}

void
anomaly_ruled_write(struct anomaly *a)
{
    const struct bpf *bpf = a->srv->bpf;
    struct ruled *r = &a->ruled;
    const struct detect_kernel *k = detect_kernel(a->settings->rules);
    uint32_t lost = 0;
    if (bpf == NULL)
        return;
    (void)write_sensitive(bpf, a->settings);
    if (bpf->fd[BPF_FD_MARKS] >= 0)
        lost += write_marks(r, bpf->fd[BPF_FD_MARKS], k);
    if (bpf->fd[BPF_FD_CALLS] >= 0)
        lost += write_calls(r, bpf->fd[BPF_FD_CALLS], k);
    r->marks_n = k != NULL ? k->marks_n : 0;
    r->version++;
    metrics_add(METRIC_RULED_UNWATCHED, lost);
    if (lost > 0)
        log_event(LOG_WARNING, "anomaly", "%u %s of rules not watched", lost,
                  plural(lost, "destination or system call", "destinations or system calls"));
    if (r->marks_n == 0)
        return;
    list_each(it, sandboxes_owned(a->srv->sandboxes))
        forget(a, list_entry(it, struct sandbox, node));
}

// The number of a call in the tables of this file; -1: no rule names it.
static int
index_of(const struct ruled *r, uint32_t number)
{
    for (uint32_t i = 0; i < r->numbers_n; i++)
        if (r->number[i] == number)
            return (int)i;
    return -1;
}

void
anomaly_ruled_event(struct anomaly *a, struct anomaly_block *b, struct anomaly_job *j,
                    const struct event *event, const void *body)
{
    struct net_event n;
    struct watch_syscall call;
    if (event->class == CLASS_RULED_NETWORK && event->size >= sizeof n) {
        memcpy(&n, body, sizeof n);
        for (uint32_t i = 0; i < a->ruled.marks_n; i++)
            b->marks.got[i] += n.marks >> i & 1;
    } else if (event->class == CLASS_RULED_CALL && event->size >= sizeof call && j != NULL) {
        memcpy(&call, body, sizeof call);
        const int i = index_of(&a->ruled, call.number);
        if (i >= 0 && j->calls_of == a->ruled.version)
            j->calls.got[i]++;
    }
}

// ---- lost events

// The difference counts once; an event that comes late makes up for another one.
static uint64_t
missing(uint64_t due, uint64_t *got)
{
    const uint64_t lost = due > *got ? due - *got : 0;
    *got += lost;
    return lost;
}

static void
begin(Stockade__V1__Event *m, const struct sandbox *s, const struct job *j)
{
    stockade__v1__event__init(m);
    m->kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL;
    m->sandbox_id = (char *)(uintptr_t)s->id.id;
    m->sandbox_name = (char *)(uintptr_t)s->spec.name;
    m->tenant = (char *)(uintptr_t)s->tenant->name;
    m->template_ = s->spec.template->name;
    m->process_id = j != NULL ? (char *)(uintptr_t)job_id(j) : m->process_id;
}

static void
lost_connections(struct anomaly *a, struct sandbox *s, uint32_t mark, uint64_t n)
{
    struct detect *d = a->settings->rules;
    struct detect_event ev;
    Stockade__V1__Event m;
    char text[80];
    begin(&m, s, s->jobs_n == 1 ? job_of_sandbox(s->jobs.next) : NULL);
    detect_fill(&m, (uint64_t)now_ns(CLOCK_BOOTTIME), &ev);
    ev.times = n;
    if (detect_mark_destination(d, mark, &ev, text, sizeof text))
        anomaly_counted(a, s, &m, (int)detect_kernel(d)->mark_rule[mark], &ev);
}

static void
lost_calls(struct anomaly *a, struct sandbox *s, const struct job *j, uint32_t number, uint64_t n)
{
    struct detect_event ev;
    Stockade__V1__Event m;
    begin(&m, s, j);
    detect_fill(&m, (uint64_t)now_ns(CLOCK_BOOTTIME), &ev);
    ev.times = n;
    ev.ruled = true;
    detect_set_text(&ev, DETECT_CALL, syscall_name(number));
    anomaly_counted(a, s, &m, -1, &ev);
}

void
anomaly_ruled_look(struct anomaly *a, struct anomaly_block *b, struct sandbox *s, bool last)
{
    const __u64 *marked = counters_of(a, s);
    for (uint32_t i = 0; marked != NULL && i < a->ruled.marks_n; i++) {
        const uint64_t now = *(const volatile __u64 *)&marked[i];
        const uint64_t lost = missing(last ? now : b->marks.due[i], &b->marks.got[i]);
        b->marks.due[i] = now;
        if (lost > 0)
            lost_connections(a, s, i, lost);
    }
}

void
anomaly_ruled_calls(void *anomaly, struct sandbox *s, struct job *job,
                    const struct watch_account *account)
{
    struct anomaly *a = anomaly;
    const struct ruled *r = &a->ruled;
    struct anomaly_job *j = *job_notes(job, a->observer);
    if (r->numbers_n == 0 || j == NULL)
        return;
    for (uint32_t i = 0; i < r->numbers_n; i++) {
        const uint64_t now = account->syscalls[r->number[i]];
        if (j->calls_of != r->version) // the rules are newer than the job
            j->calls.due[i] = j->calls.got[i] = now;
        const uint64_t lost = missing(j->calls.due[i], &j->calls.got[i]);
        j->calls.due[i] = now;
        if (lost > 0)
            lost_calls(a, s, job, r->number[i], lost);
    }
    j->calls_of = r->version;
}

void
anomaly_ruled_end(struct anomaly *a, struct sandbox *s, struct job *job, struct anomaly_job *j)
{
    const struct ruled *r = &a->ruled;
    for (uint32_t i = 0; j->calls_of == r->version && i < r->numbers_n; i++) {
        const uint64_t lost = missing(j->calls.due[i], &j->calls.got[i]);
        if (lost > 0)
            lost_calls(a, s, job, r->number[i], lost);
    }
}
