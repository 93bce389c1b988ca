// SPDX-License-Identifier: Apache-2.0
// See otlp_environment.h.
#include "otlp_environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 80, INTERVAL_MIN_MS = 1000, TIMEOUT_MIN_MS = 100, MS_MAX = 3600000 };

// NULL: not set, or empty, which is the same.
static const char *
variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int
wrong(struct err *e, const char *name, const char *what)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s: %s", name, what);
}

static int
copy(struct err *e, const char *name, const char *value, char *to, size_t size)
{
    if (strlen(value) >= size)
        return wrong(e, name, "too long");
    memcpy(to, value, strlen(value) + 1);
    return 0;
}

static int
hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// RFC 3986, 2.1.
bool
otlp_percent_decode(char *text)
{
    char *to = text;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c != '%') {
            *to++ = *c;
            continue;
        }
        int high = hex_digit(c[1]);
        int low = high >= 0 ? hex_digit(c[2]) : -1;
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high * 16 + low);
        c += 2;
    }
    *to = '\0';
    return true;
}

// ---- Settings of one receiver

struct reader {
    const char *name; // of the variable
    struct err *e;
};

static int
read_endpoint(const struct reader *r, const char *value, struct target_settings *to)
{
    if (strncmp(value, "http://", 7) != 0 && strncmp(value, "https://", 8) != 0)
        return wrong(r->e, r->name, "must be a URL, such as https://collector.example:4318");
    if (strchr(value, '@') != NULL)
        return wrong(r->e, r->name, "must not have a user or a password");
    return copy(r->e, r->name, value, to->post.url, sizeof to->post.url);
}

// "key=value,key=value", as lines.
static int
read_headers(const struct reader *r, const char *value, struct target_settings *to)
{
    char text[POST_LINES_MAX];
    size_t used = 0;
    int err = copy(r->e, r->name, value, text, sizeof text);
    char *rest = text;
    for (char *item = NULL; err == 0 && (item = strsep(&rest, ",")) != NULL;) {
        char *at = strchr(item, '=');
        item += strspn(item, " ");
        if (item[0] == '\0')
            continue;
        if (at == NULL || at < item)
            return wrong(r->e, r->name, "must be like key=value,key=value");
        *at++ = '\0';
        if (!otlp_percent_decode(at))
            return wrong(r->e, r->name, "must be percent-encoded");
        int n = snprintf(to->post.header_lines + used, POST_LINES_MAX - used, "%s: %s\n", item, at);
        if (n < 0 || used + (size_t)n >= POST_LINES_MAX)
            return wrong(r->e, r->name, "too long");
        used += (size_t)n;
    }
    return err;
}

static int
read_compression(const struct reader *r, const char *value, struct target_settings *to)
{
    to->post.gzip = strcmp(value, "gzip") == 0;
    return to->post.gzip || strcmp(value, "none") == 0
               ? 0
               : wrong(r->e, r->name, "must be gzip or none");
}

static int
read_ms(const struct reader *r, const char *value, uint64_t min, uint64_t *to)
{
    char *end = NULL;
    errno = 0;
    unsigned long long ms = strtoull(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || value[0] == '-' || ms < min || ms > MS_MAX)
        return wrong(r->e, r->name, "must be a number of milliseconds");
    *to = ms;
    return 0;
}

static int
read_timeout(const struct reader *r, const char *value, struct target_settings *to)
{
    return read_ms(r, value, TIMEOUT_MIN_MS, &to->post.timeout_ms);
}

static int
read_protocol(const struct reader *r, const char *value, struct target_settings *to)
{
    (void)to;
    return strcmp(value, "http/protobuf") == 0
               ? 0
               : wrong(r->e, r->name, "must be http/protobuf, the only one that is supported");
}

static int
read_certificate(const struct reader *r, const char *value, struct target_settings *to)
{
    return copy(r->e, r->name, value, to->post.ca_file, sizeof to->post.ca_file);
}

static int
read_client_key(const struct reader *r, const char *value, struct target_settings *to)
{
    return copy(r->e, r->name, value, to->post.key_file, sizeof to->post.key_file);
}

static int
read_client_certificate(const struct reader *r, const char *value, struct target_settings *to)
{
    return copy(r->e, r->name, value, to->post.certificate_file, sizeof to->post.certificate_file);
}

static const struct {
    const char *end;
    int (*read)(const struct reader *r, const char *value, struct target_settings *to);
} settings[] = {
    {"ENDPOINT", read_endpoint},       {"HEADERS", read_headers},
    {"COMPRESSION", read_compression}, {"TIMEOUT", read_timeout},
    {"PROTOCOL", read_protocol},       {"CERTIFICATE", read_certificate},
    {"CLIENT_KEY", read_client_key},   {"CLIENT_CERTIFICATE", read_client_certificate},
};

// signal: "", "LOGS_", ...
static int
read_target(const char *signal, struct target_settings *to, struct err *e)
{
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char name[NAME_BYTES];
        (void)snprintf(name, sizeof name, "OTEL_EXPORTER_OTLP_%s%s", signal, settings[i].end);
        const char *value = variable(name);
        const struct reader r = {name, e};
        int err = value != NULL ? settings[i].read(&r, value, to) : 0;
        if (err < 0)
            return err;
    }
    return 0;
}

// ---- All

static const char *const signals[OTLP_SIGNALS] = {"LOGS", "TRACES", "METRICS"};
static const char *const paths[OTLP_SIGNALS] = {"v1/logs", "v1/traces", "v1/metrics"};

static int
read_enabled(struct otlp_settings *s, struct err *e)
{
    for (size_t i = 0; i < OTLP_SIGNALS; i++) {
        char name[NAME_BYTES];
        (void)snprintf(name, sizeof name, "OTEL_%s_EXPORTER", signals[i]);
        const char *value = variable(name);
        if (value == NULL)
            continue;
        s->enabled[i] = strcmp(value, "otlp") == 0;
        if (!s->enabled[i] && strcmp(value, "none") != 0)
            return wrong(e, name, "must be otlp or none");
    }
    return 0;
}

int
otlp_environment(struct otlp_settings *s, struct err *e)
{
    const char *service = variable("OTEL_SERVICE_NAME");
    const char *attributes = variable("OTEL_RESOURCE_ATTRIBUTES");
    const char *interval = variable("OTEL_METRIC_EXPORT_INTERVAL");
    const struct reader r = {"OTEL_METRIC_EXPORT_INTERVAL", e};
    int err = read_target("", &s->base, e);
    if (err == 0)
        err = read_enabled(s, e);
    if (err == 0 && service != NULL)
        err = copy(e, "OTEL_SERVICE_NAME", service, s->service, sizeof s->service);
    if (err == 0 && attributes != NULL)
        err = copy(e, "OTEL_RESOURCE_ATTRIBUTES", attributes, s->attributes, sizeof s->attributes);
    if (err == 0 && interval != NULL)
        err = read_ms(&r, interval, INTERVAL_MIN_MS, &s->interval_ms);
    return err;
}

// The path of a signal behind the endpoint; an endpoint of the signal's own is used as it is.
static int
join(struct target_settings *t, size_t signal, struct err *e)
{
    const size_t n = strlen(t->post.url);
    if (n == 0)
        return 0;
    const char *slash = t->post.url[n - 1] != '/' ? "/" : "";
    int more = snprintf(t->post.url + n, sizeof t->post.url - n, "%s%s", slash, paths[signal]);
    return more < 0 || n + (size_t)more >= sizeof t->post.url
               ? wrong(e, "otlp.http.url", "too long")
               : 0;
}

int
otlp_environment_of_signals(struct otlp_settings *s, struct err *e)
{
    const char *disabled = variable("OTEL_SDK_DISABLED");
    const bool off = disabled != NULL && strcasecmp(disabled, "true") == 0;
    for (size_t i = 0; i < OTLP_SIGNALS; i++) {
        char name[NAME_BYTES];
        struct target_settings *t = &s->signal[i];
        *t = s->base;
        (void)snprintf(name, sizeof name, "%s_", signals[i]);
        int r = join(t, i, e);
        if (r == 0)
            r = read_target(name, t, e);
        if (r < 0)
            return r;
        if (off || !s->enabled[i])
            t->post.url[0] = '\0';
    }
    return 0;
}
