// SPDX-License-Identifier: Apache-2.0
// checkpoint: the variables of a python context at one moment. create, ls, restore, fork, rm.
#include <stdio.h>
#include <string.h>

#include "actions.h"
#include "commands.h"
#include "json.h"
#include "proto/now.h"
#include "units.h"

static json_t *
json_of_checkpoint(const struct stockade_checkpoint *p)
{
    return json_pack("{ss ss ss ss sI sI so ss}", "name", p->name, "sandbox_id", p->sandbox_id,
                     "context_id", p->context_id, "language", p->language, "execution_count",
                     (json_int_t)p->execution_count, "memory_bytes", (json_int_t)p->memory_bytes,
                     "create_time", json_of_time(p->created_ms), "lost", p->lost);
}

static int
fail(const struct acting *a, struct stockade_error *e)
{
    return actions_fail(a, e, "name");
}

// The context that is meant: --context, or the sandbox's default one of python.
static bool
find_context(const struct acting *a, char out[65], int *code)
{
    struct stockade_error e;
    const struct stockade_contexts *all = NULL;
    out[0] = '\0';
    if (a->o->context != NULL) {
        (void)snprintf(out, 65, "%s", a->o->context);
        return true;
    }
    if (stockade_context_list(a->s, a->sandbox, &all, &e) < 0) {
        *code = fail(a, &e);
        return false;
    }
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].is_default && strcmp(all->items[i].language, "python") == 0)
            (void)snprintf(out, 65, "%s", all->items[i].id);
    stockade_free(all);
    if (out[0] != '\0')
        return true;
    e = (struct stockade_error){.code = STOCKADE_FAILED_PRECONDITION};
    (void)snprintf(e.text, sizeof e.text, "sandbox %.64s has run no python yet", a->sandbox);
    (void)snprintf(e.hint, sizeof e.hint,
                   "run a cell with stockade code --sandbox, or give --context");
    *code = fail(a, &e);
    return false;
}

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_checkpoint *p = NULL;
    char context[65];
    int code = EXIT_OK;
    if (!find_context(a, context, &code))
        return code;
    if (stockade_context_checkpoint(a->s, context, a->name, &p, &e) < 0)
        return fail(a, &e);
    if (a->o->json)
        code = json_put(json_of_checkpoint(p));
    else
        (void)puts(p->name);
    stockade_free(p);
    return code;
}

static int
put_context(const struct acting *a, const struct stockade_context *c, bool plain)
{
    int code = EXIT_OK;
    if (a->o->json)
        code = json_put(json_pack("{ss ss ss sI}", "context_id", c->id, "sandbox_id", c->sandbox_id,
                                  "language", c->language, "execution_count",
                                  (json_int_t)c->execution_count));
    else if (plain)
        (void)puts(c->id);
    stockade_free(c);
    return code;
}

// Calls stockade_context_restore() or stockade_context_fork().
static int
call_with_context(const struct acting *a,
                  int (*call)(struct stockade *s, const char *context, const char *checkpoint,
                              const struct stockade_context **out, struct stockade_error *e),
                  bool plain)
{
    struct stockade_error e;
    const struct stockade_context *c = NULL;
    char context[65];
    int code = EXIT_OK;
    if (!find_context(a, context, &code))
        return code;
    return call(a->s, context, a->name, &c, &e) < 0 ? fail(a, &e) : put_context(a, c, plain);
}

static int
restore(const struct acting *a)
{
    return call_with_context(a, stockade_context_restore, false);
}

static int
fork_it(const struct acting *a)
{
    return call_with_context(a, stockade_context_fork, true);
}

static int
remove_it(const struct acting *a)
{
    struct stockade_error e;
    return stockade_checkpoint_delete(a->s, a->sandbox, a->name, &e) < 0 ? fail(a, &e) : EXIT_OK;
}

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    const struct stockade_checkpoints *all = NULL;
    char size[32], age[16], cells[16];
    if (stockade_checkpoint_list(a->s, a->sandbox, &all, &e) < 0)
        return fail(a, &e);
    for (size_t i = 0; i < all->n && l->table != NULL; i++) {
        const struct stockade_checkpoint *p = &all->items[i];
        (void)json_array_append_new(l->array, json_of_checkpoint(p));
        (void)snprintf(cells, sizeof cells, "%u", p->execution_count);
        (void)table_row(
            l->table,
            (const char *[]){p->name, units_show_bytes(p->memory_bytes, size, sizeof size), cells,
                             units_show_age(now_wall_ms() - p->created_ms, age, sizeof age),
                             p->context_id, p->lost});
    }
    l->page[0] = '\0';
    stockade_free(all);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"CHECKPOINT", "MEMORY", "CELLS", "AGE", "CONTEXT", "LOST"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    const bool about_one = a->run == create || a->run == restore || a->run == fork_it;
    if (o->context != NULL && !about_one)
        return cli_usage(c, "--context needs the action create, restore or fork", "");
    return EXIT_OK;
}

static bool
find_sandbox(struct acting *a, const struct action *action, int *code)
{
    (void)action;
    a->name = a->o->args_n > 2 ? a->o->args[2] : NULL;
    return cli_find_sandbox(a->s, a->c, a->o->args[1], a->sandbox, code);
}

static const struct action all[] = {
    {"create", 2, 3, "SANDBOX", create},
    {"ls", 2, 2, "SANDBOX", list},
    {"restore", 3, 3, "SANDBOX and a NAME", restore},
    {"fork", 2, 3, "SANDBOX", fork_it},
    {"rm", 3, 3, "SANDBOX and a NAME", remove_it},
    {0},
};

int
cli_checkpoint(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are create SANDBOX [NAME], ls SANDBOX, restore SANDBOX NAME, "
                "fork SANDBOX [NAME] and rm SANDBOX NAME",
        .check = check,
        .prepare = find_sandbox,
    };
    return actions_run(&actions, c, o);
}
