// SPDX-License-Identifier: Apache-2.0
// template: kinds of sandboxes, those of the host and those made from work. build, create, ls, show, rm, prune, push, load.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "actions.h"
#include "build.h"
#include "build_key.h"
#include "commands.h"
#include "json.h"
#include "template_archive.h"
#include "units.h"

enum { CELL_MAX = 512 };

static json_t *
json_of_step(const struct stockade_template_step *s)
{
    json_t *to = json_array();
    for (size_t i = 0; i < s->destinations_n; i++)
        (void)json_array_append_new(to, json_string(s->destinations[i]));
    return json_pack("{ss ss so sI so ss sI}", "command", s->command, "digest", s->digest,
                     "destinations", to, "connections", (json_int_t)s->connections, "end_time",
                     json_of_time(s->ended_ms), "outcome", cli_outcome_name(s->outcome),
                     "exit_code", (json_int_t)s->exit_code);
}

static json_t *
json_of_template(const struct stockade_sandbox_template *t)
{
    json_t *env = json_object();
    json_t *steps = json_array();
    for (size_t i = 0; i < t->env_n; i++)
        (void)json_object_set_new(env, t->env[i].name, json_string(t->env[i].value));
    for (size_t i = 0; i < t->steps_n; i++)
        (void)json_array_append_new(steps, json_of_step(&t->steps[i]));
    return json_pack("{ss sb ss ss ss ss so sI sI ss ss ss so ss ss ss ss so sI sb}", "name",
                     t->name, "of_host", (int)t->of_host, "base", t->base, "made_on", t->made_on,
                     "sandbox_id", t->sandbox_id, "snapshot", t->snapshot, "create_time",
                     t->of_host ? json_null() : json_of_time(t->created_ms), "bytes",
                     (json_int_t)t->bytes, "inodes", (json_int_t)t->inodes, "user",
                     t->user_root ? "root" : "agent", "root",
                     t->root_writable ? "writable" : "read-only", "workdir", t->workdir, "env", env,
                     "network", t->network, "digest", t->digest, "principal", t->principal,
                     "loaded_by", t->loaded_by, "steps", steps, "steps_omitted",
                     (json_int_t)t->steps_omitted, "unreadable", (int)t->unreadable);
}

static void
print_line(const char *key, const char *value)
{
    char text[CELL_MAX];
    if (value[0] != '\0')
        (void)printf("%-12s  %s\n", key, text_clean(value, text, sizeof text));
}

static void
print_steps(const struct stockade_sandbox_template *t)
{
    char text[CELL_MAX];
    for (size_t i = 0; i < t->steps_n; i++) {
        const struct stockade_template_step *s = &t->steps[i];
        print_line("step", s->command);
        if (s->outcome != STOCKADE_OUTCOME_EXITED)
            print_line("  ended", cli_outcome_name(s->outcome));
        else if (s->exit_code != 0)
            (void)printf("%-12s  exit code %u\n", "  ended", s->exit_code);
        print_line("  layer", s->digest);
        for (size_t k = 0; k < s->destinations_n; k++)
            print_line("  reached", s->destinations[k]);
    }
    (void)snprintf(text, sizeof text, "%llu %s not listed", (unsigned long long)t->steps_omitted,
                   plural(t->steps_omitted, "step is", "steps are"));
    if (t->steps_omitted > 0)
        print_line("step", text);
}

static void
print_template(const struct stockade_sandbox_template *t)
{
    char size[32], age[16], text[CELL_MAX];
    print_line("name", t->name);
    print_line("owner", t->of_host ? "the host" : "you");
    print_line("user", t->user_root ? "root" : "agent");
    print_line("root", t->root_writable ? "writable" : "read-only");
    if (t->of_host)
        return;
    print_line("base", t->base);
    print_line("made on", t->made_on);
    print_line("made by", t->principal);
    print_line("loaded by", t->loaded_by);
    print_line("digest", t->digest);
    print_line("sandbox", t->sandbox_id);
    print_line("snapshot", t->snapshot);
    (void)printf("age           %s\n",
                 units_show_age(now_wall_ms() - t->created_ms, age, sizeof age));
    (void)printf("size          %s in %llu %s\n", units_show_bytes(t->bytes, size, sizeof size),
                 (unsigned long long)t->inodes, plural(t->inodes, "inode", "inodes"));
    print_line("network", t->network);
    print_line("workdir", t->workdir);
    for (size_t i = 0; i < t->env_n; i++) {
        (void)snprintf(text, sizeof text, "%s=%s", t->env[i].name, t->env[i].value);
        print_line("env", text);
    }
    print_steps(t);
}

// ---- the actions

static int
put(const struct acting *a, const struct stockade_sandbox_template *t)
{
    if (a->o->json)
        return json_put(json_of_template(t));
    print_template(t);
    return EXIT_OK;
}

// SANDBOX or SANDBOX:SNAPSHOT
static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_sandbox_template *t = NULL;
    char from[130];
    struct stockade_template_options o = STOCKADE_TEMPLATE_OPTIONS_INIT;
    (void)snprintf(from, sizeof from, "%s", a->o->source);
    char *colon = strchr(from, ':');
    if (colon != NULL) {
        *colon = '\0';
        o.snapshot = colon + 1;
    }
    o.stop = a->o->stop;
    o.replace = a->o->replace;
    o.workdir = a->o->workdir;
    o.env = a->o->env;
    o.env_n = a->o->env_n;
    if (stockade_template_create(a->s, a->name, from, &o, &t, &e) < 0)
        return actions_fail(a, &e, "name");
    int code = EXIT_OK;
    if (a->o->json)
        code = json_put(json_of_template(t));
    else
        (void)puts(t->name);
    stockade_free(t);
    return code;
}

static int
show(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_sandbox_template *t = NULL;
    if (stockade_template_get(a->s, a->name, &t, &e) < 0)
        return actions_fail(a, &e, "name");
    int code = put(a, t);
    stockade_free(t);
    return code;
}

static int
remove_it(const struct acting *a)
{
    struct stockade_error e;
    return stockade_template_delete(a->s, a->name, &e) < 0 ? actions_fail(a, &e, "name") : EXIT_OK;
}

static int
build(const struct acting *a)
{
    return build_template(a->c, a->o, a->s, a->name);
}

// ---- prune

struct pruning {
    const struct acting *a;
    json_t *names;
    uint64_t bytes; // files that several steps have count for each
    char page[33];
    char (*chosen)[BUILD_NAME]; // owned: of one page
    size_t chosen_n;
};

// Deleted after the page was read, since pages go on where the last one ended.
static int
choose(struct pruning *p, const struct stockade_snapshots *all)
{
    const int64_t before_ms = now_wall_ms() - (int64_t)p->a->o->older_ms;
    p->chosen_n = 0;
    p->chosen = calloc(all->n + 1, sizeof *p->chosen);
    for (size_t i = 0; i < all->n && p->chosen != NULL; i++) {
        const struct stockade_snapshot *s = &all->items[i];
        if (!build_key_is_name(s->name) || s->created_ms > before_ms)
            continue;
        p->bytes += s->total_bytes;
        (void)snprintf(p->chosen[p->chosen_n++], BUILD_NAME, "%s", s->name);
    }
    if (p->chosen != NULL)
        return EXIT_OK;
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    return cli_fail(p->a->c, "", &e);
}

static int
prune_chosen(struct pruning *p)
{
    struct stockade_error e;
    int code = EXIT_OK;
    for (size_t i = 0; i < p->chosen_n && code == EXIT_OK; i++) {
        if (stockade_snapshot_delete(p->a->s, "", p->chosen[i], &e) == 0)
            (void)json_array_append_new(p->names, json_string(p->chosen[i]));
        else if (e.code != STOCKADE_NOT_FOUND) // another one was faster
            code = cli_fail(p->a->c, p->chosen[i], &e);
    }
    free(p->chosen);
    p->chosen = NULL;
    return code;
}

static int
prune_page(struct pruning *p)
{
    struct stockade_error e;
    const struct stockade_snapshots *all = NULL;
    if (stockade_snapshot_list(p->a->s, "", p->page, &all, &e) < 0)
        return cli_fail(p->a->c, "", &e);
    int code = choose(p, all);
    (void)snprintf(p->page, sizeof p->page, "%s", all->next_page);
    stockade_free(all);
    return code == EXIT_OK ? prune_chosen(p) : code;
}

static int
prune(const struct acting *a)
{
    char size[32];
    struct pruning p = {.a = a, .names = json_array()};
    int code = EXIT_OK;
    do
        code = prune_page(&p);
    while (code == EXIT_OK && p.page[0] != '\0');
    const size_t n = json_array_size(p.names);
    if (a->o->json && code == EXIT_OK)
        return json_put(p.names);
    json_decref(p.names);
    if (code == EXIT_OK)
        (void)printf("%zu kept %s deleted, with files of %s\n", n, plural(n, "step", "steps"),
                     units_show_bytes(p.bytes, size, sizeof size));
    return code;
}

// ---- lists

static bool
add_row(struct table *table, const struct stockade_sandbox_template *t)
{
    char size[32], age[16];
    return table_row(
        table,
        (const char *[]){
            t->name, t->of_host ? "host" : "you", t->user_root ? "root" : "agent",
            t->of_host ? "-" : t->made_on,
            t->of_host ? "-" : units_show_bytes(t->bytes, size, sizeof size),
            t->of_host ? "-" : units_show_age(now_wall_ms() - t->created_ms, age, sizeof age)});
}

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    const struct stockade_sandbox_templates *all = NULL;
    if (stockade_template_list(a->s, l->page, &all, &e) < 0)
        return cli_fail(a->c, "", &e);
    for (size_t i = 0; i < all->n && l->table != NULL; i++) {
        (void)json_array_append_new(l->array, json_of_template(&all->items[i]));
        (void)add_row(l->table, &all->items[i]);
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page);
    stockade_free(all);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"TEMPLATE", "OWNER", "USER", "MADE ON", "SIZE", "AGE"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

static bool
has_create_option(const struct options *o)
{
    return o->stop || o->source != NULL || o->workdir != NULL || o->env_n > 0;
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    if (a->run == create && o->source == NULL)
        return cli_usage(c, "create needs --from", "name a sandbox, or SANDBOX:SNAPSHOT");
    if (a->run != create && has_create_option(o))
        return cli_usage(c, "--from, --stop, --env and --workdir need the action create", "");
    if (a->run != create && a->run != template_archive_load && o->replace)
        return cli_usage(c, "--replace needs the action create or load", "");
    if (a->run != build && (o->no_cache || o->quiet))
        return cli_usage(c, "--no-cache and --quiet need the action build", "");
    if (a->run != build && a->run != template_archive_load && o->name != NULL)
        return cli_usage(c, "--name needs the action build or load", "");
    if (a->run != prune && o->older_ms != 0)
        return cli_usage(c, "--older-than needs the action prune", "");
    return EXIT_OK;
}

static const struct action all[] = {
    {"create", 2, 2, "NAME", create},
    {"build", 2, 2, "FILE", build},
    {"ls", 1, 1, NULL, list},
    {"show", 2, 2, "NAME", show},
    {"rm", 2, 2, "NAME", remove_it},
    {"prune", 1, 1, NULL, prune},
    {"push", 2, 3, "NAME", template_archive_push},
    {"load", 2, 2, "FILE", template_archive_load},
    {0},
};

int
cli_template(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are build FILE, create NAME --from SANDBOX[:SNAPSHOT], ls, show NAME, "
                "rm NAME, push NAME [FILE], load FILE and prune",
        .check = check,
    };
    return actions_run(&actions, c, o);
}
