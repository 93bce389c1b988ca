// SPDX-License-Identifier: Apache-2.0
// From the text on the command line to the id for the broker (cli.h).
#include <stdio.h>
#include <string.h>

#include "proto/words.h"
#include "cli.h"
#include "pages.h"

enum { ID_HEX = 32, PREFIX_MIN = 6, NODE_MAX = CLI_ID_SIZE - 1 - ID_HEX - 1 };

// The one id that begins with this text, over all pages.
struct match {
    const char *typed;
    char id[CLI_ID_SIZE];
    unsigned n;
    bool named;    // a sandbox with exactly this name wins
    char near[65]; // the name that is nearest to it, or ""
    unsigned near_distance;
};

enum { NEAR_MAX = 2 };

// Where the hex digits of an id begin: behind the node name and its '-', if there is one.
static const char *
digits_of(const char *id)
{
    size_t node = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789");
    return node > 0 && node <= NODE_MAX && id[node] == '-' ? id + node + 1 : id;
}

static bool
is_prefix(const char *typed)
{
    const char *digits = digits_of(typed);
    size_t n = strlen(digits);
    return n >= PREFIX_MIN && n <= ID_HEX && strspn(digits, "0123456789abcdef") == n;
}

static bool
is_whole(const char *typed)
{
    return is_prefix(typed) && strlen(digits_of(typed)) == ID_HEX;
}

const char *
cli_short_id(const char *id, char out[CLI_SHORT_ID_SIZE])
{
    (void)snprintf(out, CLI_SHORT_ID_SIZE, "%.*s", CLI_SHORT_ID_SIZE - 1, digits_of(id));
    return out;
}

static void
offer(struct match *m, const char *id)
{
    size_t n = strlen(m->typed);
    if (strncmp(id, m->typed, n) != 0 && strncmp(digits_of(id), m->typed, n) != 0)
        return;
    if (m->n++ == 0)
        (void)snprintf(m->id, sizeof m->id, "%s", id);
}

static void
offer_name(struct match *m, const char *name)
{
    unsigned distance = words_distance(m->typed, name, NEAR_MAX);
    if (strcmp(name, m->typed) == 0)
        m->named = true;
    if (name[0] == '\0' || distance > NEAR_MAX ||
        (m->near[0] != '\0' && distance >= m->near_distance))
        return;
    (void)snprintf(m->near, sizeof m->near, "%s", name);
    m->near_distance = distance;
}

static bool
match_process(void *cookie, const struct stockade_process *p)
{
    offer(cookie, p->id);
    return true;
}

static bool
match_sandbox(void *cookie, const struct stockade_sandbox *box)
{
    offer_name(cookie, box->name);
    offer(cookie, box->id);
    return true;
}

static int
report(const struct command *c, const char *typed, const char *text, const char *hint)
{
    struct stockade_error e = {.code = STOCKADE_NOT_FOUND};
    (void)snprintf(e.text, sizeof e.text, "%s", text);
    (void)snprintf(e.hint, sizeof e.hint, "%s", hint);
    return cli_fail(c, typed, &e);
}

bool
cli_names_process(const struct command *c, const char *typed, int *code)
{
    if (!is_prefix(typed))
        *code =
            report(c, typed, "name a process by its id, or by at least the first 6 digits of it",
                   "'stockade ps' lists them");
    return is_prefix(typed);
}

bool
cli_find_process(struct stockade *s, const struct command *c, const char *typed,
                 char out[CLI_ID_SIZE], int *code)
{
    struct match m = {.typed = typed};
    struct stockade_error e;
    if (is_whole(typed)) {
        (void)snprintf(out, CLI_ID_SIZE, "%s", typed);
        return true;
    }
    if (!cli_names_process(c, typed, code))
        return false;
    if (pages_processes(s, NULL, match_process, &m, &e) < 0) {
        *code = cli_fail(c, "", &e);
        return false;
    }
    if (m.n != 1) {
        *code = report(c, typed,
                       m.n == 0 ? "no process id starts with these digits"
                                : "more than one process id starts with these digits",
                       "'stockade ps --no-trunc' lists them; ended processes are listed for 30 s");
        return false;
    }
    memcpy(out, m.id, sizeof m.id);
    return true;
}

bool
cli_find_sandbox(struct stockade *s, const struct command *c, const char *typed, char out[65],
                 int *code)
{
    struct match m = {.typed = typed};
    struct stockade_error e;
    (void)snprintf(out, 65, "%s", typed);
    if (strlen(typed) > 64) {
        *code = report(c, typed, "a sandbox name has at most 64 bytes", "");
        return false;
    }
    if (is_whole(typed) || !is_prefix(typed))
        return true; // an id or a name: the broker accepts both
    if (pages_sandboxes(s, NULL, 0, match_sandbox, &m, &e) < 0) {
        *code = cli_fail(c, "", &e);
        return false;
    }
    if (m.named)
        return true;
    if (m.n > 1) {
        *code = report(c, typed, "more than one sandbox id starts with these digits",
                       "'stockade ls --no-trunc' lists them");
        return false;
    }
    if (m.n == 1)
        memcpy(out, m.id, sizeof m.id);
    return true;
}

bool
cli_find_target(struct stockade *s, const struct command *c, const char *typed,
                char out[CLI_TARGET_SIZE], int *code)
{
    if (strncmp(typed, "volume:", 7) != 0)
        return cli_find_sandbox(s, c, typed, out, code);
    if (strlen(typed) < CLI_TARGET_SIZE) {
        (void)snprintf(out, CLI_TARGET_SIZE, "%s", typed);
        return true;
    }
    *code = report(c, typed, "the name of a volume has at most 64 bytes", "");
    return false;
}

int
cli_fail_sandbox(struct stockade *s, const struct command *c, const char *typed,
                 struct stockade_error *e)
{
    struct match m = {.typed = typed};
    if (strcmp(e->reason, "SANDBOX_PAUSED") == 0)
        (void)snprintf(e->hint, sizeof e->hint, "stockade resume %.64s", typed);
    if (e->code != STOCKADE_NOT_FOUND ||
        (e->hint[0] != '\0' && strcmp(e->reason, "SANDBOX_UNKNOWN") != 0))
        return cli_fail(c, "", e);
    if (pages_sandboxes(s, NULL, 0, match_sandbox, &m, NULL) == 0 && m.near[0] != '\0')
        (void)snprintf(e->hint, sizeof e->hint, "did you mean '%s'?", m.near);
    else
        (void)snprintf(e->hint, sizeof e->hint, "'stockade ls' lists your sandboxes");
    return cli_fail(c, "", e);
}

bool
cli_find_sandbox_id(struct stockade *s, const struct command *c, const char *typed,
                    char out[CLI_ID_SIZE], int *code)
{
    char found[65];
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    bool whole = is_whole(typed);
    if (!whole && !cli_find_sandbox(s, c, typed, found, code))
        return false;
    if (!whole && stockade_get(s, found, &box, &e) < 0) {
        *code = cli_fail_sandbox(s, c, typed, &e);
        return false;
    }
    (void)snprintf(out, CLI_ID_SIZE, "%s", whole ? typed : box->id);
    stockade_free(box);
    return true;
}
