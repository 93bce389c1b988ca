// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AnomalyService: translation between its messages and server/anomaly/anomaly.h.
#include "api.h"

#include <stdlib.h>
#include <string.h>

#include "server/anomaly/anomaly.h"
#include "server/anomaly/profiles.h"
#include "server/anomaly/rules.h"
#include "server/config/config.h"
#include "server/telemetry/events.h"
#include "server/telemetry/finding.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/telemetry/telemetry.h"
#include "convert.h"
#include "finding_message.h"
#include "page.h"

#include "stockade/v1/anomaly_service.pb-c.h"

enum { SHOWN_PATH_MAX = 1024 };

// The number of a template, by name.
static int
find_profile(const struct server *s, const char *name, uint32_t *number, struct err *e)
{
    const struct template *t = config_template(s->config, name);
    if (t == NULL) {
        return convert_no_template(name, e);
    }
    *number = t->number;
    return 0;
}

// ---- findings

// A ListFindings that waits.
struct waiting {
    struct anomaly_waiter waiter;
    struct server *server;
    struct call *call;
    const Stockade__V1__ListFindingsRequest *request;
    struct loop_timer *wait_timer;
};

static bool
matches(const Stockade__V1__ListFindingsRequest *m, const char *tenant, const struct finding *f)
{
    if (tenant != NULL && strcmp(tenant, f->tenant) != 0)
        return false;
    return (m->sandbox_id[0] == '\0' || strcmp(m->sandbox_id, f->sandbox_id) == 0) &&
           (m->rule[0] == '\0' || strcmp(m->rule, f->rule) == 0) &&
           (int)f->severity >= (int)m->severity;
}

// Adds the available findings after the request's number; *last is the number to continue from.
static void
fill_findings(const struct server *s, const Stockade__V1__ListFindingsRequest *m,
              const char *tenant, const char *instance, struct page *p, uint64_t *last)
{
    const struct finding *f = NULL;
    for (; (f = anomaly_next(s->anomaly, *last)) != NULL; *last = f->sequence) {
        if (!matches(m, tenant, f))
            continue;
        if (!page_has_room(p))
            return;
        if (!page_add(p, f->sequence, finding_message(p->arena, s, f, instance)))
            return;
    }
    *last = anomaly_last(s->anomaly);
}

// Responds if there is a finding, or if `now` is set. False: the call still waits.
static bool
answer_findings(struct server *s, struct call *c, const Stockade__V1__ListFindingsRequest *m,
                bool now)
{
    const char *tenant = call_whose(c);
    const char *instance = events_instance(telemetry_events(s->telemetry));
    const bool earlier = m->instance[0] != '\0' && strcmp(m->instance, instance) != 0;
    const uint64_t after = earlier ? 0 : m->after_sequence;
    Stockade__V1__ListFindingsResponse response = STOCKADE__V1__LIST_FINDINGS_RESPONSE__INIT;
    struct page auto_page p = {0};
    struct err e;
    // pages of findings are continued by number, not by token
    (void)page_begin(&p, m->page_size, "", &e);
    response.instance = instance;
    response.last_sequence = after;
    response.forgotten = anomaly_forgotten(s->anomaly, tenant, after);
    fill_findings(s, m, tenant, instance, &p, &response.last_sequence);
    if (!now && p.n == 0 && !p.no_memory)
        return false;
    response.findings = p.elements;
    response.n_findings = p.n;
    response.more = p.full;
    page_reply(&p, c, &response.base);
    return true;
}

static void
waiting_free(struct waiting *w)
{
    anomaly_unwait(&w->waiter);
    loop_timer_stop(&w->wait_timer);
    free(w);
}

static void
on_finding(void *cookie)
{
    struct waiting *w = cookie;
    if (answer_findings(w->server, w->call, w->request, w->server->drained))
        waiting_free(w);
    else
        anomaly_wait(w->server->anomaly, &w->waiter); // the finding was another tenant's
}

static void
on_wait_end(void *cookie)
{
    struct waiting *w = cookie;
    (void)answer_findings(w->server, w->call, w->request, true);
    waiting_free(w);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    waiting_free(cookie);
}

// An unknown rule has no findings, which looks as if nothing had happened.
static int
check_rule(const struct anomaly *a, const char *tenant, const char *name, struct err *e)
{
    if (name[0] == '\0' || anomaly_rule_find(name) >= 0 || anomaly_has_written(a, tenant, name))
        return 0;
    int rc = err_field(e, "rule", "there is no rule %s", name);
    err_detail(e, NULL, NULL, "'stockade anomalies --rules' lists them");
    return rc;
}

static void
list_findings(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListFindingsRequest *m = (const Stockade__V1__ListFindingsRequest *)req;
    struct err e;
    if (check_rule(s->anomaly, call_whose(c), m->rule, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (m->instance[0] == '\0' && m->after_sequence > anomaly_last(s->anomaly)) {
        err_field(&e, "after_sequence", "the last finding is %llu",
                  (unsigned long long)anomaly_last(s->anomaly));
        err_detail(
            &e, "SEQUENCE_AHEAD", "after_sequence",
            "start again from 0, or pass the instance of the broker that the number belongs to");
        call_fail(c, &e);
        return;
    }
    if (answer_findings(s, c, m, m->wait_ms == 0))
        return;
    if (s->drained) {
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        call_fail(c, &e);
        return;
    }
    struct waiting *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    *w = (struct waiting){.server = s, .call = c, .request = m};
    w->waiter.done = on_finding;
    w->waiter.cookie = w;
    anomaly_wait(s->anomaly, &w->waiter);
    call_watch(c, on_cancel, NULL, w);
    call_only_watches(c);
    if (loop_timer_start(s->loop, &w->wait_timer, m->wait_ms, on_wait_end, w) < 0) {
        convert_no_memory(c);
        waiting_free(w);
    }
}

// ---- rules

static void
list_rules(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    Stockade__V1__ListRulesResponse response = STOCKADE__V1__LIST_RULES_RESPONSE__INIT;
    Stockade__V1__AnomalyRule rule[ANOMALY_RULES];
    Stockade__V1__AnomalyRule *rules[ANOMALY_RULES];
    const char *name = ((const Stockade__V1__ListRulesRequest *)req)->template_;
    const struct template *t = config_template(s->config, name);
    struct err e;
    if (t == NULL) {
        (void)convert_no_template(name, &e);
        call_fail(c, &e);
        return;
    }
    const struct anomaly_config *policy = anomaly_policy(s->anomaly, t->number);
    for (size_t i = 0; i < ANOMALY_RULES; i++) {
        const struct anomaly_policy *p = &policy->rule[i];
        stockade__v1__anomaly_rule__init(&rule[i]);
        rule[i].name = anomaly_rule_table[i].name;
        rule[i].meaning = anomaly_rule_table[i].meaning;
        rule[i].enabled = p->enabled == 1;
        rule[i].severity = (Stockade__V1__Severity)p->severity;
        rule[i].threshold = p->threshold;
        rule[i].window_ms = p->window_ms;
        rule[i].response = finding_response_name(p->response);
        rules[i] = &rule[i];
    }
    response.rules = rules;
    response.n_rules = ANOMALY_RULES;
    call_reply(c, &response.base);
}

// ---- profiles

static Stockade__V1__ProfiledExecutable *
make_executable(struct arena *a, const struct profiles *p, const struct profile_exe *x)
{
    Stockade__V1__ProfiledExecutable *m =
        wire_make(a, &stockade__v1__profiled_executable__descriptor);
    char path[SHOWN_PATH_MAX];
    if (m == NULL)
        return NULL;
    m->path = arena_copy(a, path, log_escape(x->path, path, sizeof path));
    if (m->path == NULL)
        return NULL;
    struct watch_profile_state k = profiles_figures(p, x);
    m->inode = x->key.inode;
    m->size = x->key.size;
    m->execs = x->execs;
    m->profiled = x->slot != 0;
    m->sequences = profiles_bits(p, x);
    m->looked_at = k.trigrams;
    m->unseen = k.unseen;
    m->windows = k.windows;
    m->alerts = k.alerts;
    return m;
}

static Stockade__V1__Profile *
make_profile(struct arena *a, const struct profiles *p, uint32_t number, bool executables)
{
    const struct profile_set *set = &p->set[number];
    Stockade__V1__Profile *m = wire_make(a, &stockade__v1__profile__descriptor);
    if (m == NULL)
        return NULL;
    m->template_ = set->template;
    m->state = (Stockade__V1__ProfileState)set->state;
    m->version = set->version;
    m->runs = set->runs;
    m->runs_wanted = set->wanted;
    m->own_files = set->own_files;
    m->learnt_from = set->learnt_from;
    m->left_out = p->left_out;
    if (set->frozen_s != 0 &&
        (m->freeze_time = wire_make_time(a, (int64_t)set->frozen_s, 0)) == NULL)
        return NULL;
    m->executables = arena_alloc(a, sizeof(void *) * (p->exes_n + 1));
    for (uint32_t i = 0; m->executables != NULL && executables && i < p->exes_n; i++) {
        if (p->exe[i].key.template != number)
            continue;
        Stockade__V1__ProfiledExecutable *x = make_executable(a, p, &p->exe[i]);
        if (x == NULL)
            return NULL;
        m->executables[m->n_executables++] = x;
    }
    return m->executables != NULL ? m : NULL;
}

static void
list_profiles(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *name = ((const Stockade__V1__ListProfilesRequest *)req)->template_;
    Stockade__V1__ListProfilesResponse response = STOCKADE__V1__LIST_PROFILES_RESPONSE__INIT;
    Stockade__V1__Profile *profile[TEMPLATES_MAX];
    const struct profiles *p = anomaly_profiles(s->anomaly);
    struct err e;
    uint32_t number = 0;
    size_t wanted = 0;
    if (find_profile(s, name, &number, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    for (uint32_t i = 0; a != NULL && i < p->sets_n; i++) {
        if (name[0] != '\0' ? i != number : s->config->sandbox.template[i].removed)
            continue;
        wanted++;
        profile[response.n_profiles] = make_profile(a, p, i, name[0] != '\0');
        if (profile[response.n_profiles] == NULL)
            break;
        response.n_profiles++;
    }
    response.profiles = profile;
    if (a == NULL || response.n_profiles != wanted)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

static void
export_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    Stockade__V1__ExportProfileResponse response = STOCKADE__V1__EXPORT_PROFILE_RESPONSE__INIT;
    uint32_t number = 0;
    uint8_t *bytes = NULL;
    size_t n = 0;
    struct err e;
    const char *name = ((const Stockade__V1__ExportProfileRequest *)req)->template_;
    if (find_profile(s, name, &number, &e) < 0 ||
        profiles_export(anomaly_profiles(s->anomaly), number, &bytes, &n, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    response.file.data = bytes;
    response.file.len = n;
    call_reply(c, &response.base);
    free(bytes);
}

// Import, Reset and Freeze respond with the profile after the change, and save it.
static void
reply_changed(struct server *s, struct call *c, uint32_t number,
              const ProtobufCMessageDescriptor *answer)
{
    Stockade__V1__FreezeProfileResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__ImportProfileResponse) &&
                       sizeof response == sizeof(Stockade__V1__ResetProfileResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct err e;
    anomaly_changed(s->anomaly, number);
    if (anomaly_save(s->anomaly, number, &e) < 0)
        log_err(LOG_WARNING, "profile", &e);
    answer->message_init((ProtobufCMessage *)&response);
    response.profile =
        a != NULL ? make_profile(a, anomaly_profiles(s->anomaly), number, false) : NULL;
    if (response.profile == NULL) {
        convert_no_memory(c);
        return;
    }
    log_event(LOG_INFO, "profile", "template %s: %s by %s, version %u, %u runs",
              response.profile->template_, answer->short_name, call_tenant(c),
              response.profile->version, response.profile->runs);
    call_reply(c, &response.base);
}

static void
import_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ImportProfileRequest *m = (const Stockade__V1__ImportProfileRequest *)req;
    uint32_t number = 0;
    struct err e;
    if (find_profile(s, m->template_, &number, &e) < 0 ||
        profiles_import(anomaly_profiles(s->anomaly), number, m->file.data, m->file.len, false,
                        &e) < 0)
        call_fail(c, &e);
    else
        reply_changed(s, c, number, &stockade__v1__import_profile_response__descriptor);
}

static void
reset_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ResetProfileRequest *m = (const Stockade__V1__ResetProfileRequest *)req;
    struct profiles *p = anomaly_profiles(s->anomaly);
    uint32_t number = 0;
    struct err e;
    int r = find_profile(s, m->template_, &number, &e);
    if (r == 0 && !profiles_possible(p))
        r = err_set(&e, ERR_FAILED_PRECONDITION,
                    "profiles are not available: the BPF programs are not loaded");
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    p->set[number].wanted =
        m->learn != 0 ? m->learn : s->config->anomaly.of_template[number].learn - 1;
    profiles_reset(p, number);
    reply_changed(s, c, number, &stockade__v1__reset_profile_response__descriptor);
}

static void
freeze_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    uint32_t number = 0;
    struct err e;
    const char *name = ((const Stockade__V1__FreezeProfileRequest *)req)->template_;
    if (find_profile(s, name, &number, &e) < 0 ||
        profiles_freeze(anomaly_profiles(s->anomaly), number, &e) < 0)
        call_fail(c, &e);
    else
        reply_changed(s, c, number, &stockade__v1__freeze_profile_response__descriptor);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.AnomalyService/" name, &stockade__v1__##message##_request__descriptor,       \
            &stockade__v1__##message##_response__descriptor, handler                               \
    }

const struct call_method anomaly_methods[] = {
    METHOD("ListFindings", list_findings, list_findings),
    METHOD("ListRules", list_rules, list_rules),
    METHOD("ListProfiles", list_profiles, list_profiles),
    METHOD("ExportProfile", export_profile, export_profile),
    METHOD("ImportProfile", import_profile, import_profile),
    METHOD("ResetProfile", reset_profile, reset_profile),
    METHOD("FreezeProfile", freeze_profile, freeze_profile),
    {0},
};
