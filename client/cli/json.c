// SPDX-License-Identifier: Apache-2.0
// See json.h.
#include "json.h"

#include <errno.h>
#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/utf8.h"
#include "cli.h"
#include "bill.h"
#include "text.h"

static json_t *
integer(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static json_t *
text(const char *value)
{
    json_t *t = json_string(value);
    return t != NULL ? t : json_string("?"); // not UTF-8; the library never passes such text
}

static json_t *
strings(const char *const *values, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, text(values[i]));
    return all;
}

static json_t *
labels(const struct stockade_pair *pairs, size_t n)
{
    json_t *all = json_object();
    for (size_t i = 0; i < n; i++)
        (void)json_object_set_new(all, pairs[i].name, text(pairs[i].value));
    return all;
}

json_t *
json_of_time(int64_t ms)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    char out[64];
    if (ms <= 0 || gmtime_r(&seconds, &tm) == NULL)
        return json_null();
    size_t n = strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, sizeof out - n, ".%03dZ", (int)(ms % 1000));
    return json_string(out);
}

static json_t *
limit_hit(const struct stockade_limit_hit *hit)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "name", text(hit->name));
    (void)json_object_set_new(o, "value", integer(hit->value));
    (void)json_object_set_new(o, "over", integer(hit->over));
    (void)json_object_set_new(o, "count", json_boolean(hit->count));
    return o;
}

static json_t *
json_of_bill(const struct stockade_bill *b)
{
    static const char *const sources[] = {"unknown", "cgroup", "rusage", "broker"};
    static const char *const scopes[] = {"unknown", "job", "sandbox"};
    json_t *o = json_object(), *read_from = json_object();
    for (const struct bill_row *row = bill_rows; row->name != NULL; row++) {
        const struct stockade_figure *f = bill_figure(b, row);
        char from[32];
        if (f->source == STOCKADE_SOURCE_UNKNOWN) {
            (void)json_object_set_new(o, row->name, json_null());
            continue;
        }
        (void)json_object_set_new(o, row->name, integer(f->value));
        (void)snprintf(from, sizeof from, "%s/%s", sources[f->source < 4 ? f->source : 0],
                       scopes[f->scope < 3 ? f->scope : 0]);
        (void)json_object_set_new(read_from, row->name, json_string(from));
    }
    (void)json_object_set_new(o, "sources", read_from);
    (void)json_object_set_new(o, "unknown", strings(b->unknown, b->unknown_n));
    return o;
}

json_t *
json_of_result(const struct stockade_result *r)
{
    json_t *o = json_object(), *also = json_array();
    (void)json_object_set_new(o, "outcome", json_string(cli_outcome_name(r->outcome)));
    (void)json_object_set_new(o, "exit_code", integer(r->exit_code));
    (void)json_object_set_new(o, "signal", integer(r->signal));
    (void)json_object_set_new(o, "reason", text(r->reason));
    (void)json_object_set_new(o, "limit_hit",
                              r->limits_n > 0 ? limit_hit(&r->limits[0]) : json_null());
    for (size_t i = 1; i < r->limits_n; i++)
        (void)json_array_append_new(also, limit_hit(&r->limits[i]));
    (void)json_object_set_new(o, "limits_also_hit", also);
    (void)json_object_set_new(o, "bill", json_of_bill(&r->bill));
    if (r->record != NULL)
        (void)json_object_set_new(o, "record", json_of_record(r->record));
    return o;
}

static json_t *
json_of_limits(const struct stockade_limits *l)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "memory_bytes", integer(l->memory_bytes));
    (void)json_object_set_new(o, "cpu_millis", integer(l->cpu_millis));
    (void)json_object_set_new(o, "cpu_weight", integer(l->cpu_weight));
    (void)json_object_set_new(o, "cpu_time_ms", integer(l->cpu_time_ms));
    (void)json_object_set_new(o, "wall_ms", integer(l->wall_ms));
    (void)json_object_set_new(o, "pids", integer(l->pids));
    (void)json_object_set_new(o, "files", integer(l->files));
    (void)json_object_set_new(o, "file_size_bytes", integer(l->file_size_bytes));
    (void)json_object_set_new(o, "disk_bytes", integer(l->disk_bytes));
    (void)json_object_set_new(o, "inodes", integer(l->inodes));
    (void)json_object_set_new(o, "output_bytes", integer(l->output_bytes));
    return o;
}

static json_t *
mounts(const struct stockade_mount *m, size_t n)
{
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, json_pack("{ss ss sb}", "volume", m[i].volume, "path",
                                                   m[i].path, "read_only", (int)m[i].read_only));
    return all;
}

static json_t *
sleep_of(const struct stockade_sleep *l)
{
    if (l == NULL)
        return json_null();
    json_t *o = json_object();
    (void)json_object_set_new(o, "sleep_time", json_of_time(l->asleep_ms));
    (void)json_object_set_new(o, "wake_time", json_of_time(l->awake_ms));
    (void)json_object_set_new(o, "idle", json_boolean(l->idle));
    (void)json_object_set_new(o, "fell_back", json_boolean(l->fell_back));
    (void)json_object_set_new(o, "bytes", integer(l->bytes));
    (void)json_object_set_new(o, "inodes", integer(l->inodes));
    (void)json_object_set_new(o, "processes_ended", integer(l->processes_ended));
    (void)json_object_set_new(o, "contexts_ended", integer(l->contexts_ended));
    (void)json_object_set_new(o, "operations_ended", integer(l->operations_ended));
    (void)json_object_set_new(o, "connections_closed", integer(l->connections_closed));
    return o;
}

json_t *
json_of_sandbox(const struct stockade_sandbox *b)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "id", text(b->id));
    (void)json_object_set_new(o, "name", text(b->name));
    (void)json_object_set_new(o, "template", text(b->template_name));
    (void)json_object_set_new(o, "state", json_string(cli_state_name(b->state)));
    (void)json_object_set_new(o, "network", json_string(cli_network_name(b->network)));
    (void)json_object_set_new(o, "policy", json_of_policy(&b->policy));
    (void)json_object_set_new(o, "processes", integer(b->processes));
    (void)json_object_set_new(o, "create_time", json_of_time(b->created_ms));
    (void)json_object_set_new(o, "expire_time", json_of_time(b->expires_ms));
    (void)json_object_set_new(o, "limits", json_of_limits(&b->limits));
    (void)json_object_set_new(o, "labels", labels(b->labels, b->labels_n));
    (void)json_object_set_new(o, "volumes", mounts(b->mounts, b->mounts_n));
    (void)json_object_set_new(o, "sleep_after_ms", integer(b->sleep_after_ms));
    (void)json_object_set_new(o, "last_sleep", sleep_of(b->sleep));
    return o;
}

json_t *
json_of_process(const struct stockade_process *p)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "id", text(p->id));
    (void)json_object_set_new(o, "sandbox_id", text(p->sandbox_id));
    (void)json_object_set_new(o, "pid", integer(p->pid));
    (void)json_object_set_new(o, "args", strings(p->args, p->args_n));
    (void)json_object_set_new(o, "start_time", json_of_time(p->started_ms));
    (void)json_object_set_new(o, "output_bytes", integer(p->output_bytes));
    (void)json_object_set_new(o, "terminal", json_boolean(p->terminal));
    (void)json_object_set_new(o, "result",
                              p->result != NULL ? json_of_result(p->result) : json_null());
    return o;
}

static json_t *
json_of_template(const struct stockade_template *t)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "name", text(t->name));
    (void)json_object_set_new(o, "tier", text(t->tier));
    (void)json_object_set_new(o, "limits", json_of_limits(&t->limits));
    (void)json_object_set_new(o, "limits_max", json_of_limits(&t->limits_max));
    (void)json_object_set_new(o, "pool_size", integer(t->pool_size));
    (void)json_object_set_new(o, "pool_ready", integer(t->pool_ready));
    (void)json_object_set_new(o, "disabled", text(t->disabled));
    (void)json_object_set_new(o, "pool_warm", integer(t->pool_warm));
    (void)json_object_set_new(o, "warm_bytes", integer(t->warm_bytes));
    (void)json_object_set_new(o, "warm_failed", text(t->warm_failed));
    (void)json_object_set_new(o, "storage", text(t->on_disk ? "disk" : "memory"));
    return o;
}

json_t *
json_of_info(const struct stockade_info *i)
{
    json_t *o = json_object(), *features = json_array(), *templates = json_array();
    json_t *quotas = json_array();
    for (size_t n = 0; n < i->features_n; n++) {
        json_t *f = json_object();
        (void)json_object_set_new(f, "name", text(i->features[n].name));
        (void)json_object_set_new(f, "available", json_boolean(i->features[n].available));
        (void)json_object_set_new(f, "detail", text(i->features[n].detail));
        (void)json_array_append_new(features, f);
    }
    for (size_t n = 0; n < i->templates_n; n++)
        (void)json_array_append_new(templates, json_of_template(&i->templates[n]));
    (void)json_object_set_new(o, "version", text(i->version));
    (void)json_object_set_new(o, "kernel", text(i->kernel));
    (void)json_object_set_new(o, "cgroups", text(i->cgroups));
    (void)json_object_set_new(o, "nng_version", text(i->nng_version));
    (void)json_object_set_new(o, "uptime_ms", integer(i->uptime_ms));
    (void)json_object_set_new(o, "sandboxes_own", integer(i->sandboxes_own));
    (void)json_object_set_new(o, "sandboxes", integer(i->sandboxes));
    (void)json_object_set_new(o, "processes", integer(i->processes));
    (void)json_object_set_new(o, "tiers", strings(i->tiers, i->tiers_n));
    (void)json_object_set_new(o, "listeners", strings(i->listeners, i->listeners_n));
    (void)json_object_set_new(o, "degraded", strings(i->degraded, i->degraded_n));
    for (size_t n = 0; n < i->quotas_n; n++) {
        const struct stockade_quota *from = &i->quotas[n];
        json_t *q = json_object();
        (void)json_object_set_new(q, "name", text(from->name));
        (void)json_object_set_new(q, "used", integer(from->used));
        (void)json_object_set_new(q, "limit", from->unlimited ? json_null() : integer(from->limit));
        (void)json_array_append_new(quotas, q);
    }
    (void)json_object_set_new(o, "tenant", text(i->tenant));
    (void)json_object_set_new(o, "weight", integer(i->weight));
    (void)json_object_set_new(o, "quotas", quotas);
    (void)json_object_set_new(o, "features", features);
    (void)json_object_set_new(o, "templates", templates);
    return o;
}

json_t *
json_of_error(const struct stockade_error *e)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "code", json_string(stockade_code_name(e->code)));
    (void)json_object_set_new(o, "text", text(e->text));
    (void)json_object_set_new(o, "reason", text(e->reason));
    (void)json_object_set_new(o, "subject", text(e->subject));
    (void)json_object_set_new(o, "hint", text(e->hint));
    (void)json_object_set_new(o, "rule", text(e->rule));
    (void)json_object_set_new(o, "allowed", text(e->allowed));
    (void)json_object_set_new(o, "retry_ms", e->retry_ms != 0 ? integer(e->retry_ms) : json_null());
    return o;
}

// ---- bytes

static char *
base64(const uint8_t *p, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    char *out = malloc((n + 2) / 3 * 4 + 1);
    size_t at = 0;
    for (size_t i = 0; out != NULL && i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        out[at++] = digits[v >> 18];
        out[at++] = digits[v >> 12 & 63];
        out[at++] = digits[i + 1 < n ? v >> 6 & 63 : 64];
        out[at++] = digits[i + 2 < n ? v & 63 : 64];
    }
    if (out != NULL)
        out[at] = '\0';
    return out;
}

// Makes a copy with each invalid byte replaced by U+FFFD. *bad: there was one.
static char *
repaired(const uint8_t *p, size_t n, size_t *out_n, bool *bad)
{
    char *out = malloc(3 * n + 1);
    size_t at = 0;
    for (size_t i = 0; out != NULL && i < n;) {
        size_t length = utf8_decode(p + i, n - i, NULL);
        memcpy(out + at, length > 0 ? (const char *)p + i : UTF8_REPLACEMENT,
               length > 0 ? length : 3);
        at += length > 0 ? length : 3;
        i += length > 0 ? length : 1;
        *bad |= length == 0;
    }
    *out_n = at;
    return out;
}

static int
set_base64(json_t *object, const char *name, const uint8_t *bytes, size_t n)
{
    char key[64];
    char *encoded = base64(bytes, n);
    (void)snprintf(key, sizeof key, "%s_base64", name);
    int rc = encoded == NULL ? -1 : json_object_set_new(object, key, json_string(encoded));
    free(encoded);
    return rc;
}

int
json_set_bytes(json_t *object, const char *name, const void *bytes, size_t n)
{
    bool bad = false;
    size_t text_n = 0;
    char *shown = repaired(bytes, n, &text_n, &bad);
    int rc = shown == NULL ? -1 : json_object_set_new(object, name, json_stringn(shown, text_n));
    free(shown);
    return rc == 0 && bad ? set_base64(object, name, bytes, n) : rc;
}

// Prints ASCII only: some other characters control a terminal (U+009B) or reverse text (U+202E).
static int
put(json_t *value, size_t flags)
{
    errno = 0;
    bool ok =
        value != NULL &&
        json_dumpf(value, stdout, flags | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DBL_DIG)) == 0 &&
        fputc('\n', stdout) >= 0 && fflush(stdout) == 0;
    int sys = errno;
    json_decref(value);
    if (ok)
        return EXIT_OK;
    if (sys == EPIPE)
        return EXIT_PIPE;
    (void)fprintf(stderr, "stockade: cannot write the output%s%s\n", sys != 0 ? ": " : "",
                  sys != 0 ? strerror(sys) : "");
    return EXIT_PROBLEM;
}

int
json_put(json_t *value)
{
    return put(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

int
json_put_list(json_t *array)
{
    return put(array, JSON_INDENT(2));
}

int
json_end_listing(const struct options *o, struct table *t, json_t *array, int code)
{
    if (code == EXIT_OK && o->json)
        code = json_put_list(json_incref(array));
    else if (code == EXIT_OK && !o->quiet && t != NULL)
        table_print(t, stdout);
    json_decref(array);
    table_free(t);
    return code;
}

int
json_put_error(const struct stockade_error *e)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "error", json_of_error(e));
    return json_put(o);
}
