// SPDX-License-Identifier: Apache-2.0
// See context.h: the life of a context and of its interpreter. cell.c runs the cells.
#include "context_private.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/sandbox/command.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"
#include "image.h"
#include "stockade/v1/process_service.pb-c.h"
#include "zygote.h"

enum { COMMAND_ARENA_MAX = 512 * 1024 };

static struct context *
of_list(struct list *node)
{
    return list_entry(node, struct context, node);
}

static void
free_env(struct context *c)
{
    for (size_t i = 0; i < c->env_n; i++) {
        union {
            const char *from;
            void *to;
        } name = {.from = c->env[i].name}, value = {.from = c->env[i].value};
        free(name.to);
        free(value.to);
    }
    free(c->env);
    free(c->envs);
}

static void
context_free(struct context *c)
{
    context_down(c);
    live_context_gone(c);
    loop_timer_stop(&c->burst_timer);
    loop_timer_stop(&c->later);
    loop_timer_stop(&c->limit);
    loop_timer_stop(&c->again);
    loop_timer_stop(&c->gone);
    idtable_remove(&c->all->table, &c->id);
    list_remove(&c->node);
    metrics_move(METRIC_CONTEXTS, 0, -1);
    free_env(c);
    free(c->workdir);
    free(c->burst);
    free(c);
}

// ---- its sandbox goes

static void
on_gone(void *cookie)
{
    struct context *c = cookie;
    cell_cancel_all(c, "its sandbox was deleted");
    context_free(c);
}

// An observer frees nothing: a timer does.
static void
on_deleting(void *cookie, struct sandbox *s, const struct err *why)
{
    struct contexts *all = cookie;
    (void)why;
    list_each(it, &all->list)
    {
        struct context *c = of_list(it);
        if (c->sandbox != s)
            continue;
        c->sandbox = NULL;
        (void)loop_timer_start(all->srv->loop, &c->gone, 0, on_gone, c);
    }
    live_sandbox_gone(all, s);
}

// Cells without an interpreter have waited for this.
static void
on_changed(void *cookie, struct sandbox *s, enum sandbox_change what)
{
    const struct contexts *all = cookie;
    if (what != SANDBOX_RESUMED_NOW)
        return;
    list_each(it, &all->list)
    {
        struct context *c = of_list(it);
        if (c->sandbox == s && c->waiting_n > 0)
            cell_pump_soon(c, 0);
    }
}

static const char *const status_names[] = {
    [CODE_OK] = "ok",           [CODE_ERROR] = "error",     [CODE_INTERRUPTED] = "interrupted",
    [CODE_CRASHED] = "crashed", [CODE_TIMEOUT] = "timeout", [CODE_CANCELLED] = "cancelled"};

struct contexts *
contexts_new(struct server *srv)
{
    struct contexts *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    list_init(&all->list);
    list_init(&all->checkpoints);
    list_init(&all->ops);
    for (uint32_t i = 0; i < sizeof status_names / sizeof status_names[0]; i++)
        metrics_name_value(METRIC_BY_STATUS, i, status_names[i]);
    const struct observer o = {.cookie = all, .changed = on_changed, .deleting = on_deleting};
    all->observer = observers_add(sandboxes_observers(srv->sandboxes), &o);
    return all;
}

void
contexts_free(struct contexts *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->list)
    {
        struct context *c = of_list(it);
        cell_cancel_all(c, STOPPING_TEXT);
        context_free(c);
    }
    live_end(all);
    free(all);
}

// ---- its interpreter

static void
on_frames(void *cookie)
{
    cell_pump(cookie);
}

static void
on_end(void *cookie)
{
    struct context *c = cookie;
    if (job_next(&c->end).kind == JOB_ENDED) {
        c->job_over = true;
        kernel_link_ended(&c->link);
        cell_pump(c);
    }
}

static int
read_limits(const struct sandbox *s, struct limits *out, struct err *e)
{
    const struct limits_of_box box = {
        .own = &s->spec.limits, .asked = &s->spec.asked, .most = &s->spec.template->limits_max};
    const struct limits none = {0};
    return limits_resolve_job(&box, &none, true, out, e);
}

// *link is the kernel's end, closed in any case.
static int
fill_job(const struct context *c, struct arena *a, struct job_spec *spec, struct err *e)
{
    Stockade__V1__Command m = STOCKADE__V1__COMMAND__INIT;
    const char **args = arena_alloc(a, sizeof *args * LANGUAGE_ARGS_MAX);
    if (args == NULL)
        return err_sys(e, ENOMEM, "start an interpreter");
    while (m.n_args < LANGUAGE_ARGS_MAX && c->language->args[m.n_args] != NULL) {
        args[m.n_args] = c->language->args[m.n_args];
        m.n_args++;
    }
    m.args = args;
    m.env = c->envs;
    m.n_env = c->env_n;
    m.workdir = c->workdir;
    const struct sandbox *s = c->sandbox;
    int r = command_read(&m, &s->spec, &s->spec.limits, a, spec, e);
    if (r == 0)
        r = read_limits(s, &spec->limits, e);
    spec->arrived_ns = spec->sandbox_ns = uv_hrtime();
    return r;
}

// Sends folder and environment to an interpreter that was forked from a zygote.
static int
send_setup(struct context *c, const struct job_spec *spec, struct arena *a, struct err *e)
{
    size_t n = strlen(spec->workdir) + 1;
    for (size_t i = 0; i < spec->env_n; i++)
        n += strlen(spec->env[i]) + 1;
    char *text = arena_alloc(a, n), *at = text;
    if (text == NULL)
        return err_sys(e, ENOMEM, "start an interpreter");
    at = stpcpy(at, spec->workdir);
    for (size_t i = 0; i < spec->env_n; i++)
        at = stpcpy(at + 1, spec->env[i]);
    return kernel_link_send(&c->link, "setup", 0, text, (size_t)(at - text), e);
}

// It has ended already, and the end of its job has the reason.
static int
sent(int r, const struct err *e)
{
    return r < 0 && e->code == ERR_UNAVAILABLE ? 0 : r;
}

// Starts an interpreter, which gets its program first.
static int
start_new(struct context *c, const struct job_spec *spec, struct err *e)
{
    metrics_add(METRIC_INTERPRETERS_STARTED, 1);
    int r = job_start(c->sandbox, spec, &c->job, e);
    return r < 0 ? r
                 : sent(kernel_link_send(&c->link, "program", 0, c->language->program,
                                         c->language->program_n, e),
                        e);
}

// Its interpreter has been forked, and is ready now.
static void
is_forked(struct context *c)
{
    metrics_add(METRIC_INTERPRETERS_FORKED, 1);
    c->state = CONTEXT_IDLE;
    cell_bill_begin(c);
    kernel_link_hold(&c->link, true);
}

// Its interpreter: that of the image, or the spare of its sandbox's zygote, or a new one.
static int
start_job(struct context *c, int link, struct image *from, struct err *e)
{
    struct arena *auto_arena a = arena_new(COMMAND_ARENA_MAX);
    int auto_close fd = link;
    struct job_spec spec;
    int r = a == NULL ? err_sys(e, ENOMEM, "start an interpreter") : fill_job(c, a, &spec, e);
    if (r < 0 && from != NULL)
        image_close(from);
    if (r < 0)
        return r;
    spec.has_link = true;
    spec.link = take_fd(&fd);
    c->state = CONTEXT_STARTING;
    if (from == NULL && !zygote_has(c->sandbox, c->language, &spec))
        return start_new(c, &spec, e);
    r = from != NULL ? image_become_job(from, &spec, &c->job, e)
                     : zygote_start_job(c->sandbox, &spec, !c->one_shot, &c->job, e);
    if (r < 0)
        return r;
    is_forked(c);
    return from != NULL ? 0 : sent(send_setup(c, &spec, a, e), e);
}

// Its link and its job; `from` is freed.
static int
open_and_start(struct context *c, struct image *from, struct err *e)
{
    int child = -1;
    if (c->sandbox == NULL)
        (void)err_set(e, ERR_FAILED_PRECONDITION, "its sandbox was deleted");
    else if (kernel_link_open(&c->link, c->all->srv->loop, on_frames, c, &child, e) == 0)
        return start_job(c, child, from, e);
    if (from != NULL)
        image_close(from);
    return err_errno(e);
}

int
context_start(struct context *c, struct image *from, struct err *e)
{
    int r = open_and_start(c, from, e);
    if (r < 0) {
        if (c->job != NULL)
            job_cancel(c->job, e->text);
        c->job = NULL;
        cgstat_drop_job(&c->counters);
        c->state = CONTEXT_DOWN;
        kernel_link_close(&c->link);
        return r;
    }
    c->fresh = from == NULL;
    c->dying = false;
    c->count = c->forged = 0;
    c->stop = STOP_NONE;
    c->broke = (struct err){0};
    c->job_over = c->link_over = c->has_frame = false;
    c->output = (struct job_follower){.wake = on_frames, .cookie = c};
    c->end = (struct job_follower){.no_output = true, .wake = on_end, .cookie = c};
    job_follow(c->job, &c->output, 0, true);
    job_follow(c->job, &c->end, 0, true);
    return 0;
}

int
context_replace(struct context *c, struct image *from, uint32_t count, struct err *e)
{
    static const char why[] = "its context was restored to a checkpoint";
    struct job *job = c->job;
    cell_cancel_current(c, why);
    context_down(c);
    if (job != NULL)
        job_cancel(job, why);
    int r = context_start(c, from, e);
    if (r == 0)
        c->count = count;
    return r;
}

void
context_down(struct context *c)
{
    c->job = NULL;
    cgstat_drop_job(&c->counters);
    job_unfollow(&c->output);
    job_unfollow(&c->end);
    kernel_link_close(&c->link);
    loop_timer_stop(&c->closed);
    c->has_frame = c->job_over = c->link_over = false;
    c->state = CONTEXT_DOWN;
}

void
context_kill(struct context *c, enum code_stop why)
{
    static const char *const reasons[] = {
        [STOP_NONE] = "it broke the protocol",
        [STOP_TIMEOUT] = "its cell exceeded its time and ignored the interrupt",
        [STOP_RESTART] = "its context was restarted",
        [STOP_DELETE] = "its context was deleted",
        [STOP_ABANDONED] = "its cell ignored the interrupt, and its caller has gone",
    };
    if (c->job == NULL)
        return;
    c->stop = why;
    c->dying = true;
    if (c->op != NULL)
        live_kill_later(c, reasons[why]);
    else
        job_cancel(c->job, reasons[why]);
}

// ---- making and finding

static int
copy_env(struct context *c, const struct context_spec *spec)
{
    if (spec->env_n == 0)
        return 0;
    c->env = calloc(spec->env_n, sizeof *c->env);
    c->envs = calloc(spec->env_n, sizeof(void *));
    if (c->env == NULL || c->envs == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < spec->env_n; i++) {
        stockade__v1__environment_variable__init(&c->env[i]);
        c->env[i].name = strdup(spec->env[i]->name);
        c->env[i].value = strdup(spec->env[i]->value);
        c->envs[i] = &c->env[i];
        c->env_n = i + 1;
        if (c->env[i].name == NULL || c->env[i].value == NULL)
            return -ENOMEM;
    }
    return 0;
}

int
context_check_room(const struct contexts *all, const struct sandbox *s, struct err *e)
{
    unsigned n = 0;
    for (struct list *it = all->list.next; it != &all->list; it = it->next)
        n += of_list(it)->sandbox == s;
    if (n < CONTEXTS_OF_SANDBOX)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "sandbox %s already has %u contexts", s->id.id, n);
    err_detail(e, "CONTEXTS_OF_SANDBOX", s->id.id, "delete one first");
    return r;
}

// Without an interpreter.
static struct context *
context_new(struct contexts *all, struct sandbox *s, const struct context_spec *spec,
            const struct language *language, struct err *e)
{
    uint8_t bytes[ID_BYTES];
    struct context *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)err_sys(e, ENOMEM, "make a context");
        return NULL;
    }
    c->all = all;
    c->sandbox = s;
    c->language = language;
    c->link.fd = -1;
    c->state = CONTEXT_DOWN;
    c->is_default = spec->is_default;
    c->one_shot = spec->one_shot;
    c->created_ms = now_wall_ms();
    list_init(&c->waiting);
    memcpy(c->sandbox_id, s->id.id, sizeof c->sandbox_id);
    id_make(sandboxes_settings(s->all)->node, bytes, c->id.id);
    idtable_add(&all->table, &c->id);
    list_append(&all->list, &c->node);
    metrics_move(METRIC_CONTEXTS, 0, 1);
    c->workdir = strdup(spec->workdir[0] != '\0' ? spec->workdir : s->spec.template->workdir);
    if (c->workdir != NULL && copy_env(c, spec) == 0)
        return c;
    (void)err_sys(e, ENOMEM, "make a context");
    context_free(c);
    return NULL;
}

int
context_create(struct contexts *all, struct sandbox *s, const struct context_spec *spec,
               struct context **out, struct err *e)
{
    const struct language *language = language_find(spec->language, e);
    if (language == NULL)
        return err_errno(e);
    const bool waits = s->state == SANDBOX_SWAPPING || s->state == SANDBOX_COPYING;
    int r = waits ? 0 : sandbox_check_running(s, e);
    if (r == 0)
        r = context_check_room(all, s, e);
    if (r < 0)
        return r;
    struct context *c = context_new(all, s, spec, language, e);
    if (c == NULL)
        return err_errno(e);
    r = waits ? 0 : context_start(c, NULL, e); // its first cell starts it
    if (r < 0)
        context_free(c);
    else
        *out = c;
    return r;
}

int
context_of_image(const struct context *like, struct image *from, uint32_t count,
                 struct context **out, struct err *e)
{
    const struct context_spec spec = {
        .workdir = like->workdir, .env = like->envs, .env_n = like->env_n};
    struct sandbox *s = like->sandbox;
    struct context *c = NULL;
    if (s == NULL)
        (void)err_set(e, ERR_NOT_FOUND, "the sandbox was deleted");
    else if (context_check_room(like->all, s, e) == 0)
        c = context_new(like->all, s, &spec, like->language, e);
    if (c == NULL) {
        image_close(from);
        return err_errno(e);
    }
    int r = context_start(c, from, e);
    if (r < 0) {
        context_free(c);
        return r;
    }
    c->count = count;
    *out = c;
    return 0;
}

int
context_default(struct contexts *all, struct sandbox *s, const char *language, struct context **out,
                struct err *e)
{
    const struct language *l = language_find(language, e);
    if (l == NULL)
        return err_errno(e);
    list_each(it, &all->list)
    {
        struct context *c = of_list(it);
        if (c->sandbox == s && c->is_default && c->language == l) {
            *out = c;
            return 0;
        }
    }
    const struct context_spec spec = {.language = language, .workdir = "", .is_default = true};
    return context_create(all, s, &spec, out, e);
}

struct context *
context_find(struct contexts *all, const char *tenant, const char *id, struct err *e)
{
    struct idnode *n = idtable_find(&all->table, id);
    struct context *c = n != NULL ? list_entry(n, struct context, id) : NULL;
    if (c != NULL && c->sandbox != NULL && strcmp(c->sandbox->tenant->name, tenant) == 0)
        return c;
    (void)id_not_found("context", sandboxes_settings(all->srv->sandboxes)->node, id, e);
    return NULL;
}

void
context_restart(struct context *c)
{
    context_kill(c, STOP_RESTART);
}

void
context_interrupt(struct context *c)
{
    struct err ignored; // it ends now
    if (c->state == CONTEXT_BUSY && c->job != NULL)
        (void)job_signal(c->job, SIGINT, true, &ignored);
}

void
context_delete(struct context *c)
{
    context_kill(c, STOP_DELETE);
    cell_cancel_all(c, "its context was deleted");
    context_free(c);
}

void
context_view(const struct context *c, struct context_view *out)
{
    *out = (struct context_view){
        .id = c->id.id,
        .sandbox_id = c->sandbox_id,
        .language = c->language->name,
        .workdir = c->workdir,
        .state = c->state,
        .count = c->count,
        .waiting = c->waiting_n,
        .created_ms = c->created_ms,
        .is_default = c->is_default,
        .process_id = c->job != NULL ? job_id(c->job) : "",
    };
}

uint32_t
contexts_at_rest(const struct contexts *all)
{
    uint32_t n = 0;
    list_each(it, &all->list)
    {
        const struct context *c = of_list(it);
        n += c->job != NULL && !c->job_over && c->current == NULL && c->waiting_n == 0;
    }
    return n;
}

void
contexts_each(struct contexts *all, const struct sandbox *s,
              void (*fn)(void *cookie, const struct context *c), void *cookie)
{
    list_each(it, &all->list) if (of_list(it)->sandbox == s) fn(cookie, of_list(it));
}
