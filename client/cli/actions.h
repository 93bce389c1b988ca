// SPDX-License-Identifier: Apache-2.0
// Commands whose first argument is an action, such as `stockade volume create`: a table of actions, and lists that the broker
// returns in pages.
#pragma once

#include <jansson.h>

#include "cli.h"
#include "text.h"

// An action that is being carried out.
struct acting {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    const char *name; // what it is about; NULL: none was given
    char sandbox[65]; // snapshot: the id; "": about kept snapshots
    const char *to;   // snapshot: the second name, or NULL
};

struct action {
    const char *name;
    int args_min, args_max;             // with its own name
    const char *needs;                  // "NAME": the arguments that it cannot do without
    int (*run)(const struct acting *a); // returns the exit code
};

struct actions {
    const struct action *all; // terminated by {0}
    const char *hint;         // "the actions are ..."
    // Options that this action cannot have or lacks: returns the exit code of cli_usage(), or EXIT_OK. NULL: none.
    int (*check)(const struct command *c, const struct options *o, const struct action *action);
    // Fills name, sandbox and to; false: the failure was reported. NULL: name is the argument after the action.
    bool (*prepare)(struct acting *a, const struct action *action, int *code);
};

// Finds the action that the line names, connects to the broker and carries it out. Returns the exit code.
int actions_run(const struct actions *actions, const struct command *c, const struct options *o);

// Reports the failure of a call. argument: the field that the line gives as an argument and not as an option, so that the
// text does not name an option; NULL: none. Returns the exit code.
int actions_fail(const struct acting *a, const struct stockade_error *e, const char *argument);

// The same where there is no memory.
int actions_no_memory(const struct acting *a);

// A list, filled a page at a time.
struct listing {
    struct table *table;
    json_t *array;
    char page[33]; // the token of the next page; "": there is none
};

// Requests the page and adds its elements; writes listing->page. Returns the exit code, after reporting a failure.
typedef int listing_page(const struct acting *a, struct listing *l);

// Requests all pages, and prints them as a table with this head, or as JSON. Returns the exit code.
int actions_list(const struct acting *a, const char *const *head, size_t columns,
                 listing_page *page);
