// SPDX-License-Identifier: Apache-2.0
// snapshot: states of the files of a sandbox. create, ls, show, diff, restore, rm.
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "cli.h"
#include "commands.h"
#include "diff.h"
#include "json.h"
#include "text.h"
#include "units.h"

enum { CELL_MAX = 512 };

static json_t *
json_of_snapshot(const struct stockade_snapshot *p)
{
    json_t *missing = json_array();
    for (size_t i = 0; i < p->not_included_n; i++)
        (void)json_array_append_new(missing, json_string(p->not_included[i]));
    return json_pack("{ss ss so sI sI sI sI sb sI so ss ss}", "sandbox_id", p->sandbox_id, "name",
                     p->name, "create_time", json_of_time(p->created_ms), "bytes",
                     (json_int_t)p->bytes, "inodes", (json_int_t)p->inodes, "total_bytes",
                     (json_int_t)p->total_bytes, "total_inodes", (json_int_t)p->total_inodes,
                     "current", (int)p->current, "operations_ended",
                     (json_int_t)p->operations_ended, "not_included", missing, "kept_id",
                     p->kept_id, "template", p->template_name);
}

static void
print_snapshot(const struct stockade_snapshot *p)
{
    char text[CELL_MAX], size[32], total[32], age[16];
    (void)printf("name          %s\n", text_clean(p->name, text, sizeof text));
    (void)printf("sandbox       %s\n", text_clean(p->sandbox_id, text, sizeof text));
    (void)printf("age           %s\n",
                 units_show_age(now_wall_ms() - p->created_ms, age, sizeof age));
    (void)printf("size          %s in %llu inodes, with all below it %s in %llu\n",
                 units_show_bytes(p->bytes, size, sizeof size), (unsigned long long)p->inodes,
                 units_show_bytes(p->total_bytes, total, sizeof total),
                 (unsigned long long)p->total_inodes);
    if (p->kept_id[0] != '\0')
        (void)printf("kept as       %s, of template %s\n",
                     text_clean(p->kept_id, text, sizeof text), p->template_name);
    (void)printf("current       %s\n", p->current ? "yes" : "no");
    for (size_t i = 0; i < p->not_included_n; i++)
        (void)printf("not included  %s\n", text_clean(p->not_included[i], text, sizeof text));
}

// ---- the actions

struct acting {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *sandbox; // its id; "": about kept snapshots
    const char *name;    // of the snapshot, NULL: none was given
    const char *to;      // of the second one
};

// The failure of a call; of one about the sandbox itself with its words.
static int
fail(const struct acting *a, struct stockade_error *e)
{
    if (strcmp(e->subject, "name") == 0)
        e->subject[0] = '\0'; // an argument, not an option
    return a->sandbox[0] != '\0' && e->code == STOCKADE_NOT_FOUND &&
                   strcmp(e->reason, "SNAPSHOT_UNKNOWN") != 0
               ? cli_fail_sandbox(a->s, a->c, a->o->args[1], e)
               : cli_fail(a->c, a->name != NULL ? a->name : "", e);
}

static void
warn_of_ended(const struct acting *a, const struct stockade_snapshot *p)
{
    if (p->operations_ended > 0 && !a->o->json)
        (void)fprintf(stderr, "stockade: %u operation%s on files of the sandbox %s cut off\n",
                      p->operations_ended, p->operations_ended == 1 ? "" : "s",
                      p->operations_ended == 1 ? "was" : "were");
}

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_snapshot *p = NULL;
    if ((a->o->keep ? stockade_snapshot_keep : stockade_snapshot_create)(a->s, a->sandbox, a->name,
                                                                         a->o->stop, &p, &e) < 0)
        return fail(a, &e);
    warn_of_ended(a, p);
    int code = a->o->json ? json_put(json_of_snapshot(p)) : EXIT_OK;
    if (!a->o->json) {
        (void)puts(p->name);
        code = cli_flush(a->c);
    }
    stockade_free(p);
    return code;
}

static int
show(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_snapshot *p = NULL;
    if (stockade_snapshot_get(a->s, a->sandbox, a->name, &p, &e) < 0)
        return fail(a, &e);
    int code = EXIT_OK;
    if (a->o->json)
        code = json_put(json_of_snapshot(p));
    else
        print_snapshot(p);
    stockade_free(p);
    return code;
}

static int
restore(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_snapshot *p = NULL;
    if (stockade_snapshot_restore(a->s, a->sandbox, a->name, a->o->stop, &p, &e) < 0)
        return fail(a, &e);
    warn_of_ended(a, p);
    int code = a->o->json ? json_put(json_of_snapshot(p)) : EXIT_OK;
    stockade_free(p);
    return code;
}

static int
remove_it(const struct acting *a)
{
    struct stockade_error e;
    return stockade_snapshot_delete(a->s, a->sandbox, a->name, &e) < 0 ? fail(a, &e) : EXIT_OK;
}

static bool
add_kept(struct table *t, const struct stockade_snapshot *p)
{
    char total[32], age[16];
    return table_row(
        t, (const char *[]){p->name, units_show_bytes(p->total_bytes, total, sizeof total),
                            units_show_age(now_wall_ms() - p->created_ms, age, sizeof age),
                            p->template_name, p->kept_id});
}

static bool
add_row(struct table *t, const struct stockade_snapshot *p)
{
    char size[32], total[32], age[16];
    return table_row(
        t, (const char *[]){p->name, units_show_bytes(p->bytes, size, sizeof size),
                            units_show_bytes(p->total_bytes, total, sizeof total),
                            units_show_age(now_wall_ms() - p->created_ms, age, sizeof age),
                            p->current ? "*" : ""});
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"SNAPSHOT", "SIZE", "IN ALL", "AGE", "CURRENT"};
    static const char *const kept_head[] = {"SNAPSHOT", "IN ALL", "AGE", "TEMPLATE", "KEPT AS"};
    struct stockade_error e;
    const bool kept = a->sandbox[0] == '\0';
    struct table *t = table_new(kept ? kept_head : head, sizeof head / sizeof head[0]);
    json_t *array = json_array();
    char page[33] = "";
    int code = EXIT_OK;
    do {
        const struct stockade_snapshots *all = NULL;
        if (stockade_snapshot_list(a->s, a->sandbox, page, &all, &e) < 0) {
            code = fail(a, &e);
            break;
        }
        for (size_t i = 0; i < all->n && t != NULL; i++) {
            (void)json_array_append_new(array, json_of_snapshot(&all->items[i]));
            (void)(kept ? add_kept : add_row)(t, &all->items[i]);
        }
        (void)snprintf(page, sizeof page, "%s", all->next_page);
        stockade_free(all);
    } while (page[0] != '\0');
    if (code == EXIT_OK && a->o->json)
        code = json_put_list(json_incref(array));
    else if (code == EXIT_OK && t != NULL)
        table_print(t, stdout);
    json_decref(array);
    table_free(t);
    return code;
}

static int
diff(const struct acting *a)
{
    return diff_show(a->c, a->o, a->s, a->sandbox, a->name, a->to);
}

struct action {
    const char *name;
    int args_min, args_max; // with its own name
    bool may_stop;
    bool of_kept; // with one argument less it is about kept snapshots
    int (*run)(const struct acting *a);
};

static const struct action actions[] = {
    {"create", 2, 3, true, false, create},   {"ls", 1, 2, false, true, list},
    {"show", 2, 3, false, true, show},       {"diff", 3, 4, false, false, diff},
    {"restore", 3, 3, true, false, restore}, {"rm", 2, 3, false, true, remove_it},
};

static int
wrong_line(const struct command *c, const struct options *o, const struct action *a)
{
    char why[128];
    if (a == NULL)
        (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    else if (o->args_n < a->args_min)
        (void)snprintf(why, sizeof why, "%s needs a %s", a->name,
                       a->of_kept        ? "NAME"
                       : a->args_min > 2 ? "SANDBOX and a NAME"
                                         : "SANDBOX");
    else
        (void)snprintf(why, sizeof why, "unexpected argument '%.60s'", o->args[a->args_max]);
    return cli_usage(c, why,
                     "the actions are create SANDBOX [NAME], ls [SANDBOX], show [SANDBOX] NAME, "
                     "diff SANDBOX NAME [NAME], restore SANDBOX NAME and rm [SANDBOX] NAME");
}

int
cli_snapshot(const struct command *c, const struct options *o)
{
    const struct action *a = NULL;
    int code = EXIT_OK;
    char id[65];
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, o->args[0]) == 0)
            a = &actions[i];
    if (a == NULL || o->args_n < a->args_min || o->args_n > a->args_max)
        return wrong_line(c, o, a);
    if (o->stop && !a->may_stop)
        return cli_usage(c, "--stop needs the action create or restore", "");
    if ((o->patch || o->path != NULL) && a->run != diff)
        return cli_usage(c, "--patch and --path need the action diff", "");
    if (o->patch && o->json)
        return cli_usage(c, "--patch prints text, not JSON", "");
    if (o->keep && a->run != create)
        return cli_usage(c, "--keep needs the action create", "");
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    const bool kept = a->of_kept && o->args_n < a->args_max;
    const int at = kept ? 1 : 2; // of the name
    const struct acting acting = {
        c, o, s, id, o->args_n > at ? o->args[at] : NULL, o->args_n > 3 ? o->args[3] : NULL};
    id[0] = '\0';
    if (kept || cli_find_sandbox(s, c, o->args[1], id, &code))
        code = a->run(&acting);
    stockade_close(s);
    return code;
}
