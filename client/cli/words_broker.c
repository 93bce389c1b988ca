// SPDX-License-Identifier: Apache-2.0
// See words_private.h: names and ids that the broker knows. The caller has set an alarm, since a broker may not respond.
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/destinations.h"
#include "cli.h"
#include "pages.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "stockade/v1/rules_service.pb-c.h"
#include "words_private.h"

enum { ID_SHOWN = 12, PAGE_BYTES = 33, ABOUT_BYTES = 128, OFFERS_ARENA = 8 * 1024 * 1024 };

// An id in its short form, or in full if more than that was typed. A sandbox with a name is completed by its name,
// unless the start of an id was typed.
static void
offer_id(const struct offers *o, const char *id, const char *name, const char *about)
{
    char shown[PAGE_BYTES];
    if (name[0] != '\0')
        words_word(o, name, about);
    if (name[0] != '\0' && o->typed[0] == '\0')
        return;
    (void)snprintf(shown, sizeof shown, "%.*s",
                   strlen(o->typed) > ID_SHOWN ? PAGE_BYTES - 1 : ID_SHOWN, id);
    words_word(o, shown, about);
}

static bool
offer_sandbox(void *cookie, const struct stockade_sandbox *box)
{
    char about[ABOUT_BYTES];
    (void)snprintf(about, sizeof about, "sandbox of %.64s, %s", box->template_name,
                   cli_state_name(box->state));
    offer_id(cookie, box->id, box->name, about);
    return true;
}

static void
offer_sandboxes(const struct offers *o, struct stockade *s)
{
    struct offers all = *o;
    (void)pages_sandboxes(s, NULL, 0, offer_sandbox, &all, NULL);
}

static bool
offer_process(void *cookie, const struct stockade_process *p)
{
    char about[ABOUT_BYTES];
    (void)snprintf(about, sizeof about, "%s: %.80s", p->result == NULL ? "running" : "ended",
                   p->args_n > 0 ? p->args[0] : "");
    offer_id(cookie, p->id, "", about);
    return true;
}

static void
offer_processes(const struct offers *o, struct stockade *s)
{
    struct offers all = *o;
    (void)pages_processes(s, NULL, offer_process, &all, NULL);
}

static void
offer_templates(const struct offers *o, struct stockade *s)
{
    const struct stockade_sandbox_templates *all = NULL;
    if (stockade_template_list(s, NULL, &all, NULL) < 0)
        return;
    for (size_t i = 0; i < all->n; i++)
        words_word(o, all->items[i].name, all->items[i].of_host ? "template" : "template of yours");
    stockade_free(all);
}

static void
offer_each_volume(const struct offers *o, struct stockade *s, const char *prefix)
{
    struct stockade_error e;
    const struct stockade_volumes *all = NULL;
    if (stockade_volume_list(s, NULL, &all, &e) < 0)
        return;
    for (size_t i = 0; i < all->n; i++) {
        char word[CLI_TARGET_SIZE];
        (void)snprintf(word, sizeof word, "%s%s", prefix, all->items[i].name);
        words_word(o, word, "volume");
    }
    stockade_free(all);
}

static void
offer_names(const struct offers *o, struct stockade *s)
{
    offer_each_volume(o, s, "");
}

// An answer of the broker in the arena; NULL: none.
static const void *
answer(struct stockade *s, const char *method, const ProtobufCMessage *request,
       const ProtobufCMessageDescriptor *response, struct arena *a)
{
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    return a != NULL && remote_call(s, method, request, response, a, &m, &e) == 0 ? m : NULL;
}

static void
offer_each_approval(const struct offers *o, struct stockade *s, Stockade__V1__ApprovalState state)
{
    struct arena *auto_arena a = arena_new(OFFERS_ARENA);
    Stockade__V1__ApprovalServiceListRequest request =
        STOCKADE__V1__APPROVAL_SERVICE_LIST_REQUEST__INIT;
    request.state = state;
    const Stockade__V1__ApprovalServiceListResponse *m =
        answer(s, "/stockade.v1.ApprovalService/List", &request.base,
               &stockade__v1__approval_service_list_response__descriptor, a);
    for (size_t i = 0; m != NULL && i < m->n_approvals; i++)
        words_word(o, m->approvals[i]->id, m->approvals[i]->method);
}

static void
offer_approvals(const struct offers *o, struct stockade *s)
{
    offer_each_approval(o, s, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_UNSPECIFIED);
}

static void
offer_pending(const struct offers *o, struct stockade *s)
{
    offer_each_approval(o, s, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING);
}

static void
offer_keys(const struct offers *o, struct stockade *s)
{
    struct arena *auto_arena a = arena_new(OFFERS_ARENA);
    Stockade__V1__KeyServiceListRequest request = STOCKADE__V1__KEY_SERVICE_LIST_REQUEST__INIT;
    const Stockade__V1__KeyServiceListResponse *m =
        answer(s, "/stockade.v1.KeyService/List", &request.base,
               &stockade__v1__key_service_list_response__descriptor, a);
    for (size_t i = 0; m != NULL && i < m->n_keys; i++)
        if (m->keys[i]->revoke_time == NULL)
            words_word(o, m->keys[i]->id,
                       m->keys[i]->label[0] != '\0' ? m->keys[i]->label : m->keys[i]->hint);
}

static const Stockade__V1__RulesServiceListResponse *
list_rules(struct stockade *s, struct arena *a)
{
    Stockade__V1__RulesServiceListRequest request = STOCKADE__V1__RULES_SERVICE_LIST_REQUEST__INIT;
    return answer(s, "/stockade.v1.RulesService/List", &request.base,
                  &stockade__v1__rules_service_list_response__descriptor, a);
}

static void
offer_rules(const struct offers *o, struct stockade *s)
{
    struct arena *auto_arena a = arena_new(OFFERS_ARENA);
    const Stockade__V1__RulesServiceListResponse *m = list_rules(s, a);
    for (size_t i = 0; m != NULL && i < m->n_rules; i++)
        if (m->rules[i]->origin == STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_TENANT)
            words_word(o, m->rules[i]->id, "rule of yours");
}

static void
offer_rule_files(const struct offers *o, struct stockade *s)
{
    struct arena *auto_arena a = arena_new(OFFERS_ARENA);
    const Stockade__V1__RulesServiceListResponse *m = list_rules(s, a);
    for (size_t i = 0; m != NULL && i < m->n_files; i++)
        words_word(o, m->files[i]->name, "file of rules");
}

static void
offer_targets(const struct offers *o, struct stockade *s)
{
    offer_sandboxes(o, s);
    offer_each_volume(o, s, "volume:");
}

void
words_thing(const struct offers *o, enum thing thing)
{
    static void (*const ask[])(const struct offers *o, struct stockade *s) = {
        [THING_SANDBOX] = offer_sandboxes,
        [THING_PROCESS] = offer_processes,
        [THING_TEMPLATE] = offer_templates,
        [THING_VOLUME] = offer_names,
        [THING_TARGET] = offer_targets,
        [THING_KEY] = offer_keys,
        [THING_APPROVAL] = offer_approvals,
        [THING_PENDING] = offer_pending,
        [THING_RULE] = offer_rules,
        [THING_RULES] = offer_rule_files,
        [THING_SET] = NULL,
    };
    struct stockade_options so = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    char token[CLI_TOKEN_BYTES_MAX];
    if (thing == THING_FILE)
        (void)fputs(":files\n", o->to);
    for (const struct destination_set *set = destination_sets;
         thing == THING_SET && set->name != NULL; set++)
        words_word(o, set->name, set->about);
    so.address = o->address;
    so.ca_file = o->ca_file;
    if (o->token_file != NULL && cli_read_token(o->token_file, token) == NULL)
        so.token = token;
    if (ask[thing] == NULL || stockade_open(&s, &so, NULL) < 0)
        return;
    ask[thing](o, s);
    stockade_close(s);
}
