// SPDX-License-Identifier: Apache-2.0
// key: API keys. create, ls, revoke.
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "actions.h"
#include "commands.h"
#include "json.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"
#include "units.h"

#define METHOD(name) "/stockade.v1.KeyService/" name

enum { ANSWER_MAX = 1024 * 1024, SCOPES_MAX = 32, SCOPES_TEXT = 512 };

static int64_t
ms_of(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static json_t *
time_or_null(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? json_of_time(ms_of(t)) : json_null();
}

static json_t *
json_of_key(const Stockade__V1__ApiKey *k)
{
    json_t *scopes = json_array();
    for (size_t i = 0; i < k->n_scopes; i++)
        (void)json_array_append_new(scopes, json_string(k->scopes[i]));
    return json_pack("{ss ss ss so ss so ss so so}", "id", k->id, "tenant", k->tenant, "label",
                     k->label, "scopes", scopes, "hint", k->hint, "create_time",
                     time_or_null(k->create_time), "maker", k->maker, "expire_time",
                     time_or_null(k->expire_time), "revoke_time", time_or_null(k->revoke_time));
}

// ---- the actions

// Splits "a,b c" in place. Returns how many there are, at most SCOPES_MAX.
static size_t
split(char *list, const char *out[SCOPES_MAX])
{
    size_t n = 0;
    char *rest = NULL;
    for (char *one = strtok_r(list, ", ", &rest); one != NULL && n < SCOPES_MAX;
         one = strtok_r(NULL, ", ", &rest))
        out[n++] = one;
    return n;
}

// The secret alone on stdout, so that a script can keep it; the rest is for people.
static void
print_created(const Stockade__V1__KeyServiceCreateResponse *m)
{
    (void)printf("%s\n", m->secret);
    (void)fflush(stdout);
    (void)fprintf(stderr, "key %s of %s. The broker cannot show it again.\n", m->key->id,
                  m->key->tenant);
}

static int
put_created(const Stockade__V1__KeyServiceCreateResponse *m)
{
    json_t *object = json_of_key(m->key);
    (void)json_object_set_new(object, "secret", json_string(m->secret));
    return json_put(object);
}

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const char *scopes[SCOPES_MAX];
    ProtobufCMessage *answer = NULL;
    char list[SCOPES_TEXT];
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return actions_no_memory(a);
    (void)snprintf(list, sizeof list, "%s", a->o->scopes != NULL ? a->o->scopes : "");
    Stockade__V1__KeyServiceCreateRequest m = STOCKADE__V1__KEY_SERVICE_CREATE_REQUEST__INIT;
    m.tenant = a->o->tenant != NULL ? a->o->tenant : "";
    m.label = a->o->name != NULL ? a->o->name : "";
    m.n_scopes = split(list, scopes);
    m.scopes = scopes;
    m.ttl_ms = a->o->ttl_ms;
    if (a->o->form != NULL && strcmp(a->o->form, "e2b") == 0)
        m.form = STOCKADE__V1__KEY_FORM__KEY_FORM_E2B;
    if (remote_call(a->s, METHOD("Create"), &m.base,
                    &stockade__v1__key_service_create_response__descriptor, arena, &answer, &e) < 0)
        return actions_fail(a, &e, NULL);
    const Stockade__V1__KeyServiceCreateResponse *made =
        (const Stockade__V1__KeyServiceCreateResponse *)answer;
    if (made->key == NULL)
        return actions_no_memory(a);
    if (a->o->json)
        return put_created(made);
    print_created(made);
    return EXIT_OK;
}

static int
revoke_key(const struct acting *a)
{
    struct stockade_error e;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__KeyServiceRevokeRequest m = STOCKADE__V1__KEY_SERVICE_REVOKE_REQUEST__INIT;
    if (arena == NULL)
        return actions_no_memory(a);
    m.id = a->name;
    return remote_call(a->s, METHOD("Revoke"), &m.base,
                       &stockade__v1__key_service_revoke_response__descriptor, arena, NULL, &e) < 0
               ? actions_fail(a, &e, NULL)
               : EXIT_OK;
}

static const char *
state_of(const Stockade__V1__ApiKey *k, char *out, size_t n)
{
    char age[16];
    const int64_t left = ms_of(k->expire_time) - now_wall_ms();
    if (k->revoke_time != NULL)
        (void)snprintf(out, n, "revoked");
    else if (k->expire_time == NULL)
        (void)snprintf(out, n, "valid");
    else if (left <= 0)
        (void)snprintf(out, n, "expired");
    else
        (void)snprintf(out, n, "expires in %s", units_show_age(left, age, sizeof age));
    return out;
}

static bool
add_row(struct table *t, const Stockade__V1__ApiKey *k)
{
    char age[16], state[48], scopes[SCOPES_TEXT] = "";
    size_t used = 0;
    for (size_t i = 0; i < k->n_scopes && used < sizeof scopes; i++)
        used += (size_t)snprintf(scopes + used, sizeof scopes - used, "%s%s", i > 0 ? "," : "",
                                 k->scopes[i]);
    return table_row(
        t, (const char *[]){k->id, k->hint, k->tenant, k->label,
                            units_show_age(now_wall_ms() - ms_of(k->create_time), age, sizeof age),
                            state_of(k, state, sizeof state), scopes});
}

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    ProtobufCMessage *answer = NULL;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__KeyServiceListRequest m = STOCKADE__V1__KEY_SERVICE_LIST_REQUEST__INIT;
    if (arena == NULL)
        return actions_no_memory(a);
    m.page_token = l->page;
    m.tenant = a->o->tenant != NULL ? a->o->tenant : "";
    if (remote_call(a->s, METHOD("List"), &m.base,
                    &stockade__v1__key_service_list_response__descriptor, arena, &answer, &e) < 0)
        return actions_fail(a, &e, NULL);
    const Stockade__V1__KeyServiceListResponse *all =
        (const Stockade__V1__KeyServiceListResponse *)answer;
    for (size_t i = 0; i < all->n_keys && l->table != NULL; i++) {
        (void)json_array_append_new(l->array, json_of_key(all->keys[i]));
        (void)add_row(l->table, all->keys[i]);
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page_token);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"KEY", "BEGINS", "TENANT", "LABEL",
                                       "AGE", "STATE",  "RIGHTS"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    const bool makes = o->name != NULL || o->scopes != NULL || o->form != NULL || o->ttl_ms != 0;
    if (makes && a->run != create)
        return cli_usage(c, "--label, --scopes, --form and --ttl need the action create", "");
    if (o->tenant != NULL && a->run == revoke_key)
        return cli_usage(c, "--tenant needs the action create or ls", "");
    return EXIT_OK;
}

static const struct action all[] = {
    {"create", 1, 1, NULL, create},
    {"ls", 1, 1, NULL, list},
    {"revoke", 2, 2, "KEY", revoke_key},
    {0},
};

int
cli_key(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are create, ls and revoke KEY",
        .check = check,
    };
    return actions_run(&actions, c, o);
}
