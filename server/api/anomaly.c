// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AnomalyService: translation between its messages and server/anomaly.h.
#include "api.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../anomaly.h"
#include "../anomaly_profiles.h"
#include "../anomaly_rules.h"
#include "../config.h"
#include "../events.h"
#include "../log.h"
#include "../loop.h"
#include "../server.h"
#include "../telemetry.h"
#include "convert.h"

#include "stockade/v1/anomaly_service.pb-c.h"

enum { FINDINGS_USUAL = 100, SHOWN_PATH_MAX = 1024 };

// ---- who may

// Root, and the account that the broker runs as.
static bool
is_operator(const struct call *c)
{
    const struct caller *who = call_caller(c);
    return who->local && (who->uid == 0 || who->uid == getuid());
}

static int
check_operator(const struct call *c, const char *what, struct err *e)
{
    if (is_operator(c))
        return 0;
    int r = err_set(e, ERR_PERMISSION_DENIED,
                    "%s: only root and the broker's account are permitted", what);
    err_detail(e, "OPERATOR_ONLY", what, "use sudo");
    return r;
}

// A template by name, and that the caller may touch its profiles.
static int
find_profile(const struct server *s, const struct call *c, const char *name, uint32_t *number,
             struct err *e)
{
    int r = check_operator(c, "profiles", e);
    if (r < 0)
        return r;
    const struct config_template *t = config_template(s->config, name);
    if (t == NULL) {
        r = err_set(e, ERR_NOT_FOUND, "there is no template \"%s\"", name);
        err_detail(e, "NO_TEMPLATE", name, "SystemService.Info lists them");
        return r;
    }
    *number = (uint32_t)(t - s->config->template);
    return 0;
}

// ---- findings

// A ListFindings that waits.
struct waiting {
    struct anomaly_waiter waiter;
    struct server *server;
    struct call *call;
    const Stockade__V1__ListFindingsRequest *request;
    struct loop_timer *patience;
};

static bool
matches(const Stockade__V1__ListFindingsRequest *m, const char *tenant,
        const struct anomaly_finding *f)
{
    if (strcmp(tenant, "*") != 0 && strcmp(tenant, f->tenant) != 0)
        return false;
    return (m->sandbox_id[0] == '\0' || strcmp(m->sandbox_id, f->sandbox_id) == 0) &&
           (m->rule[0] == '\0' || strcmp(m->rule, f->rule) == 0) &&
           (int)f->severity >= (int)m->severity;
}

static bool
make_labels(struct arena *a, const struct anomaly_finding *f, Stockade__V1__Finding *m)
{
    const char *at = f->labels;
    m->metadata = arena_alloc(a, sizeof(void *) * (f->labels_n + 1));
    for (uint32_t i = 0; m->metadata != NULL && i < f->labels_n; i++) {
        Stockade__V1__Finding__MetadataEntry *entry =
            wire_make(a, &stockade__v1__finding__metadata_entry__descriptor);
        if (entry == NULL)
            return false;
        entry->key = at;
        entry->value = at + strlen(at) + 1;
        at = entry->value + strlen(entry->value) + 1;
        m->metadata[m->n_metadata++] = entry;
    }
    return m->metadata != NULL;
}

static Stockade__V1__Finding *
make_finding(struct arena *a, const struct anomaly_finding *f)
{
    Stockade__V1__Finding *m = wire_make(a, &stockade__v1__finding__descriptor);
    if (m == NULL)
        return NULL;
    m->time =
        wire_make_time(a, (int64_t)(f->time_ns / 1000000000), (int32_t)(f->time_ns % 1000000000));
    if (m->time == NULL)
        return NULL;
    m->rule = f->rule;
    m->severity = (Stockade__V1__Severity)f->severity;
    m->text = f->text;
    m->score = f->score;
    m->threshold = f->threshold;
    m->response = anomaly_response_name(f->response);
    m->sandbox_id = f->sandbox_id;
    m->process_id = f->process_id;
    m->template_ = f->template;
    m->sequence = f->sequence;
    m->pid = f->pid;
    m->comm = f->comm;
    m->sandbox_name = f->sandbox_name;
    return make_labels(a, f, m) ? m : NULL;
}

// A page of what there is now. False without memory.
static bool
fill_findings(const struct server *s, const struct call *c,
              const Stockade__V1__ListFindingsRequest *m, struct arena *a,
              Stockade__V1__ListFindingsResponse *page)
{
    const char *tenant = m->tenant[0] != '\0' ? m->tenant : call_caller(c)->tenant;
    const char *instance = events_instance(telemetry_events(s->telemetry));
    bool earlier = m->instance[0] != '\0' && strcmp(m->instance, instance) != 0;
    size_t most = m->page_size != 0 ? m->page_size : FINDINGS_USUAL;
    const struct anomaly_finding *f = NULL;
    page->instance = instance;
    page->findings = arena_alloc(a, sizeof(void *) * most);
    page->last_sequence = earlier ? 0 : m->after_sequence;
    page->forgotten = anomaly_forgotten(s->anomaly, strcmp(tenant, "*") != 0 ? tenant : NULL,
                                        page->last_sequence);
    if (page->findings == NULL)
        return false;
    while ((f = anomaly_next(s->anomaly, page->last_sequence)) != NULL) {
        if (matches(m, tenant, f)) {
            page->more = page->n_findings == most || arena_used(a) > CONVERT_PAGE_BYTES;
            if (page->more)
                return true;
            page->findings[page->n_findings] = make_finding(a, f);
            if (page->findings[page->n_findings++] == NULL)
                return false;
            page->findings[page->n_findings - 1]->instance = instance;
        }
        page->last_sequence = f->sequence;
    }
    page->last_sequence = anomaly_last(s->anomaly);
    return true;
}

// Answers if there is something, or if `now`. False: the call still waits.
static bool
answer_findings(struct server *s, struct call *c, const Stockade__V1__ListFindingsRequest *m,
                bool now)
{
    Stockade__V1__ListFindingsResponse page = STOCKADE__V1__LIST_FINDINGS_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    if (a == NULL || !fill_findings(s, c, m, a, &page))
        convert_no_memory(c);
    else if (!now && page.n_findings == 0)
        return false;
    else
        call_reply(c, &page.base);
    return true;
}

static void
waiting_free(struct waiting *w)
{
    anomaly_unwait(&w->waiter);
    loop_timer_stop(&w->patience);
    free(w);
}

static void
on_finding(void *cookie)
{
    struct waiting *w = cookie;
    if (answer_findings(w->server, w->call, w->request, w->server->draining))
        waiting_free(w);
    else
        anomaly_wait(w->server->anomaly, &w->waiter); // it was somebody else's
}

static void
on_patience(void *cookie)
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

static void
list_findings(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListFindingsRequest *m = (const Stockade__V1__ListFindingsRequest *)req;
    struct err e;
    bool foreign = m->tenant[0] != '\0' && strcmp(m->tenant, call_caller(c)->tenant) != 0;
    if (foreign && check_operator(c, "tenant", &e) < 0) {
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
    if (loop_timer_start(s->loop, &w->patience, m->wait_ms, on_patience, w) < 0) {
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
    const struct config_template *t = config_template(s->config, name);
    struct err e;
    if (t == NULL) {
        (void)err_set(&e, ERR_NOT_FOUND, "there is no template \"%s\"", name);
        err_detail(&e, "NO_TEMPLATE", name, "SystemService.Info lists them");
        call_fail(c, &e);
        return;
    }
    const struct anomaly_config *policy =
        anomaly_policy(s->anomaly, (uint32_t)(t - s->config->template));
    for (size_t i = 0; i < ANOMALY_RULES; i++) {
        const struct anomaly_policy *p = &policy->rule[i];
        stockade__v1__anomaly_rule__init(&rule[i]);
        rule[i].name = anomaly_rule_table[i].name;
        rule[i].meaning = anomaly_rule_table[i].meaning;
        rule[i].enabled = p->enabled == 1;
        rule[i].severity = (Stockade__V1__Severity)p->severity;
        rule[i].threshold = p->threshold;
        rule[i].window_ms = p->window_ms;
        rule[i].response = anomaly_response_name(p->response);
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
    Stockade__V1__Profile *profile[SPAWN_TEMPLATES_MAX];
    const struct profiles *p = anomaly_profiles(s->anomaly);
    struct err e;
    uint32_t number = 0;
    if (find_profile(s, c, name, &number, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    for (uint32_t i = 0; a != NULL && i < p->sets_n; i++) {
        if (name[0] != '\0' && i != number)
            continue;
        profile[response.n_profiles] = make_profile(a, p, i, name[0] != '\0');
        if (profile[response.n_profiles] == NULL)
            break;
        response.n_profiles++;
    }
    response.profiles = profile;
    if (response.n_profiles != (name[0] != '\0' ? 1 : p->sets_n))
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
    if (find_profile(s, c, name, &number, &e) < 0 ||
        profiles_export(anomaly_profiles(s->anomaly), number, &bytes, &n, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    response.file.data = bytes;
    response.file.len = n;
    call_reply(c, &response.base);
    free(bytes);
}

// Import, Reset and Freeze answer with the profile as it is now, and keep it on disk.
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
              response.profile->template_, answer->short_name, call_caller(c)->tenant,
              response.profile->version, response.profile->runs);
    call_reply(c, &response.base);
}

static void
import_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ImportProfileRequest *m = (const Stockade__V1__ImportProfileRequest *)req;
    uint32_t number = 0;
    struct err e;
    if (find_profile(s, c, m->template_, &number, &e) < 0 ||
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
    int r = find_profile(s, c, m->template_, &number, &e);
    if (r == 0 && !profiles_possible(p))
        r = err_set(&e, ERR_FAILED_PRECONDITION,
                    "profiles are not available: the BPF programs are not loaded");
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    p->set[number].wanted =
        m->learn != 0 ? m->learn : s->config->template[number].anomalies.learn - 1;
    profiles_reset(p, number);
    reply_changed(s, c, number, &stockade__v1__reset_profile_response__descriptor);
}

static void
freeze_profile(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    uint32_t number = 0;
    struct err e;
    const char *name = ((const Stockade__V1__FreezeProfileRequest *)req)->template_;
    if (find_profile(s, c, name, &number, &e) < 0 ||
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
