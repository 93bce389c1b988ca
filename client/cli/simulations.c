// SPDX-License-Identifier: Apache-2.0
// See simulations.h.
#include "simulations.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/plural.h"
#include "cli.h"
#include "diff.h"
#include "text.h"

enum { REPLY_MAX = 2048, SHOWN = 60, TEXT = 512 };

// ---- before

static int
failed(const struct command *c, const char *file, const char *why)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT};
    (void)snprintf(e.text, sizeof e.text, "cannot read %.200s: %s", file, why);
    return cli_fail(c, "", &e);
}

static int
read_answer(struct simulating *s, size_t i, const struct command *c, const struct stockade_pair *p)
{
    FILE *f = fopen(p->value, "re");
    s->replies[i] = malloc(REPLY_MAX + 1);
    if (f == NULL || s->replies[i] == NULL) {
        const int sys = f == NULL ? errno : ENOMEM;
        if (f != NULL)
            (void)fclose(f);
        return failed(c, p->value, strerror(sys));
    }
    const size_t n = fread(s->replies[i], 1, REPLY_MAX + 1, f);
    const int sys = ferror(f) != 0 ? errno : 0;
    (void)fclose(f);
    if (sys != 0 || n > REPLY_MAX)
        return failed(c, p->value, sys != 0 ? strerror(sys) : "it is larger than 2 KiB");
    s->answers[i] = (struct stockade_simulated_answer){p->name, s->replies[i], n};
    return EXIT_OK;
}

int
simulating_read(struct simulating *s, const struct command *c, const struct options *o)
{
    int code = EXIT_OK;
    if (o->answers_n > 0 && !o->simulate)
        return cli_usage(c, "--answer needs --simulate", "");
    for (size_t i = 0; i < o->answers_n && code == EXIT_OK; i++)
        code = read_answer(s, i, c, &o->answers[i]);
    s->options = (struct stockade_simulate){s->answers, o->answers_n};
    return code;
}

void
simulating_free(struct simulating *s)
{
    for (size_t i = 0; i < OPTIONS_ANSWERS_MAX; i++)
        free(s->replies[i]);
}

const struct stockade_simulate *
simulating_options(const struct simulating *s, const struct options *o)
{
    return o->simulate ? &s->options : NULL;
}

// ---- as JSON

static json_t *
json_of_sent(const struct stockade_simulated_connection *s)
{
    json_t *j = json_pack("{ss ss sI sI sI}", "destination", s->destination, "protocol",
                          s->protocol, "rule", (json_int_t)s->rule, "out_bytes",
                          (json_int_t)s->out_bytes, "in_bytes", (json_int_t)s->in_bytes);
    (void)json_set_bytes(j, "data", s->data_n > 0 ? s->data : "", s->data_n);
    return j;
}

static json_t *
json_of_refused(const struct stockade_simulated_refusal *r)
{
    return json_pack("{ss ss ss ss ss sb sI}", "operation", r->operation, "destination",
                     r->destination, "protocol", r->protocol, "reason", r->reason, "rule", r->rule,
                     "would_ask", (int)r->would_ask, "count", (json_int_t)r->count);
}

json_t *
simulation_json(const struct stockade_simulation *m)
{
    json_t *changes = json_array(), *sent = json_array(), *refused = json_array(),
           *notes = json_array();
    for (size_t i = 0; i < m->changes_n; i++)
        (void)json_array_append_new(changes, diff_json(&m->changes[i]));
    for (size_t i = 0; i < m->sent_n; i++)
        (void)json_array_append_new(sent, json_of_sent(&m->sent[i]));
    for (size_t i = 0; i < m->refused_n; i++)
        (void)json_array_append_new(refused, json_of_refused(&m->refused[i]));
    for (size_t i = 0; i < m->not_included_n; i++)
        (void)json_array_append_new(notes, json_string(m->not_included[i]));
    return json_pack("{sb so sb ss so sI sb so sI so}", "executed", (int)m->executed, "changes",
                     changes, "more", (int)m->more, "unknown", m->unknown, "sent", sent,
                     "sent_total", (json_int_t)m->sent_total, "sent_lost", (int)m->sent_lost,
                     "refused", refused, "refused_total", (json_int_t)m->refused_total,
                     "not_included", notes);
}

// ---- as text

static void
print_sent(const struct stockade_simulated_connection *s)
{
    char to[TEXT], data[SHOWN + 1];
    const char *bytes = s->data;
    size_t n = 0;
    for (; n < s->data_n && n < SHOWN; n++)
        data[n] = (char)(bytes[n] >= ' ' && bytes[n] < 127 ? bytes[n] : '.');
    data[n] = '\0';
    (void)fprintf(stderr, "> %-4s %-36s %" PRIu64 " %s  %s\n", s->protocol,
                  text_clean(s->destination, to, sizeof to), s->out_bytes,
                  plural(s->out_bytes, "byte", "bytes"), data);
}

static void
print_refused(const struct stockade_simulated_refusal *r)
{
    char to[TEXT], reason[TEXT];
    (void)fprintf(stderr, "! %s %s %s%s%s: %s\n", r->would_ask ? "asks about" : "refused",
                  r->operation, text_clean(r->destination, to, sizeof to),
                  r->rule[0] != '\0' ? " by rule " : "", r->rule,
                  text_clean(r->reason, reason, sizeof reason));
}

static void
print_more(const struct stockade_simulation *m)
{
    if (m->more)
        (void)fprintf(stderr, "and more changes\n");
    const uint64_t more = m->sent_total > m->sent_n ? m->sent_total - m->sent_n : 0;
    if (more > 0 || m->sent_lost)
        (void)fprintf(stderr, "and %" PRIu64 " more %s%s\n", more,
                      plural(more, "connection", "connections"),
                      m->sent_lost ? ", or more: the relay was restarted" : "");
    if (m->refused_total > m->refused_n)
        (void)fprintf(stderr, "refusals in all: %" PRIu64 "\n", m->refused_total);
}

void
simulation_report(const struct command *c, const struct stockade_simulation *m)
{
    char text[TEXT];
    for (size_t i = 0; i < m->changes_n; i++)
        diff_print(stderr, &m->changes[i]);
    for (size_t i = 0; i < m->sent_n; i++)
        print_sent(&m->sent[i]);
    for (size_t i = 0; i < m->refused_n; i++)
        print_refused(&m->refused[i]);
    print_more(m);
    if (m->unknown[0] != '\0')
        (void)fprintf(stderr, "stockade %s: what it would change is not known: %s\n", c->name,
                      text_clean(m->unknown, text, sizeof text));
    for (size_t i = 0; i < m->not_included_n; i++)
        (void)fprintf(stderr, "stockade %s: not shown: %s\n", c->name,
                      text_clean(m->not_included[i], text, sizeof text));
    (void)fprintf(stderr, "stockade %s: %s\n", c->name,
                  m->executed ? "simulated: nothing of this has happened"
                              : "simulated: it was not executed");
}
