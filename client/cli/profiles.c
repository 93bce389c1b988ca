// SPDX-License-Identifier: Apache-2.0
// profiles: the normal behaviour of a template's jobs. ls, export, import, reset, freeze.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"

enum { FILE_MAX = 3 << 20, TEXT_MAX = 80 };

static const char *
state_name(uint32_t state)
{
    static const char *const names[] = {"?", "off", "learning", "frozen"};
    return names[state <= 3 ? state : 0];
}

static json_t *
json_of_executable(const struct stockade_executable *x)
{
    return json_pack(
        "{ss sI sI sI sb sI sI sI sI sI}", "path", x->path, "inode", (json_int_t)x->inode, "size",
        (json_int_t)x->size, "execs", (json_int_t)x->execs, "profiled", (int)x->profiled,
        "sequences", (json_int_t)x->sequences, "looked_at", (json_int_t)x->looked_at, "unseen",
        (json_int_t)x->unseen, "windows", (json_int_t)x->windows, "alerts", (json_int_t)x->alerts);
}

static json_t *
json_of_profile(const struct stockade_profile *p)
{
    json_t *all = json_array();
    for (size_t i = 0; i < p->executables_n; i++)
        (void)json_array_append_new(all, json_of_executable(&p->executables[i]));
    return json_pack("{ss ss sI sI sI so sb sI ss so}", "template", p->template_name, "state",
                     state_name(p->state), "version", (json_int_t)p->version, "runs",
                     (json_int_t)p->runs, "runs_wanted", (json_int_t)p->runs_wanted, "freeze_time",
                     json_of_time(p->frozen_ms), "own_files", (int)p->own_files, "left_out",
                     (json_int_t)p->left_out, "learnt_from", p->learnt_from, "executables", all);
}

static void
print_all(const struct stockade_profiles *all)
{
    static const char *const head[] = {"TEMPLATE", "STATE", "VERSION", "RUNS", "OWN FILES"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    for (size_t i = 0; i < all->n && t != NULL; i++) {
        const struct stockade_profile *p = &all->items[i];
        char version[16], runs[32];
        (void)snprintf(version, sizeof version, "%u", p->version);
        if (p->runs_wanted > 0)
            (void)snprintf(runs, sizeof runs, "%u of %u", p->runs, p->runs_wanted);
        else
            (void)snprintf(runs, sizeof runs, "%u", p->runs);
        (void)table_row(t, (const char *[]){p->template_name, state_name(p->state), version, runs,
                                            p->own_files ? "yes" : "no"});
    }
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
}

static void
print_one(const struct stockade_profile *p)
{
    static const char *const head[] = {"EXECUTABLE", "INODE",  "EXECS",   "SEQUENCES",
                                       "COMPARED",   "UNSEEN", "WINDOWS", "ALERTS"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    (void)printf("%s: %s, version %u, %u", p->template_name, state_name(p->state), p->version,
                 p->runs);
    if (p->runs_wanted > 0)
        (void)printf(" of %u", p->runs_wanted);
    (void)puts(p->runs == 1 && p->runs_wanted == 0 ? " run" : " runs");
    if (p->learnt_from[0] != '\0')
        (void)printf("learnt from jobs of template %s\n", p->learnt_from);
    for (size_t i = 0; i < p->executables_n && t != NULL; i++) {
        const struct stockade_executable *x = &p->executables[i];
        char n[7][24];
        const uint64_t v[7] = {x->inode,  x->execs,   x->sequences, x->looked_at,
                               x->unseen, x->windows, x->alerts};
        for (size_t k = 0; k < 7; k++)
            (void)snprintf(n[k], sizeof n[k], "%" PRIu64, v[k]);
        (void)table_row(t, (const char *[]){x->path, n[0], n[1], x->profiled ? n[2] : "-", n[3],
                                            n[4], n[5], n[6]});
    }
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
}

static int
list(const struct command *c, const struct options *o, struct stockade *s, const char *template)
{
    struct stockade_error e;
    const struct stockade_profiles *all = NULL;
    if (stockade_profiles(s, template, &all, &e) < 0)
        return cli_fail(c, template != NULL ? template : "", &e);
    int code = EXIT_OK;
    json_t *array = json_array();
    for (size_t i = 0; i < all->n; i++)
        (void)json_array_append_new(array, json_of_profile(&all->items[i]));
    if (o->json)
        code = json_put_list(json_incref(array));
    else if (template != NULL && all->n == 1)
        print_one(&all->items[0]);
    else
        print_all(all);
    json_decref(array);
    stockade_free(all);
    return code;
}

static int
put_file(const struct command *c, const char *path, const struct stockade_bytes *b)
{
    FILE *to = path != NULL ? fopen(path, "we") : stdout;
    bool ok = to != NULL && fwrite(b->bytes, 1, b->n, to) == b->n;
    if (to != NULL && path != NULL)
        ok = fclose(to) == 0 && ok;
    else
        ok = ok && fflush(stdout) == 0;
    if (ok)
        return EXIT_OK;
    struct stockade_error e = {.code = STOCKADE_INTERNAL};
    (void)snprintf(e.text, sizeof e.text, "write: %s", strerror(errno));
    return cli_fail(c, path != NULL ? path : "stdout", &e);
}

static int
export_it(const struct command *c, const struct options *o, struct stockade *s,
          const char *template)
{
    struct stockade_error e;
    const struct stockade_bytes *file = NULL;
    const char *path = o->args_n > 2 ? o->args[2] : NULL;
    if (path == NULL && isatty(STDOUT_FILENO) == 1)
        return cli_usage(c, "a profile is binary and cannot be written to a terminal",
                         "name a file, or redirect stdout");
    if (stockade_profile_export(s, template, &file, &e) < 0)
        return cli_fail(c, template, &e);
    int code = put_file(c, path, file);
    stockade_free(file);
    return code;
}

// Another template's jobs may behave differently: what they never did is reported from now on.
static void
note_other_template(const struct command *c, struct stockade *s, const char *template)
{
    const struct stockade_profiles *all = NULL;
    char from[TEXT_MAX];
    if (stockade_profiles(s, template, &all, NULL) < 0)
        return;
    if (all->n == 1 && all->items[0].learnt_from[0] != '\0')
        (void)fprintf(stderr,
                      "stockade %s: this profile was learnt from jobs of template %s, not of %s\n"
                      "  hint: stockade profiles reset %s --learn 20 learns from its own jobs\n",
                      c->name, text_clean(all->items[0].learnt_from, from, sizeof from), template,
                      template);
    stockade_free(all);
}

static int
import_it(const struct command *c, const struct options *o, struct stockade *s,
          const char *template)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT};
    const char *path = o->args_n > 2 ? o->args[2] : NULL;
    char *bytes = malloc(FILE_MAX + 1);
    FILE *from = path != NULL ? fopen(path, "re") : stdin;
    size_t n = bytes != NULL && from != NULL ? fread(bytes, 1, FILE_MAX + 1, from) : 0;
    int code = EXIT_OK;
    if (bytes == NULL || from == NULL || ferror(from) != 0)
        (void)snprintf(e.text, sizeof e.text, "read: %s", strerror(errno));
    else if (n == 0 || n > FILE_MAX)
        (void)snprintf(e.text, sizeof e.text,
                       n == 0 ? "the file is empty" : "the file is larger than %d bytes", FILE_MAX);
    else if (stockade_profile_import(s, template, bytes, n, &e) == 0)
        e.text[0] = '\0';
    if (e.text[0] != '\0')
        code = cli_fail(c, path != NULL ? path : "stdin", &e);
    else
        note_other_template(c, s, template);
    if (from != NULL && path != NULL)
        (void)fclose(from);
    free(bytes);
    return code;
}

static int
reset_it(const struct command *c, const struct options *o, struct stockade *s, const char *template)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT, .subject = "learn"};
    if (o->learn > UINT32_MAX) {
        (void)snprintf(e.text, sizeof e.text,
                       "learn: %" PRIu64 " requested, at most %u can be requested", o->learn,
                       UINT32_MAX);
        return cli_fail(c, template, &e);
    }
    return stockade_profile_reset(s, template, (uint32_t)o->learn, &e) < 0
               ? cli_fail(c, template, &e)
               : EXIT_OK;
}

static int
freeze_it(const struct command *c, const struct options *o, struct stockade *s,
          const char *template)
{
    struct stockade_error e;
    (void)o;
    return stockade_profile_freeze(s, template, &e) < 0 ? cli_fail(c, template, &e) : EXIT_OK;
}

struct action {
    const char *name;
    int args_min, args_max; // with its own name
    int (*run)(const struct command *c, const struct options *o, struct stockade *s,
               const char *template);
};

static const struct action actions[] = {
    {"ls", 1, 2, list},        {"export", 2, 3, export_it}, {"import", 2, 3, import_it},
    {"reset", 2, 2, reset_it}, {"freeze", 2, 2, freeze_it},
};

static int
wrong_line(const struct command *c, const struct options *o, const struct action *a)
{
    char why[128];
    if (a == NULL)
        (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    else if (o->args_n < a->args_min)
        (void)snprintf(why, sizeof why, "%s needs a TEMPLATE", a->name);
    else
        (void)snprintf(why, sizeof why, "unexpected argument '%.60s'", o->args[a->args_max]);
    return cli_usage(c, why,
                     "the actions are ls [TEMPLATE], export TEMPLATE [FILE], "
                     "import TEMPLATE [FILE], reset TEMPLATE and freeze TEMPLATE");
}

int
cli_profiles(const struct command *c, const struct options *o)
{
    const struct action *a = NULL;
    int code = EXIT_OK;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, o->args[0]) == 0)
            a = &actions[i];
    if (a == NULL || o->args_n < a->args_min || o->args_n > a->args_max)
        return wrong_line(c, o, a);
    if (o->learn != 0 && a->run != reset_it)
        return cli_usage(c, "--learn needs the action reset", "");
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    code = a->run(c, o, s, o->args_n > 1 ? o->args[1] : NULL);
    stockade_close(s);
    return code;
}
