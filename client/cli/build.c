// SPDX-License-Identifier: Apache-2.0
// See build.h.
#include "build.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "build_file.h"
#include "build_key.h"
#include "build_output.h"
#include "cli.h"
#include "copy.h"
#include "interrupt.h"
#include "json.h"
#include "text.h"
#include "units.h"

enum {
    STEP_MS = 10 * 60 * 1000,
    COPY_MS = 30 * 60 * 1000,
    SPARE_MS = 15 * 60 * 1000, // for the calls before and after a step
    ENV_MAX = 64,
    KEPT_NAP_MS = 20,
    KEPT_WAIT_MS = 10 * 1000,
};

struct build {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *path; // of the file
    struct build_file file;
    char folder[PATH_MAX], name[PATH_MAX]; // the broker refuses a name that is too long
    char below[160];           // what the next step begins with, in words: part of its key
    char sandbox[CLI_ID_SIZE]; // "": there is none
    char kept[BUILD_NAME];     // the snapshot with the files so far; "": none
    struct stockade_pair env[ENV_MAX];
    size_t env_n;
    struct build_output output; // of the step
    json_t *steps;
};

// ---- reports

static int
fail(const struct build *b, const struct stockade_error *e)
{
    return interrupted != 0 ? EXIT_SIGNAL + interrupted : cli_fail(b->c, b->name, e);
}

static int
fail_here(const struct build *b, const struct err *e)
{
    struct stockade_error error = {.code = e->code, .sys = e->sys};
    (void)snprintf(error.text, sizeof error.text, "%s", e->text);
    return cli_fail(b->c, "", &error);
}

// The file with the line of a step. by: what it has failed by; its text is `why`, or part of it.
static int
fail_step(const struct build *b, size_t i, const char *why, const struct stockade_error *by)
{
    struct stockade_error e = {0};
    if (by != NULL)
        e = *by;
    e.code = STOCKADE_FAILED_PRECONDITION;
    (void)snprintf(e.text, sizeof e.text, "%s:%u: step %zu: %s", b->path, b->file.line[i], i + 1,
                   why);
    (void)snprintf(e.reason, sizeof e.reason, "STEP_FAILED");
    return cli_fail(b->c, "", &e);
}

// What the broker refuses of a step, with its line in the file.
static int
fail_at(const struct build *b, size_t i, const struct stockade_error *e)
{
    char where[PATH_MAX + 64];
    (void)snprintf(where, sizeof where, "%s:%u: step %zu", b->path, b->file.line[i], i + 1);
    return interrupted != 0 ? EXIT_SIGNAL + interrupted : cli_fail_operand(b->c, where, e);
}

// The same of a key of the file.
static int
fail_key(const struct build *b, const char *key, const struct stockade_error *e)
{
    char where[PATH_MAX + 64];
    (void)build_file_location(&b->file, b->path, key, where, sizeof where);
    return interrupted != 0 ? EXIT_SIGNAL + interrupted : cli_fail_operand(b->c, where, e);
}

static void
say(const struct build *b, size_t i, const char *what)
{
    const Stockade__V1__TemplateBuildStep *s = b->file.definition->steps[i];
    char clean[80], line[64];
    (void)snprintf(line, sizeof line, "%.60s", s->copy != NULL ? s->copy->from : s->run);
    line[strcspn(line, "\n")] = '\0';
    if (!b->o->json && !b->o->quiet)
        (void)fprintf(stderr, "[%zu/%zu] %s %s%s%s\n", i + 1, b->file.definition->n_steps,
                      s->copy != NULL ? "copy" : "run", text_clean(line, clean, sizeof clean),
                      what[0] != '\0' ? ": " : "", what);
}

static void
note_step(struct build *b, size_t i, bool cached, uint64_t ns)
{
    const Stockade__V1__TemplateBuildStep *s = b->file.definition->steps[i];
    char time[32];
    (void)json_array_append_new(
        b->steps, json_pack("{si ss ss sb sf ss}", "line", (int)b->file.line[i], "kind",
                            s->copy != NULL ? "copy" : "run", "text",
                            s->copy != NULL ? s->copy->from : s->run, "cached", (int)cached,
                            "seconds", (double)ns / 1e9, "snapshot", b->kept));
    if (!cached && !b->o->json && !b->o->quiet)
        (void)fprintf(stderr, "      %s\n", units_show_ns(ns, time, sizeof time));
}

// ---- the sandbox of the steps

static void
drop_sandbox(struct build *b)
{
    if (b->sandbox[0] != '\0')
        (void)stockade_delete(b->s, b->sandbox, NULL);
    b->sandbox[0] = '\0';
}

// With the files so far.
static int
need_sandbox(struct build *b)
{
    const Stockade__V1__TemplateDefinition *d = b->file.definition;
    const struct stockade_sandbox *box = NULL;
    const struct stockade_snapshot *snapshot = NULL;
    struct stockade_error e;
    const struct stockade_pair label = {"build", b->name};
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    if (b->sandbox[0] != '\0')
        return EXIT_OK;
    o.template_name = d->from[0] != '\0' ? d->from : "default";
    o.labels = &label;
    o.labels_n = 1;
    o.ttl_ms = SPARE_MS;
    o.network = STOCKADE_NETWORK_NONE;
    if (d->limits != NULL && d->limits->memory[0] != '\0')
        (void)units_bytes(d->limits->memory, &o.limits.memory_bytes);
    if (d->limits != NULL && d->limits->disk[0] != '\0')
        (void)units_bytes(d->limits->disk, &o.limits.disk_bytes);
    if (stockade_create(b->s, &o, &box, &e) < 0)
        return strncmp(e.subject, "limits", 6) == 0 ? fail_key(b, "limits", &e) : fail(b, &e);
    (void)snprintf(b->sandbox, sizeof b->sandbox, "%s", box->id);
    stockade_free(box);
    if (b->kept[0] != '\0' &&
        stockade_snapshot_restore(b->s, b->sandbox, b->kept, false, &snapshot, &e) < 0)
        return fail(b, &e);
    stockade_free(snapshot);
    return EXIT_OK;
}

// A long build does not lose it, and that of a build that was killed ends soon.
static int
extend_life(const struct build *b, uint64_t ms)
{
    const struct stockade_sandbox *box = NULL;
    struct stockade_error e;
    if (stockade_update(b->s, b->sandbox, ms + SPARE_MS, NULL, 0, &box, &e) < 0)
        return fail(b, &e);
    stockade_free(box);
    return EXIT_OK;
}

// ---- a step

static uint64_t
wall_ms(const char *timeout)
{
    uint64_t ms = STEP_MS;
    if (timeout[0] != '\0')
        (void)units_duration_ms(timeout, &ms);
    return ms;
}

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct build *b = cookie;
    (void)stream;
    (void)offset;
    build_output_add(&b->output, bytes, n);
    return 0;
}

// As the file calls it.
static const char *
limit_of(const struct stockade_result *r)
{
    const char *option = cli_option_of_limit(r->limits[0].name);
    return option != NULL ? option : r->limits[0].name;
}

// Its output and the line; with -o json both in one object.
static int
judge(struct build *b, const char *where, const struct stockade_result *r)
{
    char why[256];
    if (r->outcome == STOCKADE_OUTCOME_EXITED && r->exit_code == 0)
        return EXIT_OK;
    if (r->outcome == STOCKADE_OUTCOME_EXITED)
        (void)snprintf(why, sizeof why, "it exited with %u%s%s", r->exit_code,
                       r->limits_n > 0 ? ", and reached the limit " : "",
                       r->limits_n > 0 ? limit_of(r) : "");
    else if (r->limits_n > 0)
        (void)snprintf(why, sizeof why, "it reached the limit %s", limit_of(r));
    else
        (void)snprintf(why, sizeof why, "%s: %.200s", cli_outcome_name(r->outcome), r->reason);
    if (!b->o->json) {
        build_output_show(&b->output);
    } else {
        json_t *o = json_pack("{s{ss ss}}", "error", "reason", "STEP_FAILED", "text", why);
        json_t *error = json_object_get(o, "error");
        (void)json_object_set_new(error, "where", json_string(where));
        (void)json_set_bytes(error, "output", b->output.bytes, b->output.n);
        (void)json_object_set(o, "steps", b->steps);
        (void)json_put(o);
    }
    (void)fprintf(stderr, "stockade template: %s: %s\n", where, why);
    return EXIT_PROBLEM;
}

// A shell command in a sandbox.
static int
run_shell(struct build *b, const char *sandbox, const char *script, const char *timeout,
          const char *where)
{
    const char *const args[] = {"sh", "-ec", script, NULL};
    const struct stockade_handlers h = {.on_output = on_output, .cookie = b};
    const struct stockade_result *r = NULL;
    struct stockade_error e;
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    o.sandbox = sandbox;
    o.command = (struct stockade_command){.args = args, .env = b->env, .env_n = b->env_n};
    if (b->file.definition->workdir[0] != '\0')
        o.command.workdir = b->file.definition->workdir;
    o.foreground = true;
    o.limits.wall_ms = wall_ms(timeout);
    build_output_clear(&b->output);
    int rc = stockade_start(b->s, &o, &h, &r, &e);
    int code = rc < 0 ? fail(b, &e) : judge(b, where, r);
    stockade_free(r);
    return code;
}

static int
run_step(struct build *b, size_t i)
{
    const Stockade__V1__TemplateBuildStep *s = b->file.definition->steps[i];
    const size_t n = s->network != NULL ? s->network->n_allow : 0;
    const struct stockade_policy policy = {
        .mode = n > 0 ? STOCKADE_NETWORK_ALLOWLIST : STOCKADE_NETWORK_NONE,
        .allow = n > 0 ? (const char *const *)s->network->allow : NULL,
        .allow_n = n};
    char where[PATH_MAX + 64];
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    (void)snprintf(where, sizeof where, "%s:%u: step %zu", b->path, b->file.line[i], i + 1);
    if (stockade_set_policy(b->s, b->sandbox, &policy, &box, &e) < 0)
        return fail_at(b, i, &e);
    stockade_free(box);
    return run_shell(b, b->sandbox, s->run, s->timeout, where);
}

static void
local_path(const struct build *b, const char *from, char out[2 * PATH_MAX])
{
    (void)snprintf(out, (size_t)2 * PATH_MAX, "%s%s%s", from[0] == '/' ? "" : b->folder,
                   from[0] == '/' ? "" : "/", from);
}

// A relative path begins at the definition's working directory, if it has one.
static int
copy_step(struct build *b, size_t i)
{
    const Stockade__V1__TemplateBuildCopy *copy = b->file.definition->steps[i]->copy;
    const char *workdir = b->file.definition->workdir;
    char local[2 * PATH_MAX], to[2 * PATH_MAX];
    const bool below = copy->to[0] != '/' && workdir[0] != '\0';
    local_path(b, copy->from, local);
    (void)snprintf(to, sizeof to, "%s%s%s", below ? workdir : "", below ? "/" : "", copy->to);
    struct stockade_error e = {0};
    char why[sizeof e.text + 16];
    cli_hold_error(&e);
    int code = copy_into(b->s, b->c, b->sandbox, local, to);
    cli_hold_error(NULL);
    (void)snprintf(why, sizeof why, "copy failed%s%s", e.text[0] != '\0' ? ": " : "", e.text);
    if (interrupted != 0)
        return EXIT_SIGNAL + interrupted;
    return code == EXIT_OK ? code : fail_step(b, i, why, &e);
}

// ---- what was kept

static int
key_of(const struct build *b, size_t i, char out[BUILD_NAME], struct err *e)
{
    const Stockade__V1__TemplateBuildStep *s = b->file.definition->steps[i];
    char local[2 * PATH_MAX];
    struct build_key k;
    build_key_begin(&k, &interrupted);
    build_key_text(&k, b->below);
    build_key_text(&k, b->file.definition->workdir);
    build_key_bytes(&k, &b->env_n, sizeof b->env_n); // the last value is not the step
    for (size_t n = 0; n < b->env_n; n++) {
        build_key_text(&k, b->env[n].name);
        build_key_text(&k, b->env[n].value);
    }
    build_key_text(&k, s->run);
    for (size_t n = 0; s->network != NULL && n < s->network->n_allow; n++)
        build_key_text(&k, s->network->allow[n]);
    if (s->copy != NULL) {
        build_key_text(&k, s->copy->to);
        local_path(b, s->copy->from, local);
        int rc = build_key_tree(&k, local, e);
        if (rc < 0)
            return rc;
    }
    build_key_end(&k, out);
    return 0;
}

static void
go_on_from(struct build *b, const char *name, const struct stockade_snapshot *p)
{
    (void)snprintf(b->kept, sizeof b->kept, "%s", name);
    (void)snprintf(b->below, sizeof b->below, "files %s", p->digest);
}

static bool
is_kept(struct build *b, const char *name)
{
    const struct stockade_snapshot *p = NULL;
    struct stockade_error e;
    if (b->o->no_cache || stockade_snapshot_get(b->s, "", name, &p, &e) < 0)
        return false;
    go_on_from(b, name, p);
    stockade_free(p);
    return true;
}

// A step that cannot be kept is done again by the next build; the template is made anyway.
static void
not_kept(struct build *b, const char *why)
{
    b->kept[0] = '\0';
    (void)snprintf(b->below, sizeof b->below, "not kept");
    if (interrupted == 0)
        (void)fprintf(stderr, "stockade template: the step is not kept for other builds: %s\n",
                      why);
}

// Whether the files that a step has copied are those that its name stands for.
static bool
is_what_was_copied(const struct build *b, size_t i, const char *name)
{
    char now[BUILD_NAME];
    struct err e;
    return b->file.definition->steps[i]->copy == NULL ||
           (key_of(b, i, now, &e) == 0 && strcmp(now, name) == 0);
}

// Another build keeps the same step at this moment, or did so a moment ago. Its files are the ones to go on from.
static bool
take_kept(struct build *b, const char *name)
{
    const struct timespec nap = {.tv_nsec = KEPT_NAP_MS * 1000000L};
    for (unsigned ms = 0; ms < KEPT_WAIT_MS && interrupted == 0; ms += KEPT_NAP_MS) {
        if (is_kept(b, name)) {
            drop_sandbox(b);
            return true;
        }
        (void)nanosleep(&nap, NULL);
    }
    return false;
}

static void
keep(struct build *b, size_t i, const char *name)
{
    const struct stockade_snapshot *p = NULL;
    struct stockade_error e;
    if (b->o->no_cache)
        return;
    if (!is_what_was_copied(b, i, name)) {
        not_kept(b, "the files changed while they were copied");
    } else if (stockade_snapshot_keep(b->s, b->sandbox, name, false, &p, &e) == 0) {
        go_on_from(b, name, p);
        stockade_free(p);
    } else if (e.code != STOCKADE_ALREADY_EXISTS || !take_kept(b, name)) {
        not_kept(b, e.text);
    }
}

static int
one_step(struct build *b, size_t i)
{
    const Stockade__V1__TemplateBuildStep *s = b->file.definition->steps[i];
    char name[BUILD_NAME];
    struct err e;
    const int64_t begin = now_ns(CLOCK_MONOTONIC);
    const bool follows = strcmp(b->below, "not kept") == 0;
    if (key_of(b, i, name, &e) < 0)
        return interrupted != 0 ? EXIT_SIGNAL + interrupted : fail_step(b, i, e.text, NULL);
    if (!follows && is_kept(b, name)) {
        drop_sandbox(b); // its files are not the ones to go on from
        say(b, i, "kept");
        note_step(b, i, true, 0);
        return EXIT_OK;
    }
    say(b, i, "");
    int code = need_sandbox(b);
    if (code == EXIT_OK)
        code = extend_life(b, s->copy != NULL ? COPY_MS : wall_ms(s->timeout));
    if (code == EXIT_OK)
        code = s->copy != NULL ? copy_step(b, i) : run_step(b, i);
    if (code != EXIT_OK)
        return code;
    if (!follows)
        keep(b, i, name);
    note_step(b, i, false, (uint64_t)(now_ns(CLOCK_MONOTONIC) - begin));
    return interrupted != 0 ? EXIT_SIGNAL + interrupted : EXIT_OK;
}

// ---- the template

// In a fork, so that what it writes is not in the template.
static int
check_ready(struct build *b)
{
    const struct stockade_sandboxes *forks = NULL;
    struct stockade_error e;
    char where[PATH_MAX + 64], fork[CLI_ID_SIZE];
    if (b->file.definition->ready[0] == '\0')
        return EXIT_OK;
    const struct stockade_policy none = {.mode = STOCKADE_NETWORK_NONE};
    const struct stockade_sandbox *box = NULL;
    if (stockade_set_policy(b->s, b->sandbox, &none, &box, &e) < 0)
        return fail(b, &e);
    stockade_free(box);
    if (stockade_fork(b->s, b->sandbox, NULL, &forks, &e) < 0)
        return fail(b, &e);
    (void)snprintf(fork, sizeof fork, "%s", forks->items[0].id);
    stockade_free(forks);
    (void)snprintf(where, sizeof where, "%s: ready", b->path);
    int code = run_shell(b, fork, b->file.definition->ready, "", where);
    (void)stockade_delete(b->s, fork, NULL);
    return code;
}

// The one of this name, if there is one, is replaced.
static int
make(struct build *b)
{
    const struct stockade_sandbox_template *t = NULL;
    struct stockade_error e;
    struct stockade_template_options o = STOCKADE_TEMPLATE_OPTIONS_INIT;
    o.env = b->env;
    o.env_n = b->env_n;
    o.replace = true;
    if (b->file.definition->workdir[0] != '\0')
        o.workdir = b->file.definition->workdir;
    if (stockade_template_create(b->s, b->name, b->sandbox, &o, &t, &e) < 0)
        return fail(b, &e);
    int code = EXIT_OK;
    if (b->o->json)
        code = json_put(json_pack("{ss ss sI sO}", "name", t->name, "digest", t->digest, "bytes",
                                  (json_int_t)t->bytes, "steps", b->steps));
    else
        (void)puts(t->name);
    stockade_free(t);
    return code == EXIT_OK ? cli_flush(b->c) : code;
}

// What it is made on.
static int
check_base(struct build *b)
{
    const Stockade__V1__TemplateDefinition *d = b->file.definition;
    const char *from = d->from[0] != '\0' ? d->from : "default";
    const struct stockade_sandbox_template *t = NULL;
    struct stockade_error e = {.code = STOCKADE_FAILED_PRECONDITION};
    char target[PATH_MAX + 64];
    if (stockade_template_get(b->s, from, &t, &e) < 0)
        return fail_key(b, "from", &e);
    const char *user = t->user_root ? "root" : "agent";
    const bool other = d->user[0] != '\0' && strcmp(d->user, user) != 0;
    build_key_of_base(t, b->below);
    if (other)
        (void)snprintf(e.text, sizeof e.text, "%s: jobs of template %s are %s, not %s",
                       build_file_location(&b->file, b->path, "user", target, sizeof target), from,
                       user, d->user);
    (void)snprintf(e.hint, sizeof e.hint, "choose another template with from");
    stockade_free(t);
    return other ? cli_fail(b->c, "", &e) : EXIT_OK;
}

// Before the steps, which may take long: whether there can be a template of this name.
static int
check_name(const struct build *b)
{
    const struct stockade_sandbox_template *t = NULL;
    struct stockade_error e;
    if (stockade_template_get(b->s, b->name, &t, &e) < 0)
        return e.code == STOCKADE_NOT_FOUND ? EXIT_OK : fail(b, &e);
    const bool of_host = t->of_host;
    stockade_free(t);
    if (!of_host)
        return EXIT_OK;
    e = (struct stockade_error){.code = STOCKADE_ALREADY_EXISTS, .hint = "choose another --name"};
    (void)snprintf(e.text, sizeof e.text, "the host has a template with this name");
    return fail(b, &e);
}

// The name of the template: --name, or that of the file without its end.
static int
read_names(struct build *b)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", b->path);
    (void)snprintf(b->folder, sizeof b->folder, "%s", dirname(copy));
    (void)snprintf(copy, sizeof copy, "%s", b->path);
    const char *base = basename(copy);
    const size_t stem = strcspn(base, ".");
    if (b->o->name != NULL)
        (void)snprintf(b->name, sizeof b->name, "%s", b->o->name);
    else
        (void)snprintf(b->name, sizeof b->name, "%.*s", (int)stem, base);
    const Stockade__V1__TemplateDefinition *d = b->file.definition;
    for (size_t i = 0; i < d->n_env && b->env_n < ENV_MAX; i++)
        b->env[b->env_n++] = (struct stockade_pair){d->env[i]->key, d->env[i]->value};
    return b->name[0] != '\0' ? EXIT_OK
                              : cli_usage(b->c, "the file has no name", "use --name NAME");
}

static int
all_steps(struct build *b)
{
    int code = check_name(b);
    if (code == EXIT_OK)
        code = check_base(b);
    for (size_t i = 0; i < b->file.definition->n_steps && code == EXIT_OK; i++)
        code = interrupted != 0 ? EXIT_SIGNAL + interrupted : one_step(b, i);
    if (code == EXIT_OK)
        code = need_sandbox(b);
    if (code == EXIT_OK)
        code = extend_life(b, STEP_MS);
    if (code == EXIT_OK)
        code = check_ready(b);
    return code == EXIT_OK ? make(b) : code;
}

int
build_template(const struct command *c, const struct options *o, struct stockade *s,
               const char *path)
{
    struct err e;
    struct build *b = calloc(1, sizeof *b);
    if (b == NULL || !build_output_init(&b->output, !o->json && !o->quiet)) {
        free(b);
        return EXIT_PROBLEM;
    }
    b->c = c;
    b->o = o;
    b->s = s;
    b->path = path;
    b->steps = json_array();
    int code = build_file_read(path, &b->file, &e) < 0 ? fail_here(b, &e) : read_names(b);
    pthread_t thread;
    const bool watched = interrupt_watch(s, &thread);
    if (code == EXIT_OK)
        code = all_steps(b);
    if (watched)
        interrupt_stop(thread);
    drop_sandbox(b);
    build_file_free(&b->file);
    json_decref(b->steps);
    build_output_free(&b->output);
    free(b);
    return code;
}
