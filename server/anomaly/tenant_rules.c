// SPDX-License-Identifier: Apache-2.0
// See tenant_rules.h: the table of tenants, what is read at the start, and the budget.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "rules.h"
#include "server/base/log.h"
#include "server/state/state.h"
#include "stockade/v1/rules_service.pb-c.h"
#include "tenant_rules_private.h"

enum { MESSAGE_ARENA = 256 * 1024 };
static const uint64_t MINUTE_NS = UINT64_C(60000000000);

static struct tenant_rules **
bucket_of(const struct rules_of_tenants *all, const char *tenant)
{
    uint64_t h = 0;
    (void)crypto_shorthash((uint8_t *)&h, (const uint8_t *)tenant, strlen(tenant), all->key);
    return (struct tenant_rules **)(uintptr_t)&all->bucket[h % RULE_BUCKETS];
}

struct tenant_rules *
tenant_rules_find(const struct rules_of_tenants *all, const char *tenant)
{
    if (all == NULL || all->n == 0)
        return NULL;
    struct tenant_rules *t = *bucket_of(all, tenant);
    while (t != NULL && strcmp(t->tenant, tenant) != 0)
        t = t->next;
    return t;
}

struct tenant_rules *
tenant_rules_make(struct rules_of_tenants *all, const char *tenant, struct err *e)
{
    struct tenant_rules *t = tenant_rules_find(all, tenant);
    if (t != NULL)
        return t;
    if (all->n == RULE_TENANTS_MAX) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%d tenants have rules already", RULE_TENANTS_MAX);
        err_detail(e, "RULES_OF_TENANTS", NULL, "remove rules of tenants that are no longer there");
        return NULL;
    }
    t = calloc(1, sizeof *t);
    if (t == NULL) {
        (void)err_sys(e, ENOMEM, "keep rules");
        return NULL;
    }
    (void)snprintf(t->tenant, sizeof t->tenant, "%s", tenant);
    list_init(&t->files);
    struct tenant_rules **at = bucket_of(all, tenant);
    t->next = *at;
    *at = t;
    all->n++;
    return t;
}

void
tenant_rules_let_go(struct rules_of_tenants *all, struct tenant_rules *t)
{
    if (t->files_n > 0 || t->first != NULL)
        return;
    struct tenant_rules **at = bucket_of(all, t->tenant);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    all->n--;
    tenant_rules_use(all, t, NULL);
    free(t);
}

// ---- files

void
rule_file_free(struct rule_file *f)
{
    if (f != NULL)
        free(f->text);
    free(f);
}

const struct rule_file *
tenant_rules_file(const struct tenant_rules *t, const char *name)
{
    for (struct list *it = t->files.next; it != &t->files; it = it->next) {
        const struct rule_file *f = list_entry(it, struct rule_file, node);
        if (strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

void
tenant_rules_add(struct tenant_rules *t, struct rule_file *f)
{
    struct list *at = t->files.next;
    while (at != &t->files && strcmp(list_entry(at, struct rule_file, node)->name, f->name) < 0)
        at = at->next;
    list_append(at, &f->node); // before it
    t->files_n++;
    t->text_bytes += f->n;
}

void
tenant_rules_remove(struct tenant_rules *t, struct rule_file *f)
{
    list_remove(&f->node);
    t->files_n--;
    t->text_bytes -= f->n;
    rule_file_free(f);
}

bool
rule_file_is_off(const struct rule_file *f, const char *id)
{
    for (uint32_t i = 0; i < f->off_n; i++)
        if (strcmp(f->off[i], id) == 0)
            return true;
    return false;
}

static void
switch_off(const struct rule_file *f, struct detect *d)
{
    struct detect_view v;
    for (uint32_t i = 0; detect_view(d, i, &v); i++)
        if (strcmp(v.file, f->name) == 0 && rule_file_is_off(f, v.rule->id))
            detect_enable(d, i, false);
}

int
tenant_rules_read(const struct rules_of_tenants *all, const struct tenant_rules *t,
                  const struct rule_file *without, const struct rule_file *with,
                  struct detect **out, struct err *e)
{
    const struct rule_file *of[RULE_FILES_MAX + 1];
    struct detect_file file[RULE_FILES_MAX + 1];
    struct detect *d = NULL;
    size_t n = 0;
    for (struct list *it = t != NULL ? t->files.next : NULL;
         it != NULL && it != &t->files && n < RULE_FILES_MAX; it = it->next) {
        const struct rule_file *f = list_entry(it, struct rule_file, node);
        if (f != without && f->error[0] == '\0')
            of[n++] = f;
    }
    if (with != NULL)
        of[n++] = with;
    for (size_t i = 0; i < n; i++)
        file[i] = (struct detect_file){of[i]->name, of[i]->text, of[i]->n};
    *out = NULL;
    const int r = n > 0 ? detect_read(file, n, &detect_bounds_tenant, all->key, &d, e) : 0;
    for (size_t i = 0; i < n && r == 0; i++)
        switch_off(of[i], d);
    *out = d;
    return r;
}

void
tenant_rules_use(struct rules_of_tenants *all, struct tenant_rules *t, struct detect *d)
{
    all->bytes -= t->bytes;
    detect_free(t->rules);
    t->rules = d;
    t->bytes = detect_bytes(d);
    all->bytes += t->bytes;
}

int
tenant_rules_allowed(const struct detect *d, const char *file, const struct detect *host,
                     struct err *e)
{
    struct detect_view v;
    for (uint32_t i = 0; detect_view(d, i, &v); i++) {
        const char *id = v.rule->id;
        if (strcmp(v.file, file) != 0)
            continue;
        if (v.tripwire)
            return err_field(e, "text", "%s:%u: only the host may change a tripwire", file, v.line);
        if (detect_find(host, id) < 0 && anomaly_rule_find(id) < 0 &&
            strcmp(id, RULE_OVER_BUDGET) != 0 && strcmp(id, RULE_EVENTS_LOST) != 0)
            continue;
        (void)err_set(e, ERR_ALREADY_EXISTS, "%s:%u: %s is a rule of the host", file, v.line, id);
        err_detail(e, "RULE_EXISTS", id, "choose another id");
        return -EEXIST;
    }
    return 0;
}

int
tenant_rules_check(const struct rules_of_tenants *all, const char *tenant, const char *name,
                   const char *text, const struct detect *host, struct detect **out, struct err *e)
{
    const struct tenant_rules *t = name != NULL ? tenant_rules_find(all, tenant) : NULL;
    const struct rule_file *old = t != NULL ? tenant_rules_file(t, name) : NULL;
    struct rule_file f = {.text = (char *)(uintptr_t)text, .n = strlen(text)};
    (void)snprintf(f.name, sizeof f.name, "%s", name != NULL ? name : "text");
    int r = tenant_rules_read(all, t, old, &f, out, e);
    if (r < 0)
        return r;
    r = tenant_rules_allowed(*out, f.name, host, e);
    if (r < 0)
        detect_free(*out);
    return r;
}

int
tenant_rules_again(const struct rules_of_tenants *all, const char *tenant, struct detect **out,
                   struct err *e)
{
    const struct tenant_rules *t = tenant_rules_find(all, tenant);
    const int r = t != NULL ? tenant_rules_read(all, t, NULL, NULL, out, e) : 0;
    if (r < 0 || (t != NULL && *out != NULL))
        return r;
    (void)err_set(e, ERR_NOT_FOUND, "tenant %s has no rules", tenant);
    err_detail(e, "", "text", "give rules in `text`, or set some before");
    return -ENOENT;
}

bool
tenant_rules_have(const struct rules_of_tenants *all, const char *tenant, const char *id)
{
    if (tenant != NULL) {
        const struct tenant_rules *t = tenant_rules_find(all, tenant);
        return t != NULL && detect_find(t->rules, id) >= 0;
    }
    for (uint32_t i = 0; all != NULL && i < RULE_BUCKETS; i++)
        for (const struct tenant_rules *t = all->bucket[i]; t != NULL; t = t->next)
            if (detect_find(t->rules, id) >= 0)
                return true;
    return false;
}

// ---- the budget

bool
tenant_rules_may_compare(struct tenant_rules *t, uint64_t now_ns, bool *report)
{
    const uint64_t second = now_ns / UINT64_C(1000000000);
    *report = false;
    if (second != t->second) {
        t->second = second;
        t->spent_ns = 0;
    }
    if (t->spent_ns < RULE_SECOND_NS)
        return true;
    t->skipped++;
    *report = t->reported_ns == 0 || now_ns - t->reported_ns >= MINUTE_NS;
    if (*report)
        t->reported_ns = now_ns;
    return false;
}

// ---- the start

static int64_t
time_of(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static struct rule_file *
file_from(const Stockade__V1__RuleFile *m)
{
    struct rule_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    (void)snprintf(f->name, sizeof f->name, "%s", m->name);
    f->text = strdup(m->text);
    f->n = strlen(m->text);
    f->created_ms = time_of(m->create_time);
    f->updated_ms = time_of(m->update_time);
    for (size_t i = 0; i < m->n_disabled && i < RULE_OFF_MAX; i++)
        (void)snprintf(f->off[f->off_n++], RULE_ID, "%s", m->disabled[i]);
    if (f->text != NULL)
        return f;
    free(f);
    return NULL;
}

// Its name is left.
static void
forget(struct rule_file *f)
{
    sodium_memzero(f->text, f->n);
    f->text[0] = '\0';
    f->n = 0;
    f->off_n = 0;
    f->forgotten = true;
    (void)snprintf(
        f->error, sizeof f->error,
        "its data key was forgotten, so nobody can decrypt it: set it again, or delete it");
}

static int
on_row(void *cookie, const struct state_value *v, struct err *e)
{
    static const Stockade__V1__RuleFile nothing = STOCKADE__V1__RULE_FILE__INIT;
    struct rules_of_tenants *all = cookie;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    const bool lost = v[2].kind == STATE_FORGOTTEN;
    ProtobufCMessage *m = NULL;
    char tenant[32];
    if (a == NULL)
        return err_sys(e, ENOMEM, "read the rules of tenants");
    (void)snprintf(tenant, sizeof tenant, "%.*s", (int)v[0].n, (const char *)v[0].bytes);
    int r =
        lost ? 0 : wire_unpack(&stockade__v1__rule_file__descriptor, v[2].bytes, v[2].n, a, &m, e);
    if (r < 0 || (m == NULL && !lost))
        return err_wrap(e, "read a file of rules of tenant %s", tenant);
    struct tenant_rules *t = tenant_rules_make(all, tenant, e);
    if (t == NULL)
        return err_errno(e);
    struct rule_file *f = t->files_n < RULE_FILES_MAX
                              ? file_from(lost ? &nothing : (const Stockade__V1__RuleFile *)m)
                              : NULL;
    if (f == NULL)
        return err_sys(e, ENOMEM, "read the rules of tenant %s", tenant);
    if (lost) {
        (void)snprintf(f->name, sizeof f->name, "%.*s", (int)v[1].n, (const char *)v[1].bytes);
        forget(f);
    }
    tenant_rules_add(t, f);
    return 0;
}

// All files; if they do not go together any more, each that goes with those before it.
static void
begin(struct rules_of_tenants *all, struct tenant_rules *t)
{
    struct detect *d = NULL;
    struct err e;
    if (tenant_rules_read(all, t, NULL, NULL, &d, &e) == 0) {
        tenant_rules_use(all, t, d);
        return;
    }
    list_each(it, &t->files)
    {
        struct rule_file *f = list_entry(it, struct rule_file, node);
        if (!f->forgotten)
            f->error[0] = '?';
    }
    list_each(it, &t->files)
    {
        struct rule_file *f = list_entry(it, struct rule_file, node);
        if (f->forgotten)
            continue;
        if (tenant_rules_read(all, t, NULL, f, &d, &e) < 0) {
            (void)snprintf(f->error, sizeof f->error, "%.255s", e.text);
            (void)err_wrap(&e, "rules of tenant %s are not in force", t->tenant);
            log_err(LOG_ERROR, "rules", &e);
            continue;
        }
        f->error[0] = '\0';
        tenant_rules_use(all, t, d);
    }
}

int
rules_of_tenants_new(struct state *state, struct rules_of_tenants **out, struct err *e)
{
    struct rules_of_tenants *all = calloc(1, sizeof *all);
    if (all == NULL)
        return err_sys(e, ENOMEM, "read the rules of tenants");
    all->state = state;
    randombytes_buf(all->key, sizeof all->key);
    const int r = state_read(state, STATE_RULE_FILES, on_row, all, e);
    if (r < 0) {
        rules_of_tenants_free(all);
        return r;
    }
    for (uint32_t i = 0; i < RULE_BUCKETS; i++)
        for (struct tenant_rules *t = all->bucket[i]; t != NULL; t = t->next)
            begin(all, t);
    *out = all;
    return 0;
}

void
rules_of_tenants_forget(struct rules_of_tenants *all, const char *tenant)
{
    struct tenant_rules *t = tenant_rules_find(all, tenant);
    if (t == NULL)
        return;
    list_each(it, &t->files) forget(list_entry(it, struct rule_file, node));
    t->text_bytes = 0;
    tenant_rules_use(all, t, NULL);
}

void
rules_of_tenants_free(struct rules_of_tenants *all)
{
    for (uint32_t i = 0; all != NULL && i < RULE_BUCKETS; i++)
        for (struct tenant_rules *t = all->bucket[i], *next; t != NULL; t = next) {
            next = t->next;
            list_each(it, &t->files)
            {
                tenant_rules_remove(t, list_entry(it, struct rule_file, node));
            }
            tenant_rules_let_go(all, t);
        }
    free(all);
}
