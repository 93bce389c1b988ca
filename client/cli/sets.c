// SPDX-License-Identifier: Apache-2.0
// policy: the named sets of destinations. sets. Needs no broker.
#include <stdio.h>
#include <string.h>

#include "proto/destinations.h"
#include "json.h"
#include "policies.h"

static json_t *
json_of_set(const struct destination_set *s)
{
    json_t *to = json_array();
    for (size_t i = 0; s->to[i] != NULL; i++)
        (void)json_array_append_new(to, json_string(s->to[i]));
    return json_pack("{ss ss so}", "name", s->name, "about", s->about, "destinations", to);
}

static int
put_sets(const struct destination_set *only)
{
    json_t *sets = json_array();
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++)
        if (only == NULL || s == only)
            (void)json_array_append_new(sets, json_of_set(s));
    return json_put(json_pack("{ss so}", "version", destination_sets_version, "sets", sets));
}

static int
print_sets(const struct destination_set *only)
{
    (void)printf("version %s\n", destination_sets_version);
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++) {
        if (only != NULL && s != only)
            continue;
        (void)printf("@%s: %s\n", s->name, s->about);
        for (size_t i = 0; s->to[i] != NULL; i++)
            (void)printf("  %s\n", s->to[i]);
    }
    return EXIT_OK;
}

int
policies_sets(const struct policing *p)
{
    char names[160];
    char why[240];
    const struct destination_set *only = NULL;
    if (p->words_n > 1)
        return cli_usage(p->c, "unexpected argument", "sets [SET]");
    if (p->words_n > 0) {
        const char *name = p->words[0];
        only = destination_set_find(name + (name[0] == '@'));
        (void)snprintf(why, sizeof why, "known are %s", destination_set_names(names, sizeof names));
        if (only == NULL)
            return cli_usage(p->c, "there is no such set", why);
    }
    return p->o->json ? put_sets(only) : print_sets(only);
}
