// SPDX-License-Identifier: Apache-2.0
// policy explain: what would be decided about a call, by the broker, or with --policy by files. The exit code is that of the call itself: 77
// denied, 75 people would be asked.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/requests.h"
#include "policies.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/quantity.h"
#include "proto/wire.h"
#include "server/access/policy_answer.h"
#include "text.h"
#include "stockade/v1/process_service.pb-c.h"

#define VERDICT(name) STOCKADE__V1__POLICY_VERDICT__POLICY_VERDICT_##name

enum { ANSWER_MAX = 8 * 1024 * 1024, CELL_MAX = 1200 };

// ---- the answer

static void
print_step(const Stockade__V1__PolicyStep *s)
{
    char layer[80], clean[CELL_MAX];
    (void)snprintf(layer, sizeof layer, "%s%s%s", s->kind, s->layer[0] != '\0' ? " " : "",
                   s->layer);
    (void)printf("  %-24s %s", text_clean(layer, clean, sizeof clean),
                 policies_verdict(s->verdict));
    if (s->rule[0] != '\0')
        (void)printf(" by %s", text_clean(s->rule, clean, sizeof clean));
    else if (s->layer[0] != '\0')
        (void)printf(": no rule matches");
    if (s->file[0] != '\0')
        (void)printf(" (%s:%" PRIu32 ")", text_clean(s->file, clean, sizeof clean), s->line);
    if (s->reason[0] != '\0')
        (void)printf(": %s", text_clean(s->reason, clean, sizeof clean));
    (void)printf("\n");
}

static void
print_question(const Stockade__V1__PolicyQuestion *q)
{
    char text[CELL_MAX], time[QUANTITY_TEXT];
    (void)printf("ask: %" PRIu32 " of", q->need);
    for (size_t i = 0; i < q->n_approvers; i++)
        (void)printf("%s %s", i > 0 ? "," : "", text_clean(q->approvers[i], text, sizeof text));
    (void)printf(", within %s (rule %s)\n", quantity_write(q->timeout_ms, quantity_time_ms, time),
                 text_clean(q->rule, text, sizeof text));
}

static void
print_limits(const Stockade__V1__PolicyLimits *l)
{
    const struct {
        const char *name, *text;
    } rows[] = {{"memory", l->memory},   {"cpus", l->cpus}, {"cpu time", l->cpu_time},
                {"timeout", l->timeout}, {"pids", l->pids}, {"disk", l->disk},
                {"output", l->output}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].text[0] != '\0')
            (void)printf("limit: %s up to %s\n", rows[i].name, rows[i].text);
}

static void
print_answer(const Stockade__V1__ExplainResponse *m)
{
    char text[CELL_MAX], time[QUANTITY_TEXT];
    (void)printf("%s", policies_verdict(m->verdict));
    if (m->rule[0] != '\0')
        (void)printf(" by %s", text_clean(m->rule, text, sizeof text));
    if (m->reason[0] != '\0')
        (void)printf(": %s", text_clean(m->reason, text, sizeof text));
    (void)printf("\n");
    if (m->verdict == VERDICT(DENY))
        (void)printf("allowed: %s%s\n",
                     m->allowed[0] != '\0' ? text_clean(m->allowed, text, sizeof text)
                                           : "nothing like it",
                     "; for more, ask this host's administrator");
    if (m->retry_ms != 0)
        (void)printf("again in: %s\n", quantity_write(m->retry_ms, quantity_time_ms, time));
    for (size_t i = 0; i < m->n_questions; i++)
        print_question(m->questions[i]);
    if (m->limits != NULL)
        print_limits(m->limits);
    if (m->n_steps > 0)
        (void)printf("layers:\n");
    for (size_t i = 0; i < m->n_steps; i++)
        print_step(m->steps[i]);
}

static int
answer(const struct policing *p, const Stockade__V1__ExplainResponse *m)
{
    int code = EXIT_OK;
    if (p->o->json)
        code = policies_json(&m->base);
    else
        print_answer(m);
    if (code == EXIT_OK)
        code = cli_flush(p->c);
    if (code != EXIT_OK)
        return code;
    if (m->verdict == VERDICT(DENY))
        return m->retry_ms != 0 ? EXIT_WAITING : EXIT_REFUSED;
    return m->verdict == VERDICT(ASK) ? EXIT_WAITING : EXIT_OK;
}

// ---- the call in words

static bool
limits_words(const struct options *o, struct arena *a, Stockade__V1__PolicyLimits *l)
{
    const struct {
        uint64_t value;
        const struct quantity_unit *units;
        const char **to;
    } rows[] = {
        {o->limits.memory_bytes, quantity_bytes, &l->memory},
        {o->limits.cpu_millis, quantity_cpu_millis, &l->cpus},
        {o->limits.pids, quantity_count, &l->pids},
        {o->limits.wall_ms, quantity_time_ms, &l->timeout},
        {o->limits.disk_bytes, quantity_bytes, &l->disk},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[QUANTITY_TEXT];
        if (rows[i].value == 0)
            continue;
        (void)quantity_write(rows[i].value, rows[i].units, text);
        const char *kept = arena_copy(a, text, strlen(text));
        if (kept == NULL)
            return false;
        *rows[i].to = kept;
    }
    return true;
}

static bool
labels_words(const struct options *o, struct arena *a, Stockade__V1__PolicyCall *m)
{
    m->labels = arena_alloc(a, (o->labels_n + 1) * sizeof(void *));
    for (size_t i = 0; i < o->labels_n && m->labels != NULL; i++) {
        const size_t n = strlen(o->labels[i].name) + 1 + strlen(o->labels[i].value) + 1;
        char *text = arena_alloc(a, n);
        if (text == NULL)
            return false;
        (void)snprintf(text, n, "%s=%s", o->labels[i].name, o->labels[i].value);
        m->labels[m->n_labels++] = text;
    }
    return m->labels != NULL;
}

static bool
call_words(const struct policing *p, struct arena *a, Stockade__V1__PolicyCall *m)
{
    const struct options *o = p->o;
    Stockade__V1__PolicyLimits *l = arena_alloc(a, sizeof *l);
    const char **path = arena_alloc(a, sizeof *path);
    if (l == NULL || path == NULL)
        return false;
    stockade__v1__policy_limits__init(l);
    m->method = o->methods != NULL ? o->methods : "";
    m->template_ = o->template_name != NULL ? o->template_name : "";
    m->language = o->language != NULL ? o->language : "";
    m->credential = o->credential != NULL ? o->credential : "";
    m->time = o->at != NULL ? o->at : "";
    m->calls_before = (uint32_t)o->count;
    m->mode = o->simulate ? "simulate" : "";
    m->command = (const char **)(uintptr_t)p->words;
    m->n_command = (size_t)p->words_n;
    m->destinations = (const char **)(uintptr_t)o->allow;
    m->n_destinations = o->allow_n;
    *path = o->path;
    m->paths = path;
    m->n_paths = o->path != NULL;
    m->limits = l;
    return limits_words(o, a, l) && labels_words(o, a, m);
}

// ---- the call as a request, whose limits and network the broker resolves

// Words that no request of Run and Start has.
static bool
needs_words(const struct policing *p)
{
    const struct options *o = p->o;
    return p->words_n == 0 ||
           (o->methods != NULL && strcmp(o->methods, "ProcessService/Run") != 0) ||
           o->path != NULL || o->language != NULL || o->labels_n > 0 || o->at != NULL ||
           o->count != 0;
}

static int
make_run(const struct policing *p, struct arena *a, const ProtobufCMessage **out, struct err *e)
{
    Stockade__V1__RunRequest *m = arena_alloc(a, sizeof *m);
    const struct stockade_command command = {.args = p->words};
    struct stockade_policy network;
    if (m == NULL)
        return err_sys(e, ENOMEM, "explain a call");
    stockade__v1__run_request__init(m);
    m->template_ = p->o->template_name != NULL ? p->o->template_name : "";
    m->mode = p->o->simulate ? STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE
                             : STOCKADE__V1__JOB_MODE__JOB_MODE_UNSPECIFIED;
    *out = &m->base;
    int r = request_command(&m->command, a, &command, e);
    if (r == 0)
        r = request_limits(&m->limits, a, &p->o->limits, e);
    if (r == 0 && options_policy(p->o, &network))
        r = request_network(&m->network, a, network.mode, &network, e);
    return r;
}

static int
make_start(const struct policing *p, const char *sandbox, struct arena *a,
           const ProtobufCMessage **out, struct err *e)
{
    Stockade__V1__StartRequest *m = arena_alloc(a, sizeof *m);
    const struct stockade_command command = {.args = p->words};
    if (m == NULL)
        return err_sys(e, ENOMEM, "explain a call");
    stockade__v1__start_request__init(m);
    m->sandbox_id = sandbox;
    m->foreground = true;
    m->mode = p->o->simulate ? STOCKADE__V1__JOB_MODE__JOB_MODE_SIMULATE
                             : STOCKADE__V1__JOB_MODE__JOB_MODE_UNSPECIFIED;
    *out = &m->base;
    int r = request_command(&m->command, a, &command, e);
    return r == 0 ? request_limits(&m->limits, a, &p->o->limits, e) : r;
}

static int
ask_broker(const struct policing *p, struct arena *a)
{
    Stockade__V1__ExplainRequest request = STOCKADE__V1__EXPLAIN_REQUEST__INIT;
    Stockade__V1__PolicyCall call = STOCKADE__V1__POLICY_CALL__INIT;
    const ProtobufCMessage *planned = NULL;
    ProtobufCMessage *out = NULL;
    struct err e;
    int code = EXIT_OK;
    request.tenant = p->o->tenant != NULL ? p->o->tenant : "";
    request.credential = p->o->credential != NULL ? p->o->credential : "";
    if (needs_words(p)) {
        if (!call_words(p, a, &call))
            return policies_no_memory(p);
        call.credential = "";
        request.call = &call;
    } else {
        request.method = p->o->sandbox != NULL ? "ProcessService/Start" : "ProcessService/Run";
        const int r = p->o->sandbox != NULL ? make_start(p, p->o->sandbox, a, &planned, &e)
                                            : make_run(p, a, &planned, &e);
        if (r < 0)
            return policies_fail(p, &e);
        const size_t n = protobuf_c_message_get_packed_size(planned);
        uint8_t *bytes = arena_alloc(a, n + 1);
        if (bytes == NULL)
            return policies_no_memory(p);
        request.request = (ProtobufCBinaryData){protobuf_c_message_pack(planned, bytes), bytes};
    }
    if (!policies_call(p, "Explain", &request.base, &stockade__v1__explain_response__descriptor, a,
                       &out, &code))
        return code;
    return answer(p, (const Stockade__V1__ExplainResponse *)out);
}

// ---- without a broker

static int
ask_files(const struct policing *p, struct arena *a)
{
    static struct policy_decision d;
    Stockade__V1__ExplainResponse response = STOCKADE__V1__EXPLAIN_RESPONSE__INIT;
    Stockade__V1__PolicyCall call = STOCKADE__V1__POLICY_CALL__INIT;
    struct policy_answering x = {.a = a, .out = &response};
    const struct policy_words by = {.tenant = p->o->tenant != NULL ? p->o->tenant : "uid:1000",
                                    .now_ms = now_wall_ms(),
                                    .step = policy_answer_step,
                                    .cookie = &x};
    struct policy_view v;
    struct policy *policy = NULL;
    struct err e;
    if (!call_words(p, a, &call))
        return policies_no_memory(p);
    int r = policies_read(&p->o->policy_file, 1, true, &policy, &e);
    if (r == 0)
        r = policy_decide_words(policy, &call, &by, &d, &e);
    if (r == 0)
        r = policy_answer_decision(&x, &d, &e);
    policy_view(policy, &v);
    response.digest = (ProtobufCBinaryData){sizeof v.digest, v.digest};
    const int code = r < 0 ? policies_fail(p, &e) : answer(p, &response);
    policy_free(policy);
    return code;
}

int
policies_explain(const struct policing *p)
{
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    if (a == NULL)
        return policies_no_memory(p);
    if (p->o->policy_file != NULL && p->o->sandbox != NULL)
        return cli_usage(p->c, "--policy and --sandbox exclude each other",
                         "a sandbox is known to the broker alone");
    if (p->o->sandbox != NULL && needs_words(p))
        return cli_usage(p->c, "--sandbox needs a COMMAND, and options of a run alone",
                         "stockade policy explain --sandbox SANDBOX -- COMMAND");
    return p->o->policy_file != NULL ? ask_files(p, a) : ask_broker(p, a);
}
