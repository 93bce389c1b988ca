// SPDX-License-Identifier: Apache-2.0
// volume: folders with a quota that outlive sandboxes. create, ls, show, rm.
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"
#include "units.h"

enum { CELL_MAX = 512 };

static json_t *
json_of_volume(const struct stockade_volume *v)
{
    return json_pack("{ss sI sI so sI}", "name", v->name, "bytes", (json_int_t)v->bytes, "inodes",
                     (json_int_t)v->inodes, "create_time", json_of_time(v->created_ms), "sandboxes",
                     (json_int_t)v->sandboxes);
}

static void
print_volume(const struct stockade_volume *v)
{
    char text[CELL_MAX], size[32], age[16];
    (void)printf("name       %s\n", text_clean(v->name, text, sizeof text));
    (void)printf("size       %s in %llu inodes\n", units_show_bytes(v->bytes, size, sizeof size),
                 (unsigned long long)v->inodes);
    (void)printf("age        %s\n", units_show_age(now_wall_ms() - v->created_ms, age, sizeof age));
    (void)printf("sandboxes  %u\n", v->sandboxes);
}

// ---- the actions

struct acting {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *name; // NULL: none was given
};

static int
fail(const struct acting *a, struct stockade_error *e)
{
    return cli_fail(a->c, a->name != NULL ? a->name : "", e);
}

static int
create(const struct acting *a)
{
    struct stockade_error e;
    const struct stockade_volume *v = NULL;
    if (stockade_volume_create(a->s, a->name, a->o->size, a->o->limits.inodes, &v, &e) < 0)
        return fail(a, &e);
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
        return fail(a, &e);
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
    return stockade_volume_delete(a->s, a->name, &e) < 0 ? fail(a, &e) : EXIT_OK;
}

static bool
add_row(struct table *t, const struct stockade_volume *v)
{
    char size[32], inodes[24], sandboxes[16], age[16];
    (void)snprintf(inodes, sizeof inodes, "%llu", (unsigned long long)v->inodes);
    (void)snprintf(sandboxes, sizeof sandboxes, "%u", v->sandboxes);
    return table_row(
        t, (const char *[]){v->name, units_show_bytes(v->bytes, size, sizeof size), inodes,
                            units_show_age(now_wall_ms() - v->created_ms, age, sizeof age),
                            sandboxes});
}

static int
list(const struct acting *a)
{
    static const char *const head[] = {"VOLUME", "SIZE", "INODES", "AGE", "SANDBOXES"};
    struct stockade_error e;
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    json_t *array = json_array();
    char page[33] = "";
    int code = EXIT_OK;
    do {
        const struct stockade_volumes *all = NULL;
        if (stockade_volume_list(a->s, page, &all, &e) < 0) {
            code = fail(a, &e);
            break;
        }
        for (size_t i = 0; i < all->n && t != NULL; i++) {
            (void)json_array_append_new(array, json_of_volume(&all->items[i]));
            (void)add_row(t, &all->items[i]);
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

struct action {
    const char *name;
    int args_n; // with its own name
    bool has_size;
    int (*run)(const struct acting *a);
};

static const struct action actions[] = {
    {"create", 2, true, create},
    {"ls", 1, false, list},
    {"show", 2, false, show},
    {"rm", 2, false, remove_it},
};

static int
wrong_line(const struct command *c, const struct options *o, const struct action *a)
{
    char why[128];
    if (a == NULL)
        (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    else if (o->args_n < a->args_n)
        (void)snprintf(why, sizeof why, "%s needs a NAME", a->name);
    else
        (void)snprintf(why, sizeof why, "unexpected argument '%.60s'", o->args[a->args_n]);
    return cli_usage(c, why, "the actions are create NAME, ls, show NAME and rm NAME");
}

int
cli_volume(const struct command *c, const struct options *o)
{
    const struct action *a = NULL;
    int code = EXIT_OK;
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, o->args[0]) == 0)
            a = &actions[i];
    if (a == NULL || o->args_n != a->args_n)
        return wrong_line(c, o, a);
    if ((o->size != 0 || o->limits.inodes != 0) && !a->has_size)
        return cli_usage(c, "--size and --inodes need the action create", "");
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    const struct acting acting = {c, o, s, o->args_n > 1 ? o->args[1] : NULL};
    code = a->run(&acting);
    if (code == EXIT_OK)
        code = cli_flush(c);
    stockade_close(s);
    return code;
}
