// SPDX-License-Identifier: Apache-2.0
// See policy.h: a call in the words of a policy, as tests and `stockade policy explain` describe one.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "policy_private.h"
#include "proto/language.h"

enum { PROTOBUF_VERDICTS = 5 };

// A call, and what it refers to.
struct words {
    struct policy_call call;
    struct deed deed;
    struct deed_command command;
    struct limits limits;
};

static const enum policy_verdict verdict_of[PROTOBUF_VERDICTS] = {
    POLICY_DENY, POLICY_ALLOW, POLICY_DENY, POLICY_ASK, POLICY_LIMIT};

const char *
policy_word_of(Stockade__V1__PolicyVerdict v)
{
    return (unsigned)v < PROTOBUF_VERDICTS ? policy_verdict_name[verdict_of[v]] : "?";
}

// "2026-11-23T08:30:00Z"; the pattern of the field has checked its form.
static int
read_time(const char *text, int64_t *out, struct err *e)
{
    struct tm t = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &t);
    const time_t s = end != NULL ? timegm(&t) : -1;
    if (end == NULL || *end != '\0' || s < 0)
        return err_field(e, "time", "must be a time, such as 2026-11-23T08:30:00Z");
    *out = (int64_t)s * 1000;
    return 0;
}

static int
read_limits(const Stockade__V1__PolicyLimits *m, struct limits *out, struct err *e)
{
    struct limits said;
    int r = policy_read_limits(m, &said, e);
    limits_usual(out);
    for (int i = 0; i < LIMITS_N && r == 0; i++)
        out->v[i] = said.v[i] != 0 ? said.v[i] : out->v[i];
    return r < 0 ? err_wrap(e, "limits") : 0;
}

static int
check_method(const char *method, struct err *e)
{
    if (policy_method(method) < POLICY_METHODS_MAX)
        return 0;
    int r = err_set(e, ERR_NOT_FOUND, "%.96s: no such method", method);
    err_detail(e, "METHOD_UNKNOWN", "method", "write it as ProcessService/Run");
    return r;
}

// Those of a call begin at the working directory of its template, which the words do not have.
static int
check_paths(const Stockade__V1__PolicyCall *m, struct err *e)
{
    for (size_t i = 0; i < m->n_paths; i++)
        if (m->paths[i][0] != '/')
            return err_field(e, "paths", "must be absolute, unlike '%.200s'", m->paths[i]);
    return 0;
}

static bool
runs_something(const char *method)
{
    return strncmp(method, "ProcessService/", 15) == 0 || strncmp(method, "CodeService/", 12) == 0;
}

// Everything but the network, from the message.
static int
make_call(const Stockade__V1__PolicyCall *m, const struct policy_words *by, struct words *w,
          struct err *e)
{
    w->command = (struct deed_command){m->n_command, 0, (const char *const *)m->command, NULL};
    w->deed = (struct deed){.method = m->method[0] != '\0' ? m->method : "ProcessService/Run",
                            .commands = &w->command,
                            .commands_n = m->n_command > 0,
                            .template = m->template_[0] != '\0' ? m->template_ : "default",
                            .limits = &w->limits,
                            .has_network = true};
    w->deed.runs = runs_something(w->deed.method);
    w->call = (struct policy_call){.deed = &w->deed,
                                   .tenant = m->tenant[0] != '\0' ? m->tenant : by->tenant,
                                   .credential = m->credential[0] != '\0' ? m->credential : "peer",
                                   .simulated = strcmp(m->mode, "simulate") == 0,
                                   .language = m->language,
                                   .paths_n = m->n_paths,
                                   .paths = (const char *const *)m->paths,
                                   .labels_n = m->n_labels,
                                   .labels = (const char *const *)m->labels,
                                   .now_ms = by->now_ms,
                                   .request = by->request,
                                   .calls_before = m->calls_before};
    int r = check_method(w->deed.method, e);
    if (r == 0)
        r = check_paths(m, e);
    if (r == 0 && m->language[0] != '\0') {
        w->call.language = language_named(m->language, e);
        r = w->call.language != NULL ? 0 : err_errno(e);
    }
    if (r == 0)
        r = read_limits(m->limits, &w->limits, e);
    return r == 0 && m->time[0] != '\0' ? read_time(m->time, &w->call.now_ms, e) : r;
}

int
policy_decide_words(const struct policy *p, const Stockade__V1__PolicyCall *m,
                    const struct policy_words *by, struct policy_decision *out, struct err *e)
{
    struct words w;
    struct network *network = NULL;
    size_t wrong = 0;
    int r = make_call(m, by, &w, e);
    if (r < 0)
        return r;
    r = policy_read_destinations(m->n_destinations, m->destinations, &network, &wrong, e);
    if (r < 0)
        return err_wrap(e, "destinations[%zu]", wrong);
    w.deed.network = network;
    r = by->look != NULL ? by->look(by->cookie, &w.deed, e) : 0;
    if (r == 0)
        policy_decide(p, &w.call, by->step, by->cookie, out);
    network_unref(network);
    return r;
}

int
policy_test(const struct policy *p, const Stockade__V1__PolicyTest *t, int64_t now_ms,
            struct policy_decision *out, struct err *e)
{
    static const Stockade__V1__PolicyCall usual = STOCKADE__V1__POLICY_CALL__INIT;
    const struct policy_words by = {.tenant = "uid:1000", .now_ms = now_ms};
    int r = policy_decide_words(p, t->call != NULL ? t->call : &usual, &by, out, e);
    if (r < 0)
        return r;
    return (unsigned)t->expect < PROTOBUF_VERDICTS && verdict_of[t->expect] == out->verdict &&
           (t->rule[0] == '\0' || strcmp(t->rule, out->rule) == 0);
}
