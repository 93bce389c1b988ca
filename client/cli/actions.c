// SPDX-License-Identifier: Apache-2.0
// See actions.h.
#include "actions.h"

#include <stdio.h>
#include <string.h>

#include "json.h"

static const struct action *
find(const struct actions *actions, const char *name)
{
    for (const struct action *a = actions->all; a->name != NULL; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

static int
wrong_line(const struct actions *actions, const struct command *c, const struct options *o,
           const struct action *a)
{
    char why[128];
    if (a == NULL)
        (void)snprintf(why, sizeof why, "there is no action '%.60s'", o->args[0]);
    else if (o->args_n < a->args_min)
        (void)snprintf(why, sizeof why, "%s needs a %s", a->name, a->needs);
    else
        (void)snprintf(why, sizeof why, "unexpected argument '%.60s'", o->args[a->args_max]);
    return cli_usage(c, why, actions->hint);
}

static bool
prepare(const struct actions *actions, struct acting *acting, const struct action *a, int *code)
{
    if (actions->prepare != NULL)
        return actions->prepare(acting, a, code);
    acting->name = acting->o->args_n > 1 ? acting->o->args[1] : NULL;
    return true;
}

int
actions_run(const struct actions *actions, const struct command *c, const struct options *o)
{
    const struct action *a = find(actions, o->args[0]);
    if (a == NULL || o->args_n < a->args_min || o->args_n > a->args_max)
        return wrong_line(actions, c, o, a);
    int code = actions->check != NULL ? actions->check(c, o, a) : EXIT_OK;
    if (code != EXIT_OK)
        return code;
    struct acting acting = {.c = c, .o = o, .s = cli_open(c, o, &code)};
    if (acting.s == NULL)
        return code;
    if (prepare(actions, &acting, a, &code))
        code = a->run(&acting);
    if (code == EXIT_OK)
        code = cli_flush(c);
    stockade_close(acting.s);
    return code;
}

int
actions_list(const struct acting *a, const char *const *head, size_t columns, listing_page *page)
{
    struct listing l = {.table = table_new(head, columns), .array = json_array()};
    int code = EXIT_OK;
    do
        code = page(a, &l);
    while (code == EXIT_OK && l.page[0] != '\0');
    return json_end_listing(a->o, l.table, l.array, code);
}

int
actions_fail(const struct acting *a, const struct stockade_error *e, const char *argument)
{
    const bool operand = argument != NULL && strcmp(e->subject, argument) == 0;
    return (operand ? cli_fail_operand : cli_fail)(a->c, a->name != NULL ? a->name : "", e);
}

int
actions_no_memory(const struct acting *a)
{
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "out of memory"};
    return cli_fail(a->c, a->name != NULL ? a->name : "", &e);
}
