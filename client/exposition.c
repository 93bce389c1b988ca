// SPDX-License-Identifier: Apache-2.0
// See exposition.h. Texts come from the broker, which may be another version: control characters are replaced.
#include "exposition.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { NAME_MAX_BYTES = 256 };

static const double whole_max = 9007199254740992.0; // 2^53: up to there a double holds each integer
static const char total[] = "_total";

char *
exposition_number(double value, char *out, size_t n)
{
    if (value == floor(value) && fabs(value) <= whole_max)
        (void)snprintf(out, n, "%.0f", value);
    else
        (void)snprintf(out, n, "%.*g", DBL_DIG, value);
    return out;
}

const char *
exposition_type(uint32_t type)
{
    static const char *const names[] = {"untyped", "counter", "gauge", "histogram"};
    return names[type < sizeof names / sizeof names[0] ? type : 0];
}

const char *
exposition_content_type(enum exposition form)
{
    return form == EXPOSITION_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

// ---- Texts

// Escaped as the formats want it: backslash, and in quotes also the quote. OpenMetrics escapes the quote everywhere.
static void
put_escaped(FILE *to, const char *from, bool quoted)
{
    for (const unsigned char *p = (const unsigned char *)from; *p != '\0'; p++) {
        bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;
        if (*p == '\\' || (*p == '"' && quoted))
            (void)putc('\\', to);
        (void)putc(*p < ' ' || *p == 0x7f || c1 ? '?' : *p, to);
        if (c1)
            p++;
    }
}

// Letters, digits, '_' and ':'; anything else becomes '_'. Without "_total" if `family` is set.
static const char *
clean_name(const char *from, bool family, char out[NAME_MAX_BYTES])
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:";
    (void)snprintf(out, NAME_MAX_BYTES, "%s", from);
    for (char *p = out; *p != '\0'; p++)
        if (strchr(allowed, *p) == NULL)
            *p = '_';
    size_t n = strlen(out), end = sizeof total - 1;
    if (family && n > end && strcmp(out + n - end, total) == 0)
        out[n - end] = '\0';
    return out;
}

// {a="b"}; `le`: of a bucket, or NULL.
static void
put_labels(FILE *to, const struct stockade_metric *m, const struct stockade_metric_sample *s,
           const char *le)
{
    char name[NAME_MAX_BYTES];
    const char *before = "{";
    for (size_t i = 0; i < s->labels_n && i < m->labels_n; i++) {
        (void)fprintf(to, "%s%s=\"", before, clean_name(m->labels[i], false, name));
        put_escaped(to, s->labels[i], true);
        (void)putc('"', to);
        before = ",";
    }
    if (le != NULL) {
        (void)fprintf(to, "%sle=\"%s\"", before, le);
        before = ",";
    }
    if (before[0] == ',')
        (void)putc('}', to);
}

// ---- Metrics

// OpenMetrics writes bounds as canonical floating-point numbers: "1.0", not "1".
static const char *
show_bound(const struct stockade_metric *m, size_t bucket, enum exposition form,
           char out[EXPOSITION_NUMBER_MAX])
{
    if (bucket >= m->bounds_n)
        return "+Inf";
    (void)exposition_number(m->bounds[bucket], out, EXPOSITION_NUMBER_MAX);
    size_t n = strlen(out);
    if (form == EXPOSITION_OPENMETRICS && strspn(out, "-0123456789") == n)
        (void)snprintf(out + n, EXPOSITION_NUMBER_MAX - n, ".0");
    return out;
}

static void
put_exemplar(FILE *to, const struct stockade_metric *m, size_t bucket,
             const struct exposition_options *o)
{
    char shown[EXPOSITION_NUMBER_MAX];
    const struct exposition_exemplar *e = o->form == EXPOSITION_OPENMETRICS && o->exemplar != NULL
                                              ? o->exemplar(o->cookie, m, bucket)
                                              : NULL;
    if (e == NULL)
        return;
    (void)fputs(" # {trace_id=\"", to);
    put_escaped(to, e->trace_id, true);
    (void)fprintf(to, "\"} %s %.3f", exposition_number(e->value, shown, sizeof shown), e->time_s);
}

static void
put_histogram(FILE *to, const char *name, const struct stockade_metric *m,
              const struct stockade_metric_sample *s, const struct exposition_options *o)
{
    char shown[EXPOSITION_NUMBER_MAX];
    uint64_t below = 0;
    for (size_t i = 0; i < s->buckets_n; i++) {
        below += s->buckets[i];
        (void)fprintf(to, "%s_bucket", name);
        put_labels(to, m, s, show_bound(m, i, o->form, shown));
        (void)fprintf(to, " %" PRIu64, below);
        if (s->buckets[i] > 0)
            put_exemplar(to, m, i, o);
        (void)putc('\n', to);
    }
    (void)fprintf(to, "%s_sum", name);
    put_labels(to, m, s, NULL);
    (void)fprintf(to, " %s\n%s_count", exposition_number(s->sum, shown, sizeof shown), name);
    put_labels(to, m, s, NULL);
    (void)fprintf(to, " %" PRIu64 "\n", s->count);
}

static void
put_metric(FILE *to, const struct stockade_metric *m, const struct exposition_options *o)
{
    char name[NAME_MAX_BYTES], family[NAME_MAX_BYTES], shown[EXPOSITION_NUMBER_MAX];
    const bool open = o->form == EXPOSITION_OPENMETRICS;
    (void)clean_name(m->name, false, name);
    (void)clean_name(m->name, open && m->type == STOCKADE_METRIC_COUNTER, family);
    (void)fprintf(to, "# HELP %s ", family);
    put_escaped(to, m->help, open);
    (void)fprintf(to, "\n# TYPE %s %s\n", family,
                  open && m->type == 0 ? "unknown" : exposition_type(m->type));
    if (open && m->unit[0] != '\0')
        (void)fprintf(to, "# UNIT %s %s\n", family, m->unit);
    for (size_t i = 0; i < m->samples_n; i++) {
        const struct stockade_metric_sample *s = &m->samples[i];
        if (m->type == STOCKADE_METRIC_HISTOGRAM) {
            put_histogram(to, name, m, s, o);
            continue;
        }
        (void)fputs(name, to);
        put_labels(to, m, s, NULL);
        (void)fprintf(to, " %s\n", exposition_number(s->value, shown, sizeof shown));
    }
}

void
exposition_write(FILE *to, const struct stockade_metrics *all, const struct exposition_options *o)
{
    for (size_t i = 0; i < all->n; i++)
        put_metric(to, &all->items[i], o);
}

void
exposition_end(FILE *to, enum exposition form)
{
    if (form == EXPOSITION_OPENMETRICS)
        (void)fputs("# EOF\n", to);
}
