// SPDX-License-Identifier: Apache-2.0
// volume: folders with a quota that outlive sandboxes. create, ls, show, rm.
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "actions.h"
#include "commands.h"
#include "json.h"
#include "units.h"

enum { CELL_MAX = 512 };

static json_t *
json_of_volume(const struct stockade_volume *v)
{
    json_t *use = v->measured ? json_pack("{sI sI}", "bytes", (json_int_t)v->used_bytes, "inodes",
                                          (json_int_t)v->used_inodes)
                              : json_null();
    return json_pack("{ss sI sI so so sI}", "name", v->name, "bytes", (json_int_t)v->bytes,
                     "inodes", (json_int_t)v->inodes, "use", use, "create_time",
                     json_of_time(v->created_ms), "sandboxes", (json_int_t)v->sandboxes);
}

static void
print_volume(const struct stockade_volume *v)
{
    char text[CELL_MAX], size[32], age[16];
    (void)printf("name       %s\n", text_clean(v->name, text, sizeof text));
    (void)printf("size       %s in %llu %s\n", units_show_bytes(v->bytes, size, sizeof size),
                 (unsigned long long)v->inodes, plural(v->inodes, "inode", "inodes"));
    if (v->measured)
        (void)printf("used       %s in %llu %s\n",
                     units_show_bytes(v->used_bytes, size, sizeof size),
                     (unsigned long long)v->used_inodes, plural(v->used_inodes, "inode", "inodes"));
    (void)printf("age        %s\n", units_show_age(now_wall_ms() - v->created_ms, age, sizeof age));
    (void)printf("sandboxes  %u\n", v->sandboxes);
}

// ---- the actions

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_volume *v = NULL;
    if (stockade_volume_create(a->s, a->name, a->o->size, a->o->limits.inodes, &v, &e) < 0)
        return actions_fail(a, &e, "name");
    int code = a->o->json ? json_put(json_of_volume(v)) : EXIT_OK;
    stockade_free(v);
    return code;
}

static int
show(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_volume *v = NULL;
    if (stockade_volume_get(a->s, a->name, &v, &e) < 0)
        return actions_fail(a, &e, "name");
    int code = EXIT_OK;
    if (a->o->json)
        code = json_put(json_of_volume(v));
    else
        print_volume(v);
    stockade_free(v);
    return code;
}

static int
remove_it(const struct acting *a)
{
    struct stockade_error e;
    return stockade_volume_delete(a->s, a->name, a->o->force, &e) < 0 ? actions_fail(a, &e, "name")
                                                                      : EXIT_OK;
}

static bool
add_row(struct table *t, const struct stockade_volume *v)
{
    char size[32], used[32], inodes[24], sandboxes[16], age[16];
    (void)snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)v->inodes);
    (void)snprintf(sandboxes, sizeof sandboxes, "%u", v->sandboxes);
    return table_row(
        t, (const char *[]){v->name, units_show_bytes(v->bytes, size, sizeof size),
                            v->measured ? units_show_bytes(v->used_bytes, used, sizeof used) : "-",
                            inodes, units_show_age(now_wall_ms() - v->created_ms, age, sizeof age),
                            sandboxes});
}

static int
list_page(const struct acting *a, struct listing *l)
{
    struct stockade_error e;
    const struct stockade_volumes *all = NULL;
    if (stockade_volume_list(a->s, l->page, &all, &e) < 0)
        return actions_fail(a, &e, "name");
    for (size_t i = 0; i < all->n && l->table != NULL; i++) {
        (void)json_array_append_new(l->array, json_of_volume(&all->items[i]));
        (void)add_row(l->table, &all->items[i]);
    }
    (void)snprintf(l->page, sizeof l->page, "%s", all->next_page);
    stockade_free(all);
    return EXIT_OK;
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"VOLUME", "SIZE", "USED", "INODES", "AGE", "SANDBOXES"};
    return actions_list(a, head, sizeof head / sizeof head[0], list_page);
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    if ((o->size != 0 || o->limits.inodes != 0) && a->run != create)
        return cli_usage(c, "--size and --inodes need the action create", "");
    if (o->force && a->run != remove_it)
        return cli_usage(c, "--force needs the action rm", "");
    return EXIT_OK;
}

static const struct action all[] = {
    {"create", 2, 2, "NAME", create},
    {"ls", 1, 1, NULL, list},
    {"show", 2, 2, "NAME", show},
    {"rm", 2, 2, "NAME", remove_it},
    {0},
};

int
cli_volume(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint = "the actions are create NAME, ls, show NAME and rm NAME",
        .check = check,
    };
    return actions_run(&actions, c, o);
}
