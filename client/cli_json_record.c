// Records and events as JSON. See cli_json.h.
#include <stdio.h>
#include <time.h>

#include "cli.h"
#include "cli_json.h"

#define SET(object, name, value) (void)json_object_set_new((object), (name), (value))

static json_t *
number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *
text(const char *value)
{
    json_t *t = json_string(value);
    return t != NULL ? t : json_string("?");
}

static json_t *
texts(const char *const *values, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, text(values[i]));
    return all;
}

json_t *
json_of_network_use(const struct stockade_network_use *n)
{
    json_t *o = json_object();
    SET(o, "out_bytes", number(n->out_bytes));
    SET(o, "out_packets", number(n->out_packets));
    SET(o, "in_bytes", number(n->in_bytes));
    SET(o, "in_packets", number(n->in_packets));
    SET(o, "connects_allowed", number(n->connects_allowed));
    SET(o, "connects_denied", number(n->connects_denied));
    SET(o, "queries", number(n->queries));
    SET(o, "shared", json_boolean(n->shared));
    return o;
}

static json_t *
counts(const struct stockade_count *c, size_t n)
{
    json_t *o = json_object();
    for (size_t i = 0; i < n; i++)
        SET(o, c[i].name, number(c[i].count));
    return o;
}

static json_t *
denials(const struct stockade_record *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->denials_n; i++) {
        const struct stockade_denial *d = &r->denials[i];
        json_t *o = json_object();
        SET(o, "time", json_of_time(d->time_ms));
        SET(o, "pid", number(d->pid));
        SET(o, "comm", text(d->comm));
        SET(o, "operation", text(d->operation));
        SET(o, "destination", text(d->destination));
        SET(o, "protocol", text(d->protocol));
        SET(o, "reason", text(d->reason));
        SET(o, "hint", text(d->hint));
        SET(o, "rule", number(d->rule));
        SET(o, "count", number(d->count));
        (void)json_array_append_new(all, o);
    }
    return all;
}

static json_t *
executions(const struct stockade_record *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->executed_n; i++) {
        const struct stockade_execution *x = &r->executed[i];
        json_t *o = json_object();
        SET(o, "time", json_of_time(x->time_ms));
        SET(o, "pid", number(x->pid));
        SET(o, "path", text(x->path));
        SET(o, "args_hash", text(x->args_hash));
        SET(o, "inode", number(x->inode));
        SET(o, "unnamed", json_boolean(x->unnamed));
        SET(o, "count", number(x->count));
        (void)json_array_append_new(all, o);
    }
    return all;
}

static json_t *
losses(const struct stockade_record *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->lost_n; i++) {
        json_t *o = json_object(), *cpus = json_array();
        for (size_t n = 0; n < r->lost[i].cpus_n; n++)
            (void)json_array_append_new(cpus, number(r->lost[i].cpus[n]));
        SET(o, "class", text(r->lost[i].class_name));
        SET(o, "events", number(r->lost[i].events));
        SET(o, "cpus", cpus);
        (void)json_array_append_new(all, o);
    }
    return all;
}

static json_t *
completeness(const struct stockade_record *r)
{
    json_t *o = json_object();
    SET(o, "complete", json_boolean(r->complete));
    SET(o, "start_time", json_of_time(r->start_ms));
    SET(o, "end_time", json_of_time(r->end_ms));
    SET(o, "lost", losses(r));
    SET(o, "hooks", texts(r->hooks, r->hooks_n));
    SET(o, "missing", texts(r->missing, r->missing_n));
    return o;
}

json_t *
json_of_record(const struct stockade_record *r)
{
    json_t *o = json_object(), *findings = json_array();
    SET(o, "network", r->network != NULL ? json_of_network_use(r->network) : json_null());
    SET(o, "syscalls", number(r->syscalls));
    SET(o, "syscalls_failed", number(r->syscalls_failed));
    SET(o, "by_number", counts(r->by_number, r->by_number_n));
    SET(o, "by_error", counts(r->by_error, r->by_error_n));
    SET(o, "forks", number(r->forks));
    SET(o, "execs", number(r->execs));
    SET(o, "exits", number(r->exits));
    SET(o, "exits_by_signal", number(r->exits_by_signal));
    SET(o, "signals", number(r->signals));
    SET(o, "opens_write", number(r->opens_write));
    SET(o, "opens_sensitive", number(r->opens_sensitive));
    SET(o, "unlinks", number(r->unlinks));
    SET(o, "renames", number(r->renames));
    SET(o, "io_urings", number(r->io_urings));
    SET(o, "unnamed_execs", number(r->unnamed_execs));
    SET(o, "oom_kills", number(r->oom_kills));
    SET(o, "denials", denials(r));
    SET(o, "denials_total", number(r->denials_total));
    SET(o, "executed", executions(r));
    SET(o, "executed_total", number(r->executed_total));
    for (size_t i = 0; i < r->findings_n; i++)
        (void)json_array_append_new(findings, json_of_finding(&r->findings[i]));
    SET(o, "findings", findings);
    SET(o, "findings_total", number(r->findings_total));
    SET(o, "cut", json_boolean(r->cut));
    SET(o, "completeness", completeness(r));
    return o;
}

// ---- events

static json_t *
fact(const struct stockade_fact *f)
{
    if (f->type == STOCKADE_FACT_NUMBER)
        return number(f->number);
    if (f->type == STOCKADE_FACT_SIGNED)
        return json_integer((json_int_t)f->number);
    if (f->type == STOCKADE_FACT_REAL)
        return json_real(f->real);
    if (f->type == STOCKADE_FACT_BOOL)
        return json_boolean(f->number != 0);
    return text(f->text);
}

json_t *
json_of_event(const struct stockade_event *e)
{
    json_t *o = json_object(), *detail = json_object();
    SET(o, "sequence", number(e->sequence));
    SET(o, "time", json_of_time(e->time_ns / 1000000));
    SET(o, "kind", text(e->kind));
    SET(o, "severity", text(cli_severity_name(e->severity)));
    SET(o, "sandbox_id", text(e->sandbox_id));
    SET(o, "process_id", text(e->process_id));
    SET(o, "tenant", text(e->tenant));
    SET(o, "template", text(e->template_name));
    SET(o, "pid", number(e->pid));
    SET(o, "comm", text(e->comm));
    for (size_t i = 0; i < e->facts_n; i++)
        SET(detail, e->facts[i].name, fact(&e->facts[i]));
    SET(o, "detail", detail);
    return o;
}

static json_t *
pressure(const struct stockade_pressure *p)
{
    json_t *o = p->known ? json_object() : json_null();
    if (!p->known)
        return o;
    SET(o, "some_percent", json_real(p->some_centipercent / 100.0));
    SET(o, "some_us", number(p->some_us));
    SET(o, "full_percent", json_real(p->full_centipercent / 100.0));
    SET(o, "full_us", number(p->full_us));
    return o;
}

json_t *
json_of_usage(const struct stockade_usage *u)
{
    json_t *o = json_object();
    SET(o, "sandbox_id", text(u->sandbox_id));
    SET(o, "name", text(u->name));
    SET(o, "tenant", text(u->tenant));
    SET(o, "template", text(u->template_name));
    SET(o, "paused", json_boolean(u->paused));
    SET(o, "jobs", number(u->jobs));
    SET(o, "time", json_of_time(u->time_ms));
    SET(o, "cpu_ns", number(u->cpu_ns));
    SET(o, "throttled_ns", number(u->throttled_ns));
    SET(o, "memory_bytes", number(u->memory_bytes));
    SET(o, "memory_limit_bytes", number(u->memory_limit_bytes));
    SET(o, "pids", number(u->pids));
    SET(o, "pids_limit", number(u->pids_limit));
    SET(o, "io_read_bytes", number(u->io_read_bytes));
    SET(o, "io_write_bytes", number(u->io_write_bytes));
    SET(o, "network", json_of_network_use(&u->network));
    SET(o, "denials", number(u->denials));
    SET(o, "alerts", number(u->alerts));
    SET(o, "forks", number(u->forks));
    SET(o, "execs", number(u->execs));
    SET(o, "lost", number(u->lost));
    SET(o, "cpu_pressure", pressure(&u->cpu));
    SET(o, "memory_pressure", pressure(&u->memory));
    SET(o, "io_pressure", pressure(&u->io));
    SET(o, "unknown", texts(u->unknown, u->unknown_n));
    return o;
}
