// SPDX-License-Identifier: Apache-2.0
// Records, findings and events as JSON. See json.h.
#include <stdio.h>
#include <time.h>

#include "cli.h"
#include "json.h"

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

// The library's JSON text, which is generated from the schema.
json_t *
json_of_message(const void *message)
{
    const char *text = stockade_json(message);
    json_t *o = text != NULL ? json_loads(text, 0, NULL) : NULL;
    stockade_free(text);
    return o;
}

json_t *
json_of_record(const struct stockade_record *r)
{
    return json_of_message(r->message);
}

json_t *
json_of_finding(const struct stockade_finding *f)
{
    return json_of_message(f->message);
}

json_t *
json_of_event(const struct stockade_event *e)
{
    return json_of_message(e->message);
}

json_t *
json_of_gap(uint64_t from, uint64_t to, uint64_t count, const char *reason)
{
    json_t *o = json_object(), *gap = json_object();
    SET(gap, "from_sequence", number(from));
    SET(gap, "to_sequence", number(to));
    SET(gap, "count", number(count));
    SET(gap, "reason", text(reason));
    SET(o, "gap", gap);
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
