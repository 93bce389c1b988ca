// SPDX-License-Identifier: Apache-2.0
// fork: sandboxes that begin with the files of another one.
#include <stdio.h>

#include "cli.h"
#include "commands.h"
#include "json.h"

static int
print_all(const struct command *c, const struct options *o, const struct stockade_sandboxes *all)
{
    json_t *array = json_array();
    for (size_t i = 0; i < all->n; i++) {
        if (o->json)
            (void)json_array_append_new(array, json_of_sandbox(&all->items[i]));
        else
            (void)puts(all->items[i].id);
    }
    int code = o->json ? json_put_list(json_incref(array)) : cli_flush(c);
    json_decref(array);
    return code;
}

int
cli_check_copy(const struct command *c, const struct options *o)
{
    if (o->copy && o->stop)
        return cli_usage(c, "--copy and --stop exclude each other", "");
    if (!o->copy && (o->copy_max != 0 || o->copy_ms != 0))
        return cli_usage(c, "--copy-max and --copy-time need --copy", "");
    return o->copy_ms > 60000 ? cli_usage(c, "--copy-time is at most 1m", "") : EXIT_OK;
}

int
cli_fork(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_sandboxes *all = NULL;
    char id[65];
    int code = 0;
    struct stockade_fork_options how = STOCKADE_FORK_OPTIONS_INIT;
    how.count = (uint32_t)o->count;
    how.snapshot = o->snapshot;
    how.stop = o->stop;
    how.ttl_ms = o->ttl_ms;
    how.copy = o->copy;
    how.copy_bytes_max = o->copy_max;
    how.copy_ms_max = (uint32_t)o->copy_ms;
    if (o->count > 100)
        return cli_usage(c, "--count is at most 100", "run the command again for more");
    if (cli_check_copy(c, o) != EXIT_OK)
        return EXIT_USAGE;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (!cli_find_sandbox(s, c, o->args[0], id, &code))
        ; // the failure was reported
    else if (stockade_fork(s, id, &how, &all, &e) < 0)
        code = cli_fail(c, o->args[0], &e);
    else
        code = print_all(c, o, all);
    stockade_free(all);
    stockade_close(s);
    return code;
}
