// SPDX-License-Identifier: Apache-2.0
// See outputs.h. A table has the kinds of sinks; each row says whether the configuration wants it and how it is opened.
#include "outputs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "cloudevents.h"
#include "facts.h"
#include "falco.h"
#include "ocsf.h"

enum { PATH_BYTES = POSITION_PATH_MAX, NDJSON_RECORDS = 512, OTLP_RECORDS = 512 };

// ---- Encoders

static int
line_of(char *line, struct sink_bytes *out)
{
    if (line == NULL)
        return -ENOMEM;
    *out = (struct sink_bytes){line, strlen(line)};
    return 0;
}

static int
encode_ocsf(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    (void)cookie;
    return line_of(ocsf_line(event), out);
}

static int
encode_ocsf_gap(void *cookie, uint64_t count, const char *reason, struct sink_bytes *out)
{
    (void)cookie;
    return line_of(ocsf_gap_line(count, reason, now_ns(CLOCK_REALTIME)), out);
}

static const struct delivery_format ndjson = {.content_type = "application/x-ndjson",
                                              .records_max = NDJSON_RECORDS};

static int
encode_log(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    const struct output *o = cookie;
    return otlp_log(o->otlp, event, out);
}

static int
encode_log_gap(void *cookie, uint64_t count, const char *reason, struct sink_bytes *out)
{
    const struct output *o = cookie;
    return otlp_log_gap(o->otlp, count, reason, out);
}

static int
encode_spans(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    const struct output *o = cookie;
    return otlp_spans(o->otlp, event, out);
}

static bool
wants(const struct output *o, const char *kind)
{
    char word[64];
    (void)snprintf(word, sizeof word, " %.60s ", kind);
    return o->kinds == NULL || strstr(o->kinds, " all ") != NULL || strstr(o->kinds, word) != NULL;
}

static int
encode_cloudevent(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    return wants(cookie, event->kind) ? line_of(cloudevents_event(event), out) : 0;
}

static int
encode_cloudevent_gap(void *cookie, uint64_t count, const char *reason, struct sink_bytes *out)
{
    (void)cookie;
    return line_of(cloudevents_gap(count, reason, now_ns(CLOCK_REALTIME)), out);
}

static const struct delivery_format cloudevents = {.content_type = CLOUDEVENTS_TYPE,
                                                   .records_max = 1};
static const struct delivery_format signed_cloudevents = {
    .content_type = CLOUDEVENTS_TYPE, .records_max = 1, .headers = signature_headers};

static void
host_name(char out[HOST_NAME_MAX + 1])
{
    if (gethostname(out, HOST_NAME_MAX) < 0)
        out[0] = '\0';
    out[HOST_NAME_MAX] = '\0';
}

static int
encode_falco(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    char host[HOST_NAME_MAX + 1];
    // Each line is an alert, and a silence has ended those of this finding.
    if (!wants(cookie, event->kind) || fact_number(event, "silenced") != 0)
        return 0;
    host_name(host);
    return line_of(falco_line(event, host), out);
}

static int
encode_falco_gap(void *cookie, uint64_t count, const char *reason, struct sink_bytes *out)
{
    char host[HOST_NAME_MAX + 1];
    (void)cookie;
    host_name(host);
    return line_of(falco_gap_line(count, reason, now_ns(CLOCK_REALTIME), host), out);
}

static const struct delivery_format falco = {.content_type = "application/json", .records_max = 1};

// It takes no events.
static int
encode_nothing(void *cookie, const struct stockade_event *event, struct sink_bytes *out)
{
    (void)cookie;
    (void)event;
    *out = (struct sink_bytes){0};
    return 0;
}

static const struct delivery_format otlp_format = {
    .content_type = "application/x-protobuf",
    .records_max = OTLP_RECORDS,
    .otlp = true,
    .wrap = otlp_wrap,
    .rejected = otlp_rejected,
};

// ---- Stores

static int
store_line(void *cookie, const struct sink_bytes *b, int64_t time_ns)
{
    struct output *o = cookie;
    (void)time_ns;
    return lines_write(o->lines, b->bytes);
}

static int
store_stream(void *cookie, const struct sink_bytes *b, int64_t time_ns)
{
    struct output *o = cookie;
    (void)time_ns;
    return line_stream_write(o->stream, b->bytes, b->n);
}

static int
store_queue(void *cookie, const struct sink_bytes *b, int64_t time_ns)
{
    struct output *o = cookie;
    int r = queue_put(o->queue, b->bytes, b->n, time_ns);
    if (r == 0)
        delivery_wake(o->delivery);
    return r;
}

// ---- Opening

struct opener {
    struct outputs *all;
    uv_loop_t *loop;
    const struct exporter_config *config;
    struct output *o;
    struct err *e;
};

// Every sink that is not a file of its own has a folder.
static int
open_position(const struct opener *w, char folder[PATH_BYTES])
{
    char path[PATH_BYTES + 16];
    (void)snprintf(folder, PATH_BYTES, "%s/%s", w->config->state, w->o->name);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return err_sys(w->e, errno, "create %s", folder);
    (void)snprintf(path, sizeof path, "%s/position", folder);
    return position_open(&w->o->sink->position, path, w->e);
}

static int
open_target(const struct opener *w, const struct target_settings *t,
            const struct delivery_format *format, void *cookie)
{
    char folder[PATH_BYTES];
    struct post_settings post = t->post;
    int r = open_position(w, folder);
    if (r < 0)
        return r;
    if (w->all->poster == NULL)
        w->all->poster = poster_new(w->loop, w->e);
    if (w->all->poster == NULL)
        return err_errno(w->e);
    w->o->queue = queue_open(folder, t->queue_bytes, w->e);
    if (w->o->queue == NULL)
        return err_errno(w->e);
    post.content_type = format->content_type;
    const struct delivery_settings s = {w->o->name, w->o->queue, format, cookie, &post};
    w->o->delivery = delivery_new(w->loop, w->all->poster, &s, w->e);
    w->o->sink->store = store_queue;
    return w->o->delivery != NULL ? 0 : err_wrap(w->e, "%s", w->o->name);
}

static void
set_ocsf(const struct opener *w)
{
    w->o->sink->severity = w->config->ocsf.severity;
    w->o->sink->encode = encode_ocsf;
    w->o->sink->encode_gap = encode_ocsf_gap;
}

static int
open_file(const struct opener *w, const char *file, uint64_t size_max, uint32_t keep)
{
    char path[PATH_BYTES];
    w->o->lines = calloc(1, sizeof *w->o->lines);
    if (w->o->lines == NULL)
        return err_sys(w->e, ENOMEM, "open %s", file);
    (void)snprintf(w->o->lines->path, sizeof w->o->lines->path, "%s", file);
    w->o->lines->size_max = size_max;
    w->o->lines->keep = keep;
    w->o->lines->fd = -1;
    w->o->sink->store = store_line;
    int r = lines_open(w->o->lines, w->e);
    (void)snprintf(path, sizeof path, "%s.position", file);
    return r < 0 ? r : position_open(&w->o->sink->position, path, w->e);
}

static int
open_ocsf_file(const struct opener *w)
{
    const struct ocsf_settings *s = &w->config->ocsf;
    set_ocsf(w);
    return open_file(w, s->file, s->size_max, s->keep);
}

static int
open_ocsf_stdout(const struct opener *w)
{
    char folder[PATH_BYTES];
    w->o->stream = calloc(1, sizeof *w->o->stream);
    if (w->o->stream == NULL)
        return err_sys(w->e, ENOMEM, "open stdout");
    w->o->stream->fd = -1;
    set_ocsf(w);
    w->o->sink->store = store_stream;
    int r = open_position(w, folder);
    return r < 0 ? r : line_stream_open(w->o->stream, STDOUT_FILENO, w->e);
}

static int
open_ocsf_http(const struct opener *w)
{
    set_ocsf(w);
    return open_target(w, &w->config->ocsf.http, &ndjson, NULL);
}

static int
open_otlp(const struct opener *w, enum otlp_signal signal)
{
    const struct otlp_settings *s = &w->config->otlp;
    if (w->all->otlp == NULL)
        w->all->otlp = otlp_new(s->service, s->attributes, w->e);
    if (w->all->otlp == NULL)
        return err_errno(w->e);
    w->o->otlp = w->all->otlp;
    return open_target(w, &s->signal[signal], &otlp_format, w->all->otlp);
}

static int
open_otlp_logs(const struct opener *w)
{
    w->o->sink->severity = w->config->otlp.severity;
    w->o->sink->encode = encode_log;
    w->o->sink->encode_gap = encode_log_gap;
    return open_otlp(w, OTLP_LOGS);
}

static int
open_otlp_traces(const struct opener *w)
{
    w->o->sink->encode = encode_spans;
    return open_otlp(w, OTLP_TRACES);
}

static int
open_otlp_metrics(const struct opener *w)
{
    w->o->sink->encode = encode_nothing;
    w->all->metrics = w->o;
    return open_otlp(w, OTLP_METRICS);
}

int
outputs_metrics(struct outputs *all, const struct stockade_metrics *metrics, int64_t now_ns)
{
    struct sink *s = all->metrics->sink;
    struct sink_bytes b = {0};
    int r = otlp_metrics(all->otlp, metrics, now_ns, &b);
    if (r == 0)
        r = store_queue(all->metrics, &b, now_ns);
    free(b.bytes);
    s->events += r == 0;
    s->failed += r < 0;
    return r;
}

static int
open_approvals(const struct opener *w)
{
    const struct target_settings *t = &w->config->approvals;
    char folder[PATH_BYTES];
    w->o->sink->encode = encode_nothing;
    w->all->approvals = w->o;
    int r = open_position(w, folder);
    if (r == 0)
        r = webhook_open(t->secret_file, folder, &w->all->webhook, w->e);
    return r == 0 ? open_target(w, t, &webhook_format, w->all->webhook) : r;
}

int
outputs_approval(void *outputs, const char *bytes, size_t n)
{
    const struct outputs *all = outputs;
    struct output *o = all->approvals;
    int r = queue_put(o->queue, bytes, n, now_ns(CLOCK_REALTIME));
    if (r == 0)
        delivery_wake(o->delivery);
    o->sink->events += r == 0;
    o->sink->failed += r < 0;
    return r;
}

static int
open_cloudevents(const struct opener *w)
{
    const struct cloudevents_settings *s = &w->config->cloudevents;
    const bool has_key = s->http.secret_file[0] != '\0';
    w->o->kinds = s->kinds;
    w->o->sink->severity = s->severity;
    w->o->sink->encode = encode_cloudevent;
    w->o->sink->encode_gap = encode_cloudevent_gap;
    int r = has_key ? signature_open(s->http.secret_file, &w->all->signature, w->e) : 0;
    return r < 0 ? r
                 : open_target(w, &s->http, has_key ? &signed_cloudevents : &cloudevents,
                               w->all->signature);
}

static void
set_falco(const struct opener *w)
{
    w->o->kinds = " FINDING ";
    w->o->sink->severity = w->config->falco.severity;
    w->o->sink->encode = encode_falco;
    w->o->sink->encode_gap = encode_falco_gap;
}

static int
open_falco_file(const struct opener *w)
{
    const struct falco_settings *s = &w->config->falco;
    set_falco(w);
    return open_file(w, s->file, s->size_max, s->keep);
}

static int
open_falco_http(const struct opener *w)
{
    set_falco(w);
    return open_target(w, &w->config->falco.http, &falco, NULL);
}

// ---- The table

static bool
has_ocsf_file(const struct exporter_config *c)
{
    return c->ocsf.file[0] != '\0';
}

static bool
has_ocsf_stdout(const struct exporter_config *c)
{
    return c->ocsf.to_stdout;
}

static bool
has_ocsf_http(const struct exporter_config *c)
{
    return c->ocsf.http.post.url[0] != '\0';
}

static bool
has_otlp_logs(const struct exporter_config *c)
{
    return c->otlp.signal[OTLP_LOGS].post.url[0] != '\0';
}

static bool
has_otlp_traces(const struct exporter_config *c)
{
    return c->otlp.signal[OTLP_TRACES].post.url[0] != '\0';
}

static bool
has_otlp_metrics(const struct exporter_config *c)
{
    return c->otlp.signal[OTLP_METRICS].post.url[0] != '\0';
}

static bool
has_approvals(const struct exporter_config *c)
{
    return c->approvals.post.url[0] != '\0';
}

static bool
has_cloudevents(const struct exporter_config *c)
{
    return c->cloudevents.http.post.url[0] != '\0';
}

static bool
has_falco_file(const struct exporter_config *c)
{
    return c->falco.file[0] != '\0';
}

static bool
has_falco_http(const struct exporter_config *c)
{
    return c->falco.http.post.url[0] != '\0';
}

static const struct kind {
    const char *name;
    bool (*wanted)(const struct exporter_config *c);
    int (*open)(const struct opener *w);
} kinds[] = {
    {"ocsf-file", has_ocsf_file, open_ocsf_file},
    {"ocsf-stdout", has_ocsf_stdout, open_ocsf_stdout},
    {"ocsf-http", has_ocsf_http, open_ocsf_http},
    {"otlp-logs", has_otlp_logs, open_otlp_logs},
    {"otlp-traces", has_otlp_traces, open_otlp_traces},
    {"otlp-metrics", has_otlp_metrics, open_otlp_metrics},
    {"approvals", has_approvals, open_approvals},
    {"cloudevents", has_cloudevents, open_cloudevents},
    {"falco-file", has_falco_file, open_falco_file},
    {"falco-http", has_falco_http, open_falco_http},
};
_Static_assert(sizeof kinds / sizeof kinds[0] <= SINKS_MAX, "a place for each");

int
outputs_open(struct outputs *all, uv_loop_t *loop, const struct exporter_config *c, struct err *e)
{
    sinks_begin(&all->sinks, loop);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!kinds[i].wanted(c))
            continue;
        struct output *o = &all->output[all->n];
        struct sink *s = &all->sinks.sink[all->sinks.n];
        *o = (struct output){.name = kinds[i].name, .sink = s};
        *s = (struct sink){.name = kinds[i].name, .cookie = o, .position = {.fd = -1}};
        all->n++;
        all->sinks.n++;
        const struct opener w = {all, loop, c, o, e};
        int r = kinds[i].open(&w);
        if (r < 0)
            return r;
    }
    return 0;
}

void
outputs_close(struct outputs *all)
{
    sinks_close(&all->sinks);
    for (size_t i = 0; i < all->n; i++)
        delivery_close(all->output[i].delivery);
    poster_close(all->poster);
}

void
outputs_free(struct outputs *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct output *o = &all->output[i];
        delivery_free(o->delivery);
        queue_close(o->queue);
        if (o->lines != NULL)
            lines_close(o->lines);
        if (o->stream != NULL)
            line_stream_close(o->stream);
        free(o->lines);
        free(o->stream);
    }
    poster_free(all->poster);
    otlp_free(all->otlp);
    webhook_free(all->webhook);
    signature_free(all->signature);
    *all = (struct outputs){0};
}
