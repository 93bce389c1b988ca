// SPDX-License-Identifier: Apache-2.0
// Findings, rules and profiles (stockade.h).
#include <stddef.h>

#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/anomaly_service.pb-c.h"

#define SERVICE "/stockade.v1.AnomalyService/"

// A call with an empty response.
static int
simple(struct stockade *s, const char *method, const ProtobufCMessage *request,
       const ProtobufCMessageDescriptor *response, struct stockade_error *e)
{
    const struct invocation i = {.method = method, .request = request, .response = response};
    return invoke(s, &i, NULL, e);
}

bool
finding_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Finding *m = (const Stockade__V1__Finding *)from;
    (void)a;
    *(struct stockade_finding *)to = (struct stockade_finding){
        .sequence = m->sequence,
        .time_ms = time_from(m->time),
        .rule = m->rule,
        .severity = (uint32_t)m->severity,
        .text = m->text,
        .score = m->score,
        .threshold = m->threshold,
        .response = m->response,
        .sandbox_id = m->sandbox_id,
        .process_id = m->process_id,
        .template_name = m->template_,
        .message = m,
    };
    return true;
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
    if (o->instance != NULL)
        m->instance = o->instance;
}

static bool
findings_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListFindingsResponse *m = (const Stockade__V1__ListFindingsResponse *)from;
    struct stockade_findings *all = to;
    all->last_sequence = m->last_sequence;
    all->more = m->more;
    all->forgotten = m->forgotten;
    all->instance = m->instance;
    return LIST_FROM(all->items, all->n, a, m->findings, m->n_findings, finding_from);
}

int
stockade_findings(struct stockade *s, const struct stockade_findings_options *given,
                  const struct stockade_findings **out, struct stockade_error *error)
{
    struct err e;
    struct stockade_findings_options o = STOCKADE_FINDINGS_OPTIONS_INIT;
    Stockade__V1__ListFindingsRequest m = STOCKADE__V1__LIST_FINDINGS_REQUEST__INIT;
    if (given != NULL && request_options(&o, sizeof o, given, &e) < 0)
        return error_from_err(error, &e);
    findings_request(&m, &o);
    const struct invocation i = {.method = SERVICE "ListFindings",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_findings_response__descriptor,
                                 .size = sizeof **out,
                                 .read = findings_from};
    return invoke(s, &i, out, error);
}

static bool
rule_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__AnomalyRule *r = (const Stockade__V1__AnomalyRule *)from;
    (void)a;
    *(struct stockade_rule *)to =
        (struct stockade_rule){r->name,      r->meaning,   r->enabled, (uint32_t)r->severity,
                               r->threshold, r->window_ms, r->response};
    return true;
}

static bool
rules_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListRulesResponse *m = (const Stockade__V1__ListRulesResponse *)from;
    struct stockade_rules *all = to;
    return LIST_FROM(all->items, all->n, a, m->rules, m->n_rules, rule_from);
}

int
stockade_rules(struct stockade *s, const char *template_name, const struct stockade_rules **out,
               struct stockade_error *e)
{
    Stockade__V1__ListRulesRequest m = STOCKADE__V1__LIST_RULES_REQUEST__INIT;
    if (template_name != NULL)
        m.template_ = template_name;
    const struct invocation i = {.method = SERVICE "ListRules",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_rules_response__descriptor,
                                 .size = sizeof **out,
                                 .read = rules_from};
    return invoke(s, &i, out, e);
}

static bool
executable_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ProfiledExecutable *x = (const Stockade__V1__ProfiledExecutable *)from;
    (void)a;
    *(struct stockade_executable *)to =
        (struct stockade_executable){x->path,      x->inode,     x->size,   x->execs,   x->profiled,
                                     x->sequences, x->looked_at, x->unseen, x->windows, x->alerts};
    return true;
}

static bool
profile_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Profile *m = (const Stockade__V1__Profile *)from;
    struct stockade_profile *p = to;
    *p = (struct stockade_profile){
        .template_name = m->template_,
        .state = (uint32_t)m->state,
        .version = m->version,
        .runs = m->runs,
        .runs_wanted = m->runs_wanted,
        .frozen_ms = time_from(m->freeze_time),
        .own_files = m->own_files,
        .left_out = m->left_out,
        .learnt_from = m->learnt_from,
    };
    return LIST_FROM(p->executables, p->executables_n, a, m->executables, m->n_executables,
                     executable_from);
}

static bool
profiles_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ListProfilesResponse *m = (const Stockade__V1__ListProfilesResponse *)from;
    struct stockade_profiles *all = to;
    return LIST_FROM(all->items, all->n, a, m->profiles, m->n_profiles, profile_from);
}

int
stockade_profiles(struct stockade *s, const char *template_name,
                  const struct stockade_profiles **out, struct stockade_error *e)
{
    Stockade__V1__ListProfilesRequest m = STOCKADE__V1__LIST_PROFILES_REQUEST__INIT;
    if (template_name != NULL)
        m.template_ = template_name;
    const struct invocation i = {.method = SERVICE "ListProfiles",
                                 .request = &m.base,
                                 .response = &stockade__v1__list_profiles_response__descriptor,
                                 .size = sizeof **out,
                                 .read = profiles_from};
    return invoke(s, &i, out, e);
}

static bool
file_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__ExportProfileResponse *m =
        (const Stockade__V1__ExportProfileResponse *)from;
    (void)a;
    *(struct stockade_bytes *)to = (struct stockade_bytes){m->file.data, m->file.len};
    return true;
}

int
stockade_profile_export(struct stockade *s, const char *template_name,
                        const struct stockade_bytes **out, struct stockade_error *e)
{
    Stockade__V1__ExportProfileRequest m = STOCKADE__V1__EXPORT_PROFILE_REQUEST__INIT;
    m.template_ = template_name;
    const struct invocation i = {.method = SERVICE "ExportProfile",
                                 .request = &m.base,
                                 .response = &stockade__v1__export_profile_response__descriptor,
                                 .size = sizeof **out,
                                 .read = file_from};
    return invoke(s, &i, out, e);
}

int
stockade_profile_import(struct stockade *s, const char *template_name, const void *bytes, size_t n,
                        struct stockade_error *e)
{
    Stockade__V1__ImportProfileRequest m = STOCKADE__V1__IMPORT_PROFILE_REQUEST__INIT;
    struct err no;
    if (request_list(bytes, n, "file", &no) < 0)
        return error_from_err(e, &no);
    m.template_ = template_name;
    m.file.data = (uint8_t *)(uintptr_t)bytes; // packed, but not written
    m.file.len = n;
    return simple(s, SERVICE "ImportProfile", &m.base,
                  &stockade__v1__import_profile_response__descriptor, e);
}

int
stockade_profile_reset(struct stockade *s, const char *template_name, uint32_t learn,
                       struct stockade_error *e)
{
    Stockade__V1__ResetProfileRequest m = STOCKADE__V1__RESET_PROFILE_REQUEST__INIT;
    m.template_ = template_name;
    m.learn = learn;
    return simple(s, SERVICE "ResetProfile", &m.base,
                  &stockade__v1__reset_profile_response__descriptor, e);
}

int
stockade_profile_freeze(struct stockade *s, const char *template_name, struct stockade_error *e)
{
    Stockade__V1__FreezeProfileRequest m = STOCKADE__V1__FREEZE_PROFILE_REQUEST__INIT;
    m.template_ = template_name;
    return simple(s, SERVICE "FreezeProfile", &m.base,
                  &stockade__v1__freeze_profile_response__descriptor, e);
}
