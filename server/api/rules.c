// SPDX-License-Identifier: Apache-2.0
// stockade.v1.RulesService: translation between its messages and server/anomaly/tenant_rules.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "pending.h"
#include "rules_convert.h"
#include "server/anomaly/tenant_rules.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/telemetry/telemetry.h"
#include "stockade/v1/rules_service.pb-c.h"

enum { TRIED_FINDINGS_MAX = 256 };

// Whose rules; NULL: the call has failed.
static const char *
tenant_of(struct call *c)
{
    const char *tenant = call_whose(c);
    struct err e;
    if (tenant != NULL)
        return tenant;
    (void)err_field(&e, "tenant", "name one tenant: rules belong to one");
    call_fail(c, &e);
    return NULL;
}

static int
no_file(const char *name, struct err *e)
{
    const int r = err_set(e, ERR_NOT_FOUND, "there is no file of rules %.64s", name);
    err_detail(e, "", "name", "'stockade rules ls' lists them");
    return r;
}

// ---- Set, Delete, Enable, Disable

// A change that is waited for.
struct changing {
    struct server *s;
    struct call *call;
    const ProtobufCMessageDescriptor *answer;
    struct rule_change *change;
    char name[65]; // of the file, or the rule
    bool is_rule;
};

static bool
unwatched(const struct server *s)
{
    return !telemetry_watches(s->telemetry, false);
}

static void
reply_file(const struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer,
           const struct tenant_rules *t, const char *name, bool text)
{
    Stockade__V1__RulesServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__RulesServiceSetResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct rule_file *f = tenant_rules_file(t, name);
    const struct rules_shown shown = {t->rules, t->tenant, name, true, unwatched(s)};
    answer->message_init((ProtobufCMessage *)&response);
    response.file = a != NULL && f != NULL ? rules_convert_file(a, t, f, text) : NULL;
    if (response.file == NULL || !rules_convert(a, &shown, &response.rules, &response.n_rules))
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

static void
reply_rule(const struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer,
           const struct tenant_rules *t, const char *id)
{
    Stockade__V1__RulesServiceEnableResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__RulesServiceDisableResponse),
                   "they are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct rules_shown shown = {t->rules, t->tenant, NULL, true, unwatched(s)};
    answer->message_init((ProtobufCMessage *)&response);
    const int i = detect_find(t->rules, id);
    response.rule = a != NULL && i >= 0 ? rules_convert_rule(a, &shown, (uint32_t)i) : NULL;
    if (response.rule == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

static void
on_changed(void *cookie, struct tenant_rules *t, const struct err *e)
{
    struct changing *w = cookie;
    Stockade__V1__RulesServiceDeleteResponse none =
        STOCKADE__V1__RULES_SERVICE_DELETE_RESPONSE__INIT;
    if (e != NULL)
        call_fail(w->call, e);
    else if (w->is_rule)
        reply_rule(w->s, w->call, w->answer, t, w->name);
    else if (w->answer == none.base.descriptor)
        call_reply(w->call, &none.base);
    else
        reply_file(w->s, w->call, w->answer, t, w->name, false);
    free(w);
}

// It is made all the same; nobody waits for it.
static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct changing *w = cookie;
    (void)why;
    rules_unwait(w->change);
    free(w);
}

static void
change(struct server *s, struct call *c, const struct rules_wanted *wanted,
       const ProtobufCMessageDescriptor *answer)
{
    struct err e;
    if (wanted->tenant == NULL)
        return; // the call has failed
    struct changing *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    *w = (struct changing){
        .s = s, .call = c, .answer = answer, .is_rule = wanted->what == RULES_SWITCH};
    (void)snprintf(w->name, sizeof w->name, "%s", wanted->name);
    if (rules_change(s->rules, wanted, &s->config->anomaly.rules, on_changed, w, &w->change, &e) <
        0) {
        call_fail(c, &e);
        free(w);
        return;
    }
    call_watch(c, on_cancel, NULL, w);
}

static void
set(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RulesServiceSetRequest *m =
        (const Stockade__V1__RulesServiceSetRequest *)req;
    change(
        s, c,
        &(struct rules_wanted){call_tenant(c), RULES_SET, m->name, m->text, strlen(m->text), true},
        &stockade__v1__rules_service_set_response__descriptor);
}

static void
delete_file(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RulesServiceDeleteRequest *m =
        (const Stockade__V1__RulesServiceDeleteRequest *)req;
    change(s, c, &(struct rules_wanted){tenant_of(c), RULES_DELETE, m->name, NULL, 0, true},
           &stockade__v1__rules_service_delete_response__descriptor);
}

static void
enable(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *rule = ((const Stockade__V1__RulesServiceEnableRequest *)req)->rule;
    change(s, c, &(struct rules_wanted){tenant_of(c), RULES_SWITCH, rule, NULL, 0, true},
           &stockade__v1__rules_service_enable_response__descriptor);
}

static void
disable(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *rule = ((const Stockade__V1__RulesServiceDisableRequest *)req)->rule;
    change(s, c, &(struct rules_wanted){tenant_of(c), RULES_SWITCH, rule, NULL, 0, false},
           &stockade__v1__rules_service_disable_response__descriptor);
}

// ---- Get, List

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *name = ((const Stockade__V1__RulesServiceGetRequest *)req)->name;
    const char *tenant = tenant_of(c);
    struct err e;
    if (tenant == NULL)
        return;
    const struct tenant_rules *t = tenant_rules_find(s->rules, tenant);
    if (t != NULL && tenant_rules_file(t, name) != NULL) {
        reply_file(s, c, &stockade__v1__rules_service_get_response__descriptor, t, name, true);
        return;
    }
    (void)no_file(name, &e);
    call_fail(c, &e);
}

static bool
add_files(struct arena *a, const struct tenant_rules *t,
          Stockade__V1__RulesServiceListResponse *out)
{
    out->files = arena_alloc(a, (RULE_FILES_MAX + 1) * sizeof(void *));
    if (out->files == NULL || t == NULL)
        return out->files != NULL;
    for (struct list *it = t->files.next; it != &t->files; it = it->next) {
        out->files[out->n_files] =
            rules_convert_file(a, t, list_entry(it, struct rule_file, node), false);
        if (out->files[out->n_files++] == NULL)
            return false;
    }
    out->skipped = t->skipped;
    out->text_bytes = t->text_bytes;
    return true;
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RulesServiceListRequest *m =
        (const Stockade__V1__RulesServiceListRequest *)req;
    Stockade__V1__RulesServiceListResponse response =
        STOCKADE__V1__RULES_SERVICE_LIST_RESPONSE__INIT;
    const char *tenant = tenant_of(c);
    if (tenant == NULL)
        return;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct tenant_rules *t = tenant_rules_find(s->rules, tenant);
    const struct rules_shown own = {t != NULL ? t->rules : NULL, tenant, NULL, true, unwatched(s)};
    const bool all = principal_has(call_principal(c), SCOPE_TENANTS_READ);
    const struct rules_shown host = {.whole = all, .unwatched = unwatched(s)};
    bool whole = a != NULL && add_files(a, t, &response) &&
                 rules_convert(a, &own, &response.rules, &response.n_rules);
    for (size_t i = 0; whole && i < response.n_rules; i++)
        response.table_bytes += response.rules[i]->table_bytes;
    if (whole && m->host)
        whole =
            rules_convert_host(a, &s->config->anomaly, &host, &response.rules, &response.n_rules);
    if (!whole)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

// ---- Check, Test

static void
check(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RulesServiceCheckRequest *m =
        (const Stockade__V1__RulesServiceCheckRequest *)req;
    Stockade__V1__RulesServiceCheckResponse response =
        STOCKADE__V1__RULES_SERVICE_CHECK_RESPONSE__INIT;
    struct detect *d = NULL;
    struct err e;
    if (tenant_rules_check(s->rules, call_tenant(c), m->name, m->text, s->config->anomaly.rules, &d,
                           &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    const struct rules_shown shown = {d, call_tenant(c), m->name, true, unwatched(s)};
    if (a == NULL || !rules_convert(a, &shown, &response.rules, &response.n_rules)) {
        convert_no_memory(c);
    } else {
        for (size_t i = 0; i < response.n_rules; i++)
            response.tests += response.rules[i]->tests;
        call_reply(c, &response.base);
    }
    detect_free(d);
}

struct trying {
    struct arena *a;
    Stockade__V1__RulesServiceTestResponse *out;
    bool failed;
};

static void
on_tried(void *cookie)
{
    struct trying *t = cookie;
    t->out->events++;
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    struct trying *t = cookie;
    Stockade__V1__RulesServiceTestResponse *out = t->out;
    if (f->why == DETECT_REPEATED)
        return;
    if (out->findings_total++ >= TRIED_FINDINGS_MAX)
        return;
    Stockade__V1__RuleTestFinding *m =
        wire_make(t->a, &stockade__v1__rule_test_finding__descriptor);
    const char *text = m != NULL ? arena_copy(t->a, f->text, strlen(f->text)) : NULL;
    const char *rule = m != NULL ? arena_copy(t->a, f->rule->id, strlen(f->rule->id)) : NULL;
    t->failed = t->failed || text == NULL || rule == NULL;
    if (t->failed)
        return;
    m->event = (uint32_t)out->events;
    m->rule = rule;
    m->severity = f->rule->severity;
    m->response = rules_response_name(f->rule);
    m->text = text;
    m->score = (double)f->score;
    m->threshold = (double)f->threshold;
    out->findings[out->n_findings++] = m;
}

// The rules of the request, or those in force, read again: their counts must not change.
static int
rules_to_try(struct server *s, const struct call *c, const char *text, struct detect **out,
             struct err *e)
{
    if (text[0] != '\0')
        return tenant_rules_check(s->rules, call_tenant(c), NULL, text, s->config->anomaly.rules,
                                  out, e);
    return tenant_rules_again(s->rules, call_tenant(c), out, e);
}

static void
test(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RulesServiceTestRequest *m =
        (const Stockade__V1__RulesServiceTestRequest *)req;
    Stockade__V1__RulesServiceTestResponse response =
        STOCKADE__V1__RULES_SERVICE_TEST_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    struct trying t = {a, &response, false};
    struct detect *d = NULL;
    struct err e;
    response.findings = a != NULL ? arena_alloc(a, TRIED_FINDINGS_MAX * sizeof(void *)) : NULL;
    if (response.findings == NULL) {
        convert_no_memory(c);
        return;
    }
    int r = rules_to_try(s, c, m->text, &d, &e);
    if (r == 0)
        r = detect_try(d, &detect_bounds_tenant, m->events, m->n_events,
                       &(struct detect_trial){on_tried, on_found, &t}, &e);
    detect_free(d);
    if (r < 0)
        call_fail(c, &e);
    else if (t.failed)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.RulesService/" name,                                                         \
            &stockade__v1__rules_service_##message##_request__descriptor,                          \
            &stockade__v1__rules_service_##message##_response__descriptor, handler                 \
    }

const struct call_method rules_methods[] = {
    METHOD("Set", set, set),
    METHOD("Get", get, get),
    METHOD("List", list, list),
    METHOD("Delete", delete, delete_file),
    METHOD("Enable", enable, enable),
    METHOD("Disable", disable, disable),
    METHOD("Check", check, check),
    METHOD("Test", test, test),
    {0},
};
