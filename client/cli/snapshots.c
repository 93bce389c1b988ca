// SPDX-License-Identifier: Apache-2.0
// snapshot: states of the files of a sandbox. create, ls, show, diff, restore, rm.
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "actions.h"
#include "commands.h"
#include "diff.h"
#include "json.h"
#include "units.h"

enum { CELL_MAX = 512 };

static json_t *
json_of_snapshot(const struct stockade_snapshot *p)
{
    json_t *missing = json_array();
    for (size_t i = 0; i < p->not_included_n; i++)
        (void)json_array_append_new(missing, json_string(p->not_included[i]));
    return json_pack(
        "{ss ss so sI sI sI sI sb sI so ss ss sI sI sb}", "sandbox_id", p->sandbox_id, "name",
        p->name, "create_time", json_of_time(p->created_ms), "bytes", (json_int_t)p->bytes,
        "inodes", (json_int_t)p->inodes, "total_bytes", (json_int_t)p->total_bytes, "total_inodes",
        (json_int_t)p->total_inodes, "current", (int)p->current, "operations_ended",
        (json_int_t)p->operations_ended, "not_included", missing, "kept_id", p->kept_id, "template",
        p->template_name, "copied_bytes", (json_int_t)p->copied_bytes, "frozen_us",
        (json_int_t)p->frozen_us, "unreadable", (int)p->unreadable);
}

static void
print_snapshot(const struct stockade_snapshot *p)
{
    char text[CELL_MAX], size[32], total[32], age[16];
    (void)printf("name          %s\n", text_clean(p->name, text, sizeof text));
    (void)printf("sandbox       %s\n", text_clean(p->sandbox_id, text, sizeof text));
    (void)printf("age           %s\n",
                 units_show_age(now_wall_ms() - p->created_ms, age, sizeof age));
    (void)printf("size          %s in %llu %s, with all below it %s in %llu\n",
                 units_show_bytes(p->bytes, size, sizeof size), (unsigned long long)p->inodes,
                 plural(p->inodes, "inode", "inodes"),
                 units_show_bytes(p->total_bytes, total, sizeof total),
                 (unsigned long long)p->total_inodes);
    if (p->kept_id[0] != '\0')
        (void)printf("kept as       %s, of template %s\n",
                     text_clean(p->kept_id, text, sizeof text), p->template_name);
    if (p->unreadable)
        (void)printf("unreadable    its data key was forgotten; delete it\n");
    (void)printf("current       %s\n", p->current ? "yes" : "no");
    if (p->copied_bytes > 0)
        (void)printf("copied        %s, the sandbox was frozen for %.1f ms\n",
                     units_show_bytes(p->copied_bytes, size, sizeof size),
                     (double)p->frozen_us / 1000);
    for (size_t i = 0; i < p->not_included_n; i++)
        (void)printf("not included  %s\n", text_clean(p->not_included[i], text, sizeof text));
}

// ---- the actions

// The failure of a call; of one about the sandbox itself with its words.
static int
fail(const struct acting *a, struct stockade_error *e)
{
    return a->sandbox[0] != '\0' && e->code == STOCKADE_NOT_FOUND &&
                   strcmp(e->reason, "SNAPSHOT_UNKNOWN") != 0
               ? cli_fail_sandbox(a->s, a->c, a->o->args[1], e)
               : actions_fail(a, e, "name");
}

static void
warn_of_ended(const struct acting *a, const struct stockade_snapshot *p)
{
    if (p->operations_ended > 0 && !a->o->json)
        (void)fprintf(stderr, "stockade: %u %s cut off\n", p->operations_ended,
                      plural(p->operations_ended, "operation on files of the sandbox was",
                             "operations on files of the sandbox were"));
}

static int
make(const struct acting *a, const struct stockade_snapshot **p, struct stockade_error *e)
{
    struct stockade_copy_options how = STOCKADE_COPY_OPTIONS_INIT;
    how.name = a->name;
    how.bytes_max = a->o->copy_max;
    how.ms_max = (uint32_t)a->o->copy_ms;
    how.keep = a->o->keep;
    if (a->o->copy)
        return stockade_snapshot_copy(a->s, a->sandbox, &how, p, e);
    return (a->o->keep ? stockade_snapshot_keep
                       : stockade_snapshot_create)(a->s, a->sandbox, a->name, a->o->stop, p, e);
}

static void
say_cost(const struct acting *a, const struct stockade_snapshot *p)
{
    char size[32];
    if (p->copied_bytes > 0 && !a->o->json)
        (void)fprintf(stderr, "stockade: %s copied, the sandbox was frozen for %.1f ms\n",
                      units_show_bytes(p->copied_bytes, size, sizeof size),
                      (double)p->frozen_us / 1000);
}

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_snapshot *p = NULL;
    if (make(a, &p, &e) < 0)
        return fail(a, &e);
    warn_of_ended(a, p);
    say_cost(a, p);
    int code = a->o->json ? json_put(json_of_snapshot(p)) : EXIT_OK;
    if (!a->o->json)
        (void)puts(p->name);
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
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    const struct stockade_snapshots *all = NULL;
    if (stockade_snapshot_list(a->s, a->sandbox, l->page, &all, &e) < 0)
        return fail(a, &e);
    for (size_t i = 0; i < all->n && l->table != NULL; i++) {
        (void)json_array_append_new(l->array, json_of_snapshot(&all->items[i]));
        (void)(a->sandbox[0] == '\0' ? add_kept : add_row)(l->table, &all->items[i]);
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page);
    stockade_free(all);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"SNAPSHOT", "SIZE", "IN ALL", "AGE", "CURRENT"};
    static const char *const kept_head[] = {"SNAPSHOT", "IN ALL", "AGE", "TEMPLATE", "KEPT AS"};
    return actions_list(a, a->sandbox[0] == '\0' ? kept_head : head, sizeof head / sizeof head[0],
                        list_page);
}

static int
diff(const struct acting *a)
{
    return diff_show(a->c, a->o, a->s, a->sandbox, a->name, a->to);
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    if (o->stop && a->run != create && a->run != restore)
        return cli_usage(c, "--stop needs the action create or restore", "");
    if ((o->patch || o->path != NULL) && a->run != diff)
        return cli_usage(c, "--patch and --path need the action diff", "");
    if (o->patch && o->json)
        return cli_usage(c, "--patch prints text, not JSON", "");
    if (o->keep && a->run != create)
        return cli_usage(c, "--keep needs the action create", "");
    if (o->copy && a->run != create)
        return cli_usage(c, "--copy needs the action create", "");
    return cli_check_copy(c, o);
}

// Without the sandbox it is about kept snapshots, where an action allows that.
static bool
find_sandbox(struct acting *a, const struct action *action, int *code)
{
    const bool may_lack = action->run == list || action->run == show || action->run == remove_it;
    const bool kept = may_lack && a->o->args_n < action->args_max;
    const int at = kept ? 1 : 2; // of the name
    a->name = a->o->args_n > at ? a->o->args[at] : NULL;
    a->to = a->o->args_n > 3 ? a->o->args[3] : NULL;
    return kept || cli_find_sandbox(a->s, a->c, a->o->args[1], a->sandbox, code);
}

static const struct action all[] = {
    {"create", 2, 3, "SANDBOX", create},
    {"ls", 1, 2, NULL, list},
    {"show", 2, 3, "NAME", show},
    {"diff", 3, 4, "SANDBOX and a NAME", diff},
    {"restore", 3, 3, "SANDBOX and a NAME", restore},
    {"rm", 2, 3, "NAME", remove_it},
    {0},
};

int
cli_snapshot(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are create SANDBOX [NAME], ls [SANDBOX], show [SANDBOX] NAME, "
                "diff SANDBOX NAME [NAME], restore SANDBOX NAME and rm [SANDBOX] NAME",
        .check = check,
        .prepare = find_sandbox,
    };
    return actions_run(&actions, c, o);
}
