// SPDX-License-Identifier: Apache-2.0
// See handled.h: ack, unack, acknowledged, silence, unsilence, silences.
#include "handled.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "json.h"
#include "proto/arena.h"
#include "remote.h"
#include "stockade/v1/anomaly_service.pb-c.h"
#include "text.h"

enum { ANSWER_MAX = 8 * 1024 * 1024, REASON_MAX = 256, PATH_MAX_BYTES = 64 };

static const uint64_t TTL_MAX_MS = UINT64_C(30) * 24 * 3600 * 1000;
static const char hint[] = "the actions are ls, ack NUMBER..., unack NUMBER..., acknowledged, "
                           "silence RULE, unsilence SILENCE... and silences";

struct handling {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    struct arena *a;
    const char *const *words; // after the action
    int words_n;
};

static int
call(const struct handling *h, const char *method, const ProtobufCMessage *request,
     const ProtobufCMessageDescriptor *response, ProtobufCMessage **out)
{
    char path[PATH_MAX_BYTES];
    struct stockade_error e;
    (void)snprintf(path, sizeof path, "/stockade.v1.AnomalyService/%s", method);
    if (remote_call(h->s, path, request, response, h->a, out, &e) == 0)
        return EXIT_OK;
    if (strcmp(e.subject, "rule") == 0)
        e.subject[0] = '\0'; // an operand here, and not --rule
    return cli_fail(h->c, "", &e);
}

static const char *
or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static const char *
when_of(const Google__Protobuf__Timestamp *t, char out[24])
{
    const time_t seconds = t != NULL ? (time_t)t->seconds : 0;
    struct tm tm;
    size_t n = localtime_r(&seconds, &tm) != NULL ? strftime(out, 24, "%F %T", &tm) : 0;
    out[n] = '\0';
    return out;
}

// ---- ack, unack, acknowledged

static int
acknowledge_one(const struct handling *h, const char *word, bool withdraw)
{
    Stockade__V1__AcknowledgeFindingRequest q = STOCKADE__V1__ACKNOWLEDGE_FINDING_REQUEST__INIT;
    char number[24], *end = NULL;
    // NUMBER, or INSTANCE-NUMBER as in OCSF and in the list of those that are acknowledged.
    const char *dash = strchr(word, '-');
    const char *digits = dash != NULL ? dash + 1 : word + (*word == '#');
    errno = 0;
    q.sequence = strtoull(digits, &end, 10);
    (void)snprintf(number, sizeof number, "%" PRIu64, q.sequence);
    if (errno != 0 || strcmp(number, digits) != 0 || q.sequence == 0)
        return cli_usage(h->c, "a finding is named by its number, such as 12", hint);
    if (dash != NULL)
        q.instance = arena_copy(h->a, word, (size_t)(dash - word));
    q.reason = or_empty(h->o->reason);
    q.tenant = or_empty(h->o->tenant);
    q.withdraw = withdraw;
    return call(h, "AcknowledgeFinding", &q.base,
                &stockade__v1__acknowledge_finding_response__descriptor, NULL);
}

static int
acknowledge_all(const struct handling *h, bool withdraw)
{
    int code = EXIT_OK;
    for (int i = 0; i < h->words_n && code == EXIT_OK; i++)
        code = acknowledge_one(h, h->words[i], withdraw);
    return code == EXIT_OK && h->o->json ? json_put(json_object()) : code;
}

static int
ack(const struct handling *h)
{
    return acknowledge_all(h, false);
}

static int
unack(const struct handling *h)
{
    return acknowledge_all(h, true);
}

static void
print_acknowledged(const Stockade__V1__Finding *f)
{
    char when[24], at[24], by[100], reason[REASON_MAX * 4], text[600], rule[72];
    char box[CLI_SHORT_ID_SIZE];
    const Stockade__V1__Acknowledgement *a = f->acknowledgements[0];
    (void)printf("%s-%" PRIu64 " %s %s %s  %s\n    %s by %s%s%s\n", f->instance, f->sequence,
                 when_of(f->time, when), text_clean(f->rule, rule, sizeof rule),
                 cli_short_id(f->sandbox_id, box), text_clean(f->text, text, sizeof text),
                 when_of(a->time, at), text_clean(a->by, by, sizeof by),
                 a->reason[0] != '\0' ? ": " : "", text_clean(a->reason, reason, sizeof reason));
}

static int
acknowledged(const struct handling *h)
{
    Stockade__V1__ListAcknowledgedRequest q = STOCKADE__V1__LIST_ACKNOWLEDGED_REQUEST__INIT;
    q.tenant = or_empty(h->o->tenant);
    q.page_token = "";
    do {
        ProtobufCMessage *out = NULL;
        int code = call(h, "ListAcknowledged", &q.base,
                        &stockade__v1__list_acknowledged_response__descriptor, &out);
        if (code != EXIT_OK)
            return code;
        const Stockade__V1__ListAcknowledgedResponse *m =
            (const Stockade__V1__ListAcknowledgedResponse *)out;
        for (size_t i = 0; i < m->n_findings && code == EXIT_OK; i++) {
            if (h->o->json)
                code = json_put(json_of_message(&m->findings[i]->base));
            else if (m->findings[i]->n_acknowledgements > 0)
                print_acknowledged(m->findings[i]);
        }
        if (code != EXIT_OK)
            return code;
        q.page_token = m->next_page_token;
    } while (q.page_token[0] != '\0');
    return EXIT_OK;
}

// ---- silence, unsilence, silences

static int
silence(const struct handling *h)
{
    Stockade__V1__CreateSilenceRequest q = STOCKADE__V1__CREATE_SILENCE_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    char id[CLI_ID_SIZE] = "";
    int code = EXIT_OK;
    if (h->o->ttl_ms == 0 || h->o->reason == NULL)
        return cli_usage(h->c, "silence needs --for and --reason",
                         "anomalies silence RULE --for 2h --reason TEXT");
    if (h->o->sandbox != NULL && !cli_find_sandbox_id(h->s, h->c, h->o->sandbox, id, &code))
        return code;
    if (h->o->ttl_ms < 1000 || h->o->ttl_ms > TTL_MAX_MS)
        return cli_usage(h->c, "--for must be from 1s to 30d", hint);
    q.rule = h->words[0];
    q.sandbox_id = id;
    q.template_ = or_empty(h->o->template_name);
    q.comm = or_empty(h->o->comm);
    q.reason = h->o->reason;
    q.ttl_ms = h->o->ttl_ms;
    q.suppress_response = h->o->suppress_response;
    q.tenant = or_empty(h->o->tenant);
    code =
        call(h, "CreateSilence", &q.base, &stockade__v1__create_silence_response__descriptor, &out);
    if (code != EXIT_OK)
        return code;
    const Stockade__V1__CreateSilenceResponse *m = (const Stockade__V1__CreateSilenceResponse *)out;
    if (h->o->json)
        return json_put(json_of_message(out));
    (void)printf("%s\n", m->silence != NULL ? m->silence->id : "");
    return EXIT_OK;
}

static int
unsilence(const struct handling *h)
{
    int code = EXIT_OK;
    for (int i = 0; i < h->words_n && code == EXIT_OK; i++) {
        Stockade__V1__DeleteSilenceRequest q = STOCKADE__V1__DELETE_SILENCE_REQUEST__INIT;
        q.silence_id = h->words[i];
        q.tenant = or_empty(h->o->tenant);
        code = call(h, "DeleteSilence", &q.base, &stockade__v1__delete_silence_response__descriptor,
                    NULL);
    }
    return code == EXIT_OK && h->o->json ? json_put(json_object()) : code;
}

// What it is about, beside the rule: "sandbox 4f1c, template x, process sh"; "any".
static const char *
scope_of(const Stockade__V1__Silence *m, char *out, size_t n)
{
    char box[CLI_SHORT_ID_SIZE], comm[70];
    size_t at = 0;
    const char *texts[] = {m->sandbox_id[0] != '\0' ? cli_short_id(m->sandbox_id, box) : "",
                           m->template_, text_clean(m->comm, comm, sizeof comm)};
    static const char *const names[] = {"sandbox", "template", "process"};
    (void)snprintf(out, n, "any");
    for (size_t i = 0; i < sizeof names / sizeof names[0] && at < n; i++)
        if (texts[i][0] != '\0')
            at += (size_t)snprintf(out + at, n - at, "%s%s %s", at > 0 ? ", " : "", names[i],
                                   texts[i]);
    return out;
}

static bool
add_row(struct table *t, const Stockade__V1__Silence *m)
{
    char until[24], scope[256], findings[24], by[100], reason[REASON_MAX * 4];
    (void)snprintf(findings, sizeof findings, "%" PRIu64, m->findings);
    return table_row(t, (const char *const[]){m->id, m->rule, scope_of(m, scope, sizeof scope),
                                              m->tenant, when_of(m->expire_time, until),
                                              m->suppress_response ? "no" : "yes", findings,
                                              text_clean(m->created_by, by, sizeof by),
                                              text_clean(m->reason, reason, sizeof reason)});
}

static int
silences(const struct handling *h)
{
    static const char *const head[] = {"SILENCE",  "RULE",  "ABOUT", "TENANT", "UNTIL",
                                       "RESPONSE", "FOUND", "BY",    "REASON"};
    Stockade__V1__ListSilencesRequest q = STOCKADE__V1__LIST_SILENCES_REQUEST__INIT;
    struct table *t = h->o->json ? NULL : table_new(head, sizeof head / sizeof head[0]);
    int code = EXIT_OK;
    q.tenant = or_empty(h->o->tenant);
    q.page_token = "";
    do {
        ProtobufCMessage *out = NULL;
        code = call(h, "ListSilences", &q.base, &stockade__v1__list_silences_response__descriptor,
                    &out);
        if (code != EXIT_OK)
            break;
        const Stockade__V1__ListSilencesResponse *m =
            (const Stockade__V1__ListSilencesResponse *)out;
        for (size_t i = 0; i < m->n_silences && code == EXIT_OK; i++) {
            if (h->o->json)
                code = json_put(json_of_message(&m->silences[i]->base));
            else if (t != NULL)
                (void)add_row(t, m->silences[i]);
        }
        q.page_token = m->next_page_token;
    } while (code == EXIT_OK && q.page_token[0] != '\0');
    if (code == EXIT_OK && t != NULL)
        table_print(t, stdout);
    table_free(t);
    return code;
}

// ---- the actions

static const struct act {
    const char *name;
    int (*run)(const struct handling *h);
    int words_min, words_max; // -1: any number
    const char *needs;
    const char *options; // that it takes, beside --tenant
} acts[] = {
    {"ack", ack, 1, -1, "ack needs the number of a finding", " reason "},
    {"unack", unack, 1, -1, "unack needs the number of a finding", ""},
    {"acknowledged", acknowledged, 0, 0, "", ""},
    {"silence", silence, 1, 1, "silence needs one rule",
     " reason for comm suppress-response sandbox template "},
    {"unsilence", unsilence, 1, -1, "unsilence needs the id of a silence", ""},
    {"silences", silences, 0, 0, "", ""},
};

// The first option that was given and that is not among those.
static const char *
foreign_option(const struct options *o, const char *allowed)
{
    const struct {
        const char *name;
        bool given;
    } all[] = {
        {"reason", o->reason != NULL},   {"for", o->ttl_ms != 0},
        {"comm", o->comm != NULL},       {"suppress-response", o->suppress_response},
        {"sandbox", o->sandbox != NULL}, {"template", o->template_name != NULL},
        {"rule", o->rule != NULL},       {"severity", o->severity != NULL},
        {"follow", o->follow},           {"rules", o->rules},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char word[40];
        (void)snprintf(word, sizeof word, " %s ", all[i].name);
        if (all[i].given && strstr(allowed, word) == NULL)
            return all[i].name;
    }
    return NULL;
}

const char *
handled_option(const struct options *o)
{
    const char *name = foreign_option(o, " sandbox template rule severity follow rules ");
    return name != NULL ? "--reason, --for, --comm and --suppress-response need an action" : NULL;
}

int
handled_action(const struct command *c, const struct options *o)
{
    const struct act *act = NULL;
    char why[80];
    int code = EXIT_OK;
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].name, o->args[0]) == 0)
            act = &acts[i];
    if (act == NULL)
        return cli_usage(c, "there is no such action", hint);
    struct handling h = {.c = c, .o = o, .words = o->args + 1, .words_n = o->args_n - 1};
    if (h.words_n < act->words_min)
        return cli_usage(c, act->needs, hint);
    if (act->words_max >= 0 && h.words_n > act->words_max)
        return cli_usage(c, "unexpected argument", hint);
    const char *foreign = foreign_option(o, act->options);
    if (foreign != NULL) {
        (void)snprintf(why, sizeof why, "%s does not take --%s", act->name, foreign);
        return cli_usage(c, why, hint);
    }
    h.s = cli_open(c, o, &code);
    if (h.s == NULL)
        return code;
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    h.a = a;
    if (a == NULL) {
        struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
        code = cli_fail(c, "", &e);
    } else {
        code = act->run(&h);
    }
    stockade_close(h.s);
    return code;
}
