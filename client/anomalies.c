// Findings, rules and profiles (stockade.h).
#include <stddef.h>

#include "../proto/auto.h"
#include "errors.h"
#include "handout.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/anomaly_service.pb-c.h"

#define SERVICE "/stockade.v1.AnomalyService/"

// The broker's answer, in an arena that is the caller's.
static int
ask(struct stockade *s, const char *method, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *response, struct arena **a, void *out,
    struct stockade_error *e)
{
    struct invocation i = {.method = method,
                           .request = request,
                           .response = response,
                           .deadline_ms = UNARY_DEADLINE_MS};
    return invoke(s, &i, a, out, e);
}

static int64_t
time_of(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

struct stockade_finding
finding_from(const Stockade__V1__Finding *m)
{
    return (struct stockade_finding){
        .sequence = m->sequence,
        .time_ms = time_of(m->time),
        .rule = m->rule,
        .severity = (uint32_t)m->severity,
        .text = m->text,
        .score = m->score,
        .threshold = m->threshold,
        .response = m->response,
        .sandbox_id = m->sandbox_id,
        .process_id = m->process_id,
        .template_name = m->template_,
    };
}

static void
findings_request(Stockade__V1__ListFindingsRequest *m, const struct stockade_findings_options *o)
{
    m->page_size = o->page_size;
    m->after_sequence = o->after_sequence;
    m->severity = (Stockade__V1__Severity)o->severity;
    m->wait_ms = o->wait_ms;
    if (o->sandbox_id != NULL)
        m->sandbox_id = o->sandbox_id;
    if (o->rule != NULL)
        m->rule = o->rule;
    if (o->tenant != NULL)
        m->tenant = o->tenant;
}

int
stockade_findings(struct stockade *s, const struct stockade_findings_options *given,
                  const struct stockade_findings **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_findings_options o = STOCKADE_FINDINGS_OPTIONS_INIT;
    Stockade__V1__ListFindingsRequest m = STOCKADE__V1__LIST_FINDINGS_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    Stockade__V1__ListFindingsResponse *got = NULL;
    if (given != NULL && request_options(&o, sizeof o, given, &e) < 0)
        return error_from_err(error, &e);
    findings_request(&m, &o);
    int rc = ask(s, SERVICE "ListFindings", &m.base,
                 &stockade__v1__list_findings_response__descriptor, &a, &got, error);
    if (rc < 0)
        return rc;
    struct stockade_findings *all = hand_out(a, sizeof *all);
    struct stockade_finding *items = arena_alloc(a, (got->n_findings + 1) * sizeof *items);
    if (all == NULL || items == NULL)
        return invoke_too_large(error);
    for (size_t i = 0; i < got->n_findings; i++)
        items[i] = finding_from(got->findings[i]);
    *all = (struct stockade_findings){items, got->n_findings, got->last_sequence, got->more,
                                      got->forgotten};
    *out = all;
    (void)take_ptr(a);
    return 0;
}

int
stockade_rules(struct stockade *s, const char *template_name, const struct stockade_rules **out,
               struct stockade_error *e)
{
    Stockade__V1__ListRulesRequest m = STOCKADE__V1__LIST_RULES_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    Stockade__V1__ListRulesResponse *got = NULL;
    if (template_name != NULL)
        m.template_ = template_name;
    int rc = ask(s, SERVICE "ListRules", &m.base, &stockade__v1__list_rules_response__descriptor,
                 &a, &got, e);
    if (rc < 0)
        return rc;
    struct stockade_rules *all = hand_out(a, sizeof *all);
    struct stockade_rule *items = arena_alloc(a, (got->n_rules + 1) * sizeof *items);
    if (all == NULL || items == NULL)
        return invoke_too_large(e);
    for (size_t i = 0; i < got->n_rules; i++) {
        const Stockade__V1__AnomalyRule *r = got->rules[i];
        items[i] =
            (struct stockade_rule){r->name,      r->meaning,   r->enabled, (uint32_t)r->severity,
                                   r->threshold, r->window_ms, r->response};
    }
    *all = (struct stockade_rules){items, got->n_rules};
    *out = all;
    (void)take_ptr(a);
    return 0;
}

static bool
profile_from(struct stockade_profile *to, struct arena *a, const Stockade__V1__Profile *m)
{
    struct stockade_executable *all = arena_alloc(a, (m->n_executables + 1) * sizeof *all);
    if (all == NULL)
        return false;
    for (size_t i = 0; i < m->n_executables; i++) {
        const Stockade__V1__ProfiledExecutable *x = m->executables[i];
        all[i] = (struct stockade_executable){x->path,     x->inode,     x->size,      x->execs,
                                              x->profiled, x->sequences, x->looked_at, x->unseen,
                                              x->windows,  x->alerts};
    }
    *to = (struct stockade_profile){
        .template_name = m->template_,
        .state = (uint32_t)m->state,
        .version = m->version,
        .runs = m->runs,
        .runs_wanted = m->runs_wanted,
        .frozen_ms = time_of(m->freeze_time),
        .own_files = m->own_files,
        .left_out = m->left_out,
        .executables = all,
        .executables_n = m->n_executables,
    };
    return true;
}

int
stockade_profiles(struct stockade *s, const char *template_name,
                  const struct stockade_profiles **out, struct stockade_error *e)
{
    Stockade__V1__ListProfilesRequest m = STOCKADE__V1__LIST_PROFILES_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    Stockade__V1__ListProfilesResponse *got = NULL;
    if (template_name != NULL)
        m.template_ = template_name;
    int rc = ask(s, SERVICE "ListProfiles", &m.base,
                 &stockade__v1__list_profiles_response__descriptor, &a, &got, e);
    if (rc < 0)
        return rc;
    struct stockade_profiles *all = hand_out(a, sizeof *all);
    struct stockade_profile *items = arena_alloc(a, (got->n_profiles + 1) * sizeof *items);
    if (all == NULL || items == NULL)
        return invoke_too_large(e);
    for (size_t i = 0; i < got->n_profiles; i++)
        if (!profile_from(&items[i], a, got->profiles[i]))
            return invoke_too_large(e);
    *all = (struct stockade_profiles){items, got->n_profiles};
    *out = all;
    (void)take_ptr(a);
    return 0;
}

int
stockade_profile_export(struct stockade *s, const char *template_name,
                        const struct stockade_bytes **out, struct stockade_error *e)
{
    Stockade__V1__ExportProfileRequest m = STOCKADE__V1__EXPORT_PROFILE_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    Stockade__V1__ExportProfileResponse *got = NULL;
    m.template_ = template_name;
    int rc = ask(s, SERVICE "ExportProfile", &m.base,
                 &stockade__v1__export_profile_response__descriptor, &a, &got, e);
    if (rc < 0)
        return rc;
    struct stockade_bytes *file = hand_out(a, sizeof *file);
    if (file == NULL)
        return invoke_too_large(e);
    *file = (struct stockade_bytes){got->file.data, got->file.len};
    *out = file;
    (void)take_ptr(a);
    return 0;
}

int
stockade_profile_import(struct stockade *s, const char *template_name, const void *bytes, size_t n,
                        struct stockade_error *e)
{
    Stockade__V1__ImportProfileRequest m = STOCKADE__V1__IMPORT_PROFILE_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    m.template_ = template_name;
    m.file.data = (uint8_t *)(uintptr_t)bytes; // packed, not written
    m.file.len = n;
    return ask(s, SERVICE "ImportProfile", &m.base,
               &stockade__v1__import_profile_response__descriptor, &a, &got, e);
}

int
stockade_profile_reset(struct stockade *s, const char *template_name, uint32_t learn,
                       struct stockade_error *e)
{
    Stockade__V1__ResetProfileRequest m = STOCKADE__V1__RESET_PROFILE_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    m.template_ = template_name;
    m.learn = learn;
    return ask(s, SERVICE "ResetProfile", &m.base,
               &stockade__v1__reset_profile_response__descriptor, &a, &got, e);
}

int
stockade_profile_freeze(struct stockade *s, const char *template_name, struct stockade_error *e)
{
    Stockade__V1__FreezeProfileRequest m = STOCKADE__V1__FREEZE_PROFILE_REQUEST__INIT;
    struct arena *auto_arena a = NULL;
    ProtobufCMessage *got = NULL;
    m.template_ = template_name;
    return ask(s, SERVICE "FreezeProfile", &m.base,
               &stockade__v1__freeze_profile_response__descriptor, &a, &got, e);
}
