// SPDX-License-Identifier: Apache-2.0
// One scrape: the broker's metrics, then the exporter's own. If the broker does not answer, the response has only the
// latter, with stockade_exporter_broker_up 0: Prometheus then still sees what waits in the exporter.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/container_of.h"
#include "accept.h"
#include "exporter.h"

enum { STATUS_OK = 200, STATUS_NOT_FOUND = 404, STATUS_UNAVAILABLE = 503 };

struct scrape {
    struct broker_waiter waiter;
    struct exporter *x;
    struct http_request *request;
};

bool
scrape_write(struct exporter *x, const struct stockade_metrics *metrics, enum exposition form,
             FILE *to)
{
    struct exposition_options o = {.form = form};
    if (x->config->prometheus.exemplars) {
        o.exemplar = exemplars_find;
        o.cookie = &x->exemplars;
    }
    if (metrics != NULL)
        exposition_write(to, metrics, &o);
    exposition_write(to, own_metrics(x), &o);
    exposition_end(to, form);
    return fflush(to) == 0 && ferror(to) == 0;
}

static void
on_metrics(struct broker_waiter *w, const struct stockade_metrics *metrics)
{
    struct scrape *s = container_of(w, struct scrape, waiter);
    struct http_request *r = s->request;
    enum exposition form = accept_form(http_header(r, "Accept"));
    char *body = NULL;
    size_t n = 0;
    s->x->scrapes_failed += metrics == NULL;
    FILE *to = open_memstream(&body, &n);
    bool whole = to != NULL && scrape_write(s->x, metrics, form, to);
    if (to != NULL)
        (void)fclose(to);
    free(s);
    if (whole) {
        http_answer(r, STATUS_OK, exposition_content_type(form), take_ptr(body), n);
        return;
    }
    free(body);
    http_answer_text(r, STATUS_UNAVAILABLE, "text/plain", "");
}

static void
begin(struct exporter *x, struct http_request *r)
{
    struct scrape *s = calloc(1, sizeof *s);
    if (s == NULL) {
        http_answer_text(r, STATUS_UNAVAILABLE, "text/plain", "");
        return;
    }
    *s = (struct scrape){.waiter = {.done = on_metrics}, .x = x, .request = r};
    http_set_cookie(r, s);
    broker_fetch(x->broker, &s->waiter);
}

void
scrape_request(void *exporter, struct http_request *r)
{
    static const char plain[] = "text/plain; charset=utf-8";
    static const char page[] = "<!doctype html><title>stockade-exporter</title>"
                               "<h1>stockade-exporter</h1><p><a href=\"metrics\">metrics</a>\n";
    const char *path = http_path(r);
    if (strcmp(path, "/metrics") == 0)
        begin(exporter, r);
    else if (strcmp(path, "/healthz") == 0)
        http_answer_text(r, STATUS_OK, plain, "ok\n");
    else if (strcmp(path, "/") == 0)
        http_answer_text(r, STATUS_OK, "text/html; charset=utf-8", page);
    else
        http_answer_text(r, STATUS_NOT_FOUND, plain, "there is only /metrics and /healthz\n");
}

void
scrape_gone(void *exporter, struct http_request *r)
{
    struct exporter *x = exporter;
    struct scrape *s = http_cookie(r);
    if (s != NULL)
        broker_unfetch(x->broker, &s->waiter);
    free(s);
}
