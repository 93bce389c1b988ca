// SPDX-License-Identifier: Apache-2.0
// See tenant_rules.h: how the rules of a tenant change. A change computes the next state, writes it, and lets it take effect.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "proto/wire.h"
#include "rules.h"
#include "server/state/state.h"
#include "stockade/v1/rules_service.pb-c.h"
#include "tenant_rules_private.h"

enum { MESSAGE_ARENA = 128 * 1024, WAITING_MAX = 16 };

struct rule_change {
    struct rules_of_tenants *all;
    struct tenant_rules *t;
    struct rule_change *next;
    struct detect *const *host;
    struct rules_wanted want; // its texts are copies
    char name[65];
    char *text;
    rules_changed *done; // NULL: nobody waits
    void *cookie;
    // What takes effect when it is on the disk.
    struct rule_file *file; // SET: owned until then; otherwise that of the tenant
    struct detect *rules;   // SET, DELETE: owned until then; NULL: none
    uint32_t rule;          // SWITCH: its number
};

static void run_next(struct rules_of_tenants *all, struct tenant_rules *t);

static void
change_free(struct rule_change *c)
{
    if (c->want.what == RULES_SET)
        rule_file_free(c->file);
    detect_free(c->rules);
    free(c->text);
    free(c);
}

// ---- writing

static bool
fill_message(struct arena *a, const struct rule_file *f, Stockade__V1__RuleFile *m)
{
    const int64_t created = f->created_ms, updated = f->updated_ms;
    m->name = f->name;
    m->text = f->text;
    m->create_time = wire_make_time(a, created / 1000, (int32_t)(created % 1000) * 1000000);
    m->update_time = wire_make_time(a, updated / 1000, (int32_t)(updated % 1000) * 1000000);
    m->disabled = arena_alloc(a, RULE_OFF_MAX * sizeof(void *));
    for (uint32_t i = 0; m->disabled != NULL && i < f->off_n; i++)
        m->disabled[m->n_disabled++] = f->off[i];
    return m->create_time != NULL && m->update_time != NULL && m->disabled != NULL;
}

static void on_written(void *cookie, uint64_t rows, const struct err *e);

static int
write_file(struct rule_change *c, const struct rule_file *f, struct err *e)
{
    Stockade__V1__RuleFile m = STOCKADE__V1__RULE_FILE__INIT;
    struct arena *auto_arena a = arena_new(MESSAGE_ARENA);
    if (a == NULL || !fill_message(a, f, &m))
        return err_sys(e, ENOMEM, "keep rules");
    const size_t n = stockade__v1__rule_file__get_packed_size(&m);
    uint8_t *bytes = arena_alloc(a, n + 1);
    if (bytes == NULL)
        return err_sys(e, ENOMEM, "keep rules");
    (void)stockade__v1__rule_file__pack(&m, bytes);
    const struct state_value value[] = {STATE_OF_TEXT(c->t->tenant), STATE_OF_TEXT(f->name),
                                        STATE_OF_BYTES(bytes, n)};
    return state_write(c->all->state, STATE_RULE_FILE_PUT, value, on_written, c, e);
}

// ---- the next state

static int
full(struct err *e, const char *reason, const char *what, size_t most)
{
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "a tenant may have %zu %s", most, what);
    err_detail(e, reason, NULL, "remove a file of rules");
    return -ENOSPC;
}

static int
no_such(struct err *e, const char *what, const char *field, const char *name)
{
    (void)err_set(e, ERR_NOT_FOUND, "there is no %s %.64s", what, name);
    err_detail(e, "", field, "'stockade rules ls' lists them");
    return -ENOENT;
}

// Rules that were switched off stay so.
static void
keep_off(struct rule_file *f, const struct rule_file *old, struct detect *d)
{
    struct detect_view v;
    for (uint32_t i = 0; old != NULL && detect_view(d, i, &v); i++)
        if (strcmp(v.file, f->name) == 0 && rule_file_is_off(old, v.rule->id)) {
            (void)snprintf(f->off[f->off_n++], RULE_ID, "%s", v.rule->id);
            detect_enable(d, i, false);
        }
}

static int
prepare_set(struct rule_change *c, const struct rule_file *old, struct err *e)
{
    const struct tenant_rules *t = c->t;
    struct rule_file *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(e, ENOMEM, "keep rules");
    c->file = f;
    (void)snprintf(f->name, sizeof f->name, "%.40s", c->name);
    f->text = take_ptr(c->text);
    f->n = c->want.n;
    f->updated_ms = now_wall_ms();
    f->created_ms = old != NULL ? old->created_ms : f->updated_ms;
    if (old == NULL && t->files_n == RULE_FILES_MAX)
        return full(e, "RULE_FILES", "files of rules", RULE_FILES_MAX);
    if (t->text_bytes - (old != NULL ? old->n : 0) + f->n > RULE_TEXT_BYTES_MAX)
        return full(e, "RULE_BYTES", "bytes of rules", RULE_TEXT_BYTES_MAX);
    int r = tenant_rules_read(c->all, t, old, f, &c->rules, e);
    if (r == 0)
        r = tenant_rules_allowed(c->rules, f->name, *c->host, e);
    if (r < 0)
        return r;
    if (c->all->bytes - t->bytes + detect_bytes(c->rules) > RULE_BYTES_MAX) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "the rules of all tenants need too much memory");
        err_detail(e, "RULES_OF_TENANTS", NULL, "use fewer counts, or ask the host's operator");
        return -ENOSPC;
    }
    keep_off(f, old, c->rules);
    return 0;
}

static int
no_host_rule(const struct rule_change *c, struct err *e)
{
    const bool tripwire = anomaly_rule_find(c->name) >= 0;
    if (!tripwire && detect_find(*c->host, c->name) < 0)
        return no_such(e, "rule", "rule", c->name);
    (void)err_set(e, ERR_FAILED_PRECONDITION,
                  "%.40s is %s of the host, which a tenant cannot change", c->name,
                  tripwire ? "a tripwire" : "a rule");
    err_detail(e, "HOST_RULE", c->name,
               "the host's operator can, with `disabled: true` in a file of rules_files");
    return -EPERM;
}

static int
prepare_switch(struct rule_change *c, struct err *e)
{
    struct detect_view v;
    const int i = detect_find(c->t->rules, c->name);
    if (i < 0 || !detect_view(c->t->rules, (uint32_t)i, &v))
        return no_host_rule(c, e);
    c->rule = (uint32_t)i;
    c->file = (struct rule_file *)(uintptr_t)tenant_rules_file(c->t, v.file);
    if (!c->want.on || !v.rule->disabled)
        return 0;
    (void)err_set(e, ERR_FAILED_PRECONDITION, "file %s says that rule %s is disabled", v.file,
                  c->name);
    err_detail(e, "RULE_DISABLED", c->name, "remove `disabled`, and set the file again");
    return -EPERM;
}

static void
set_off(struct rule_file *f, const char *id, bool off)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->off_n; i++)
        if (strcmp(f->off[i], id) != 0)
            memmove(f->off[n++], f->off[i], RULE_ID);
    f->off_n = n;
    if (off && n < RULE_OFF_MAX)
        (void)snprintf(f->off[f->off_n++], RULE_ID, "%.40s", id);
}

// Computes the next state and queues it for the disk.
static int
run(struct rule_change *c, struct err *e)
{
    const struct rule_file *old =
        c->want.what != RULES_SWITCH ? tenant_rules_file(c->t, c->name) : NULL;
    int r = 0;
    if (c->want.what == RULES_SET) {
        r = prepare_set(c, old, e);
        return r == 0 ? write_file(c, c->file, e) : r;
    }
    if (c->want.what == RULES_SWITCH) {
        r = prepare_switch(c, e);
        if (r < 0)
            return r;
        struct rule_file next = *c->file;
        set_off(&next, c->name, !c->want.on);
        return write_file(c, &next, e);
    }
    if (old == NULL)
        return no_such(e, "file of rules", "name", c->name);
    r = tenant_rules_read(c->all, c->t, old, NULL, &c->rules, e);
    const struct state_value value[] = {STATE_OF_TEXT(c->t->tenant), STATE_OF_TEXT(c->name)};
    return r == 0 ? state_write(c->all->state, STATE_RULE_FILE_FORGET, value, on_written, c, e) : r;
}

// ---- taking effect

static void
take_effect(struct rule_change *c)
{
    struct tenant_rules *t = c->t;
    if (c->want.what == RULES_SWITCH) {
        set_off(c->file, c->name, !c->want.on);
        detect_enable(t->rules, c->rule, c->want.on);
        return;
    }
    struct rule_file *old = (struct rule_file *)(uintptr_t)tenant_rules_file(t, c->name);
    if (old != NULL)
        tenant_rules_remove(t, old);
    if (c->want.what == RULES_SET)
        tenant_rules_add(t, take_ptr(c->file));
    tenant_rules_use(c->all, t, take_ptr(c->rules));
}

static void
finish(struct rule_change *c, const struct err *e)
{
    struct tenant_rules *t = c->t;
    struct rules_of_tenants *all = c->all;
    t->first = c->next;
    if (t->first == NULL)
        t->last = NULL;
    if (c->done != NULL)
        c->done(c->cookie, t, e);
    change_free(c);
    if (t->first != NULL)
        run_next(all, t);
    else
        tenant_rules_let_go(all, t);
}

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    struct rule_change *c = cookie;
    (void)rows;
    if (e == NULL)
        take_effect(c);
    finish(c, e);
}

// The first of the queue; those that are refused end here.
static void
run_next(struct rules_of_tenants *all, struct tenant_rules *t)
{
    struct err e;
    (void)all;
    if (run(t->first, &e) < 0)
        finish(t->first, &e);
}

static int
queue(struct tenant_rules *t, struct rule_change *c, struct err *e)
{
    size_t n = 0;
    for (const struct rule_change *it = t->first; it != NULL; it = it->next)
        n++;
    if (n == WAITING_MAX) {
        (void)err_set(e, ERR_UNAVAILABLE, "%d changes of rules wait already", WAITING_MAX);
        err_detail(e, "RULES_BUSY", NULL, "try again");
        return -EAGAIN;
    }
    if (t->last != NULL)
        t->last->next = c;
    else
        t->first = c;
    t->last = c;
    return 0;
}

static struct rule_change *
change_new(struct rules_of_tenants *all, const struct rules_wanted *w, struct err *e)
{
    struct rule_change *c = calloc(1, sizeof *c);
    char *text = w->what == RULES_SET ? strndup(w->text, w->n) : NULL;
    if (c == NULL || (text == NULL && w->what == RULES_SET)) {
        free(text);
        free(c);
        (void)err_sys(e, ENOMEM, "change rules");
        return NULL;
    }
    c->all = all;
    c->want = *w;
    c->text = text;
    (void)snprintf(c->name, sizeof c->name, "%s", w->name);
    return c;
}

int
rules_change(struct rules_of_tenants *all, const struct rules_wanted *w, struct detect *const *host,
             rules_changed *done, void *cookie, struct rule_change **out, struct err *e)
{
    struct rule_change *c = change_new(all, w, e);
    struct tenant_rules *t = c != NULL ? tenant_rules_make(all, w->tenant, e) : NULL;
    if (t == NULL) {
        free(c != NULL ? c->text : NULL);
        free(c);
        return err_errno(e);
    }
    c->t = t;
    c->host = host;
    c->done = done;
    c->cookie = cookie;
    const bool first = t->first == NULL;
    int r = queue(t, c, e);
    if (r == 0 && first)
        r = run(c, e);
    if (r < 0) {
        if (first)
            t->first = t->last = NULL;
        change_free(c);
        tenant_rules_let_go(all, t);
        return r;
    }
    *out = c;
    return 0;
}

void
rules_unwait(struct rule_change *c)
{
    c->done = NULL;
}
