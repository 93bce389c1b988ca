// SPDX-License-Identifier: Apache-2.0
// See dashboard.h.
#include "dashboard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "dashboard_files.h"
#include "guard.h"

enum { BODY_MAX = 64 * 1024 };

static const char plain[] = "text/plain; charset=utf-8";

// style-src is for the file; modules set single properties of elements, which it does not concern.
static const struct http_field fields[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
     "require-trusted-types-for 'script'; trusted-types 'none'"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Frame-Options", "DENY"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
    {0},
};

static const char *
type_of(const char *name)
{
    static const struct {
        const char *end, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const size_t n = strlen(types[i].end);
        if (length > n && strcmp(name + length - n, types[i].end) == 0)
            return types[i].type;
    }
    return plain;
}

static void
serve_file(struct http_request *r, const char *name)
{
    if (name[0] == '\0')
        name = "index.html";
    for (const struct dashboard_file *f = dashboard_files; f->name != NULL; f++) {
        if (strcmp(f->name, name) != 0)
            continue;
        char *copy = malloc(f->n);
        if (copy != NULL)
            memcpy(copy, f->bytes, f->n);
        http_answer(r, 200, type_of(name), copy, f->n);
        return;
    }
    http_answer_text(r, 404, plain, "there is no such file\n");
}

static bool
begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

// What /api has.
static void
serve_api(struct dashboard *d, struct http_request *r)
{
    const char *path = http_path(r);
    const bool post = strcmp(http_method(r), "POST") == 0;
    const char *type = http_header(r, "Content-Type");
    const bool json = begins(type, "application/json") && (type[16] == '\0' || type[16] == ';');
    if (strcmp(path, "/api/about") == 0 && !post)
        http_answer_text(r, 200, "application/json", d->about);
    else if (!post)
        http_answer_text(r, 405, plain, "only POST\n");
    else if (!json) // which a form of another page cannot send
        http_answer_text(r, 415, plain, "the body must be application/json\n");
    else if (begins(path, "/api/call/"))
        gateway_call(d->gateway, r);
    else if (strcmp(path, "/api/watch") == 0)
        gateway_watch(d->gateway, r);
    else
        http_answer_text(r, 404, plain, "there is no such path\n");
}

static void
on_request(void *cookie, struct http_request *r)
{
    struct dashboard *d = cookie;
    const char *host = http_header(r, "Host");
    http_set_fields(r, fields);
    if (!guard_host(host, d->settings->listen, d->settings->hosts))
        http_answer_text(
            r, 421, plain,
            "this name is none of this server's; see dashboard.hosts of the exporter\n");
    else if (!begins(http_path(r), "/api/") && strcmp(http_method(r), "POST") != 0)
        serve_file(r, http_path(r) + 1);
    else if (!guard_origin(host, http_header(r, "Origin"), http_header(r, "Sec-Fetch-Site")))
        http_answer_text(r, 403, plain, "the page is another server's\n");
    else
        serve_api(d, r);
}

static void
on_gone(void *cookie, struct http_request *r)
{
    (void)cookie;
    gateway_gone(r);
}

static void
on_drained(void *cookie, struct http_request *r)
{
    (void)cookie;
    gateway_drained(r);
}

int
dashboard_open(struct dashboard *d, uv_loop_t *loop, const struct dashboard_settings *settings,
               const char *broker, struct err *e)
{
    const struct http_settings http = {
        .listen = settings->listen,
        .connections = settings->connections,
        .timeout_ms = settings->timeout_ms,
        .body_max = BODY_MAX,
        .on_request = on_request,
        .on_gone = on_gone,
        .on_drained = on_drained,
        .cookie = d,
    };
    *d = (struct dashboard){.settings = settings};
    if (settings->listen[0] == '\0')
        return 0;
    if (asprintf(&d->about, "{\"version\":\"%s\",\"open\":%s}", STOCKADE_VERSION,
                 settings->open ? "true" : "false") < 0)
        return err_sys(e, ENOMEM, "open the dashboard");
    d->gateway = gateway_new(loop, broker, settings->open, settings->streams, e);
    if (d->gateway == NULL)
        return err_errno(e);
    d->http = http_new(loop, &http, e);
    if (d->http == NULL)
        return err_errno(e);
    (void)fprintf(stderr, "stockade-exporter: dashboard on http://%s/\n", http_address(d->http));
    return 0;
}

void
dashboard_close(struct dashboard *d)
{
    gateway_close(d->gateway); // answers requests that wait
    http_close(d->http);
}

void
dashboard_free(struct dashboard *d)
{
    http_free(d->http);
    gateway_free(d->gateway);
    free(d->about);
    *d = (struct dashboard){0};
}
