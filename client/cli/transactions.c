// SPDX-License-Identifier: Apache-2.0
// transaction: changes to files that take effect together, or not at all. begin, ls, show, diff, commit, discard. And what `exec
// --transaction` says after its job.
#include "transactions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "actions.h"
#include "commands.h"
#include "diff.h"
#include "units.h"

enum { CELL_MAX = 600 };

static const char *
name_of_state(uint32_t state)
{
    static const char *const names[] = {"UNKNOWN", "OPEN", "COMMITTED", "DISCARDED"};
    return names[state < sizeof names / sizeof names[0] ? state : 0];
}

static const char *
name_of_policy(uint32_t policy)
{
    static const char *const names[] = {"NONE", "ASK", "ON_SUCCESS"};
    return names[policy < sizeof names / sizeof names[0] ? policy : 0];
}

static json_t *
json_of_transaction(const struct stockade_transaction *t)
{
    json_t *conflicts = json_array();
    for (size_t i = 0; i < t->conflicts_n; i++) {
        json_t *path = json_object();
        (void)json_set_bytes(path, "path", t->conflicts[i].bytes, t->conflicts[i].n);
        (void)json_array_append_new(conflicts, path);
    }
    return json_pack("{ss ss so ss ss ss so}", "id", t->id, "sandbox_id", t->sandbox_id,
                     "create_time", json_of_time(t->created_ms), "policy",
                     name_of_policy(t->policy), "state", name_of_state(t->state), "refused",
                     t->refused, "conflicts", conflicts);
}

static void
print_transaction(const struct stockade_transaction *t)
{
    char text[CELL_MAX], age[16];
    (void)printf("id        %s\n", text_clean(t->id, text, sizeof text));
    (void)printf("sandbox   %s\n", text_clean(t->sandbox_id, text, sizeof text));
    (void)printf("age       %s\n", units_show_age(now_wall_ms() - t->created_ms, age, sizeof age));
    (void)printf("state     %s\n", name_of_state(t->state));
    if (t->refused[0] != '\0')
        (void)printf("refused   %s\n", text_clean(t->refused, text, sizeof text));
    for (size_t i = 0; i < t->conflicts_n; i++)
        (void)printf("conflict  %s\n", text_clean(t->conflicts[i].bytes, text, sizeof text));
}

// ---- the actions

static int
begin(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_transaction *t = NULL;
    if (stockade_transaction_begin(a->s, a->sandbox, a->o->stop, a->o->ttl_ms, &t, &e) < 0)
        return actions_fail(a, &e, "id");
    int code = a->o->json ? json_put(json_of_transaction(t)) : EXIT_OK;
    if (!a->o->json) {
        (void)puts(t->id);
        code = cli_flush(a->c);
    }
    stockade_free(t);
    return code;
}

static int
show(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_transaction *t = NULL;
    if (stockade_transaction_get(a->s, a->name, &t, &e) < 0)
        return actions_fail(a, &e, "id");
    int code = EXIT_OK;
    if (a->o->json)
        code = json_put(json_of_transaction(t));
    else
        print_transaction(t);
    stockade_free(t);
    return code;
}

static int
diff(const struct acting *a)
{
    return diff_show(a->c, a->o, a->s, a->name, "begin", NULL);
}

static int
ended(const struct acting *a, const struct stockade_transaction *t)
{
    int code = a->o->json ? json_put(json_of_transaction(t)) : EXIT_OK;
    stockade_free(t);
    return code;
}

static int
commit(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_transaction *t = NULL;
    return stockade_transaction_commit(a->s, a->name, a->o->stop, &t, &e) < 0
               ? actions_fail(a, &e, "id")
               : ended(a, t);
}

static int
discard(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_transaction *t = NULL;
    return stockade_transaction_discard(a->s, a->name, &t, &e) < 0 ? actions_fail(a, &e, "id")
                                                                   : ended(a, t);
}

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    const struct stockade_transactions *all = NULL;
    if (stockade_transaction_list(a->s, a->sandbox, l->page, &all, &e) < 0)
        return actions_fail(a, &e, "id");
    for (size_t i = 0; i < all->n && l->table != NULL; i++) {
        const struct stockade_transaction *t = &all->items[i];
        char age[16];
        (void)json_array_append_new(l->array, json_of_transaction(t));
        (void)table_row(l->table, (const char *[]){t->id, t->sandbox_id,
                                                   units_show_age(now_wall_ms() - t->created_ms,
                                                                  age, sizeof age),
                                                   name_of_state(t->state)});
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page);
    stockade_free(all);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"TRANSACTION", "SANDBOX", "AGE", "STATE"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    if (o->stop && a->run != begin && a->run != commit)
        return cli_usage(c, "--stop needs the action begin or commit", "");
    if (o->ttl_ms != 0 && a->run != begin)
        return cli_usage(c, "--ttl needs the action begin", "");
    if ((o->patch || o->path != NULL) && a->run != diff)
        return cli_usage(c, "--patch and --path need the action diff", "");
    if (o->patch && o->json)
        return cli_usage(c, "--patch prints text, not JSON", "");
    return EXIT_OK;
}

static bool
find_sandbox(struct acting *a, const struct action *action, int *code)
{
    const bool of_sandbox = action->run == begin || action->run == list;
    if (!of_sandbox || a->o->args_n < 2) {
        a->name = a->o->args_n > 1 ? a->o->args[1] : NULL;
        return true;
    }
    return cli_find_sandbox(a->s, a->c, a->o->args[1], a->sandbox, code);
}

static const struct action all[] = {
    {"begin", 2, 2, "SANDBOX", begin},
    {"ls", 1, 2, NULL, list},
    {"show", 2, 2, "TRANSACTION", show},
    {"diff", 2, 2, "TRANSACTION", diff},
    {"commit", 2, 2, "TRANSACTION", commit},
    {"discard", 2, 2, "TRANSACTION", discard},
    {0},
};

int
cli_transaction(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are begin SANDBOX, ls [SANDBOX], show, diff, commit and discard "
                "TRANSACTION",
        .check = check,
        .prepare = find_sandbox,
    };
    return actions_run(&actions, c, o);
}

// ---- after exec

json_t *
transaction_json(const struct stockade_outcome_of_transaction *t)
{
    json_t *changes = json_array();
    json_t *j = json_of_transaction(&t->transaction);
    for (size_t i = 0; i < t->changes_n; i++)
        (void)json_array_append_new(changes, diff_json(&t->changes[i]));
    (void)json_object_set_new(j, "changes", changes);
    (void)json_object_set_new(j, "more", json_boolean(t->more));
    (void)json_object_set_new(j, "unknown", json_string(t->unknown));
    return j;
}

void
transaction_report(const struct stockade_outcome_of_transaction *t)
{
    char text[CELL_MAX];
    for (size_t i = 0; i < t->changes_n; i++)
        diff_print(stderr, &t->changes[i]);
    if (t->unknown[0] != '\0')
        (void)fprintf(stderr, "stockade exec: what it changed is not known: %s\n",
                      text_clean(t->unknown, text, sizeof text));
    if (t->more)
        (void)fprintf(stderr, "and more; 'stockade transaction diff %s' lists all\n",
                      t->transaction.id);
    if (t->transaction.refused[0] != '\0')
        (void)fprintf(stderr, "stockade exec: %s\n",
                      text_clean(t->transaction.refused, text, sizeof text));
    if (t->transaction.state != STOCKADE_TRANSACTION_OPEN)
        (void)fprintf(stderr, "stockade exec: transaction %s was %s\n", t->transaction.id,
                      t->transaction.state == STOCKADE_TRANSACTION_COMMITTED ? "committed"
                                                                             : "discarded");
    else
        (void)fprintf(stderr,
                      "stockade exec: transaction %s is open\n"
                      "  hint: stockade transaction commit %s, or discard instead of commit\n",
                      t->transaction.id, t->transaction.id);
}
