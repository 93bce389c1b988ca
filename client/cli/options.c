// SPDX-License-Identifier: Apache-2.0
// See options.h.
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/target.h"
#include "proto/words.h"
#include "names.h"
#include "units.h"

enum { WORD_MAX = 32, NEAR = 2 };

// The state of parsing one option, and the place for its failure.
struct reading {
    struct options *o;
    struct problem *p;
};

// ---- similar words

// The distance of a name from the typed word: 0: equal; a prefix counts as 1.
static unsigned
nearness(const char *typed, const char *name)
{
    size_t n = strlen(typed);
    if (n >= 3 && strncmp(typed, name, n) == 0)
        return 1;
    return words_distance(typed, name, NEAR);
}

static const struct option_row *
nearest_option(const struct option_row *const *groups, const char *typed)
{
    const struct option_row *best = NULL;
    unsigned best_distance = NEAR + 1;
    for (; *groups != NULL; groups++) {
        for (const struct option_row *r = *groups; r->name != NULL; r++) {
            unsigned distance = nearness(typed, r->name);
            if (distance < best_distance) {
                best_distance = distance;
                best = r;
            }
        }
    }
    return best;
}

const struct command *
command_find(const char *name)
{
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

const char *
command_nearest(const char *typed)
{
    const char *best = NULL;
    unsigned best_distance = NEAR + 1;
    for (const struct command *c = commands; c->name != NULL; c++) {
        unsigned distance = nearness(typed, c->name);
        if (distance < best_distance) {
            best_distance = distance;
            best = c->name;
        }
    }
    return best;
}

// ---- values

static void *
field(const struct reading *r, const struct option_row *row)
{
    return (char *)r->o + row->offset;
}

static int
read_flag(struct reading *r, const struct option_row *row, const char *value)
{
    (void)value;
    *(bool *)field(r, row) = true;
    return 0;
}

static int
read_text(struct reading *r, const struct option_row *row, const char *value)
{
    if (value[0] == '\0')
        return -EINVAL;
    memcpy(field(r, row), &value, sizeof value);
    return 0;
}

static int
read_path(struct reading *r, const struct option_row *row, const char *value)
{
    return value[0] == '/' ? read_text(r, row, value) : -EINVAL;
}

static int
read_bytes(struct reading *r, const struct option_row *row, const char *value)
{
    return units_bytes(value, field(r, row));
}

static int
read_duration(struct reading *r, const struct option_row *row, const char *value)
{
    return units_duration_ms(value, field(r, row));
}

static int
read_cpus(struct reading *r, const struct option_row *row, const char *value)
{
    return units_cpu_millis(value, field(r, row));
}

static int
read_count(struct reading *r, const struct option_row *row, const char *value)
{
    return units_count(value, field(r, row));
}

static int
read_number(struct reading *r, const struct option_row *row, const char *value)
{
    if (value[0] != '\0' && strspn(value, "0") == strlen(value)) {
        *(uint64_t *)field(r, row) = 0;
        return 0;
    }
    return units_count(value, field(r, row));
}

// Separates NAME from NAME=VALUE; the options own it.
static int
split_pair(struct reading *r, const char *text, const char *equals, struct stockade_pair *out)
{
    char *name = strndup(text, (size_t)(equals - text));
    if (name == NULL || name[0] == '\0') {
        free(name);
        return -EINVAL;
    }
    r->o->owned[r->o->owned_n++] = name;
    *out = (struct stockade_pair){.name = name, .value = equals + 1};
    return 0;
}

static int
read_label(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    const char *equals = strchr(value, '=');
    if (equals == NULL || r->o->labels_n == OPTIONS_LABELS_MAX)
        return -EINVAL;
    int rc = split_pair(r, value, equals, &r->o->labels[r->o->labels_n]);
    if (rc == 0)
        r->o->labels_n++;
    return rc;
}

// DESTINATION=FILE
static int
read_answer(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    const char *equals = strchr(value, '=');
    if (equals == NULL || equals[1] == '\0' || r->o->answers_n == OPTIONS_ANSWERS_MAX)
        return -EINVAL;
    int rc = split_pair(r, value, equals, &r->o->answers[r->o->answers_n]);
    if (rc == 0)
        r->o->answers_n++;
    return rc;
}

// NAME:PATH, NAME:PATH:ro; of a folder of the host, whose name is its path, if is_host.
static int
read_mounted(const struct reading *r, const char *value, bool is_host)
{
    struct options *o = r->o;
    const char *path = strstr(value, ":/");
    if (path == NULL || path == value || (value[0] == '/') != is_host ||
        o->mounts_n == OPTIONS_MOUNTS_MAX)
        return -EINVAL;
    const char *mode = strchr(path + 1, ':');
    if (mode != NULL && strcmp(mode, ":ro") != 0 && strcmp(mode, ":rw") != 0)
        return -EINVAL;
    char *name = strndup(value, (size_t)(path - value));
    char *at = mode != NULL ? strndup(path + 1, (size_t)(mode - path - 1)) : strdup(path + 1);
    if (name == NULL || at == NULL) {
        free(name);
        free(at);
        return -ENOMEM;
    }
    o->owned[o->owned_n++] = name;
    o->owned[o->owned_n++] = at;
    o->mounts[o->mounts_n++] = (struct stockade_mount){
        .volume = name, .path = at, .read_only = mode != NULL && strcmp(mode, ":ro") == 0};
    return 0;
}

static int
read_volume(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    return read_mounted(r, value, false);
}

static int
read_mount(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    return read_mounted(r, value, true);
}

static int
read_env(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    if (r->o->env_n == OPTIONS_PAIRS_MAX || value[0] == '\0')
        return -EINVAL;
    struct stockade_pair *pair = &r->o->env[r->o->env_n];
    const char *equals = strchr(value, '=');
    if (equals != NULL) {
        int rc = split_pair(r, value, equals, pair);
        if (rc == 0)
            r->o->env_n++;
        return rc;
    }
    *pair = (struct stockade_pair){.name = value, .value = getenv(value)};
    if (pair->value != NULL)
        r->o->env_n++;
    else if (r->o->unset_n < OPTIONS_PAIRS_MAX)
        r->o->unset[r->o->unset_n++] = value;
    return 0;
}

static int
read_choice(struct reading *r, const struct option_row *row, const char *value)
{
    for (const char *const *c = row->choices; *c != NULL; c++)
        if (strcmp(*c, value) == 0) {
            memcpy(field(r, row), c, sizeof *c);
            return 0;
        }
    return -EINVAL;
}

static int
too_many(struct reading *r, const char *what)
{
    (void)snprintf(r->p->hint, sizeof r->p->hint, "at most %d %s", OPTIONS_LIST_MAX, what);
    return -EINVAL;
}

// An invalid destination is reported once: here if its form is wrong, otherwise by the broker.
static int
read_allow(struct reading *r, const struct option_row *row, const char *value)
{
    struct target_text t;
    struct err e;
    (void)row;
    if (r->o->allow_n == OPTIONS_LIST_MAX)
        return too_many(r, "destinations");
    if (target_parse(value, &t, &e) < 0) {
        (void)snprintf(r->p->hint, sizeof r->p->hint, "%.200s", e.text);
        return -EINVAL;
    }
    r->o->allow[r->o->allow_n++] = value;
    return 0;
}

static int
read_tool(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    if (r->o->tools_n == OPTIONS_TOOLS_MAX)
        return too_many(r, "tools");
    if (value[strspn(value, " ")] == '\0')
        return -EINVAL;
    r->o->tools[r->o->tools_n++] = value;
    return 0;
}

static int
read_inbound(struct reading *r, const struct option_row *row, const char *value)
{
    uint16_t first = 0;
    uint16_t last = 0;
    (void)row;
    if (r->o->inbound_n == OPTIONS_LIST_MAX)
        return too_many(r, "port ranges");
    if (!target_ports(value, &first, &last))
        return -EINVAL;
    r->o->inbound[r->o->inbound_n++] = value;
    return 0;
}

static int
read_event_kind(struct reading *r, const struct option_row *row, const char *value)
{
    enum { KINDS_MAX = 64 };
    char word[WORD_MAX + 1], *p = word;
    (void)snprintf(word, sizeof word, "%s", value);
    while ((p = strchr(p, '-')) != NULL) // as rules are written
        *p = '_';
    for (const char *const *k = row->choices; *k != NULL; k++)
        if (strcasecmp(*k, word) == 0 && r->o->event_kinds_n < KINDS_MAX) {
            r->o->event_kinds[r->o->event_kinds_n++] = *k;
            return 0;
        }
    (void)snprintf(r->p->hint, sizeof r->p->hint, "'stockade events --help' lists the kinds");
    return -EINVAL;
}

static int
read_format(struct reading *r, const struct option_row *row, const char *value)
{
    (void)row;
    if (strcmp(value, "json") != 0 && strcmp(value, "text") != 0)
        return -EINVAL;
    r->o->json = value[0] == 'j';
    return 0;
}

static int
read_output(struct reading *r, const struct option_row *row, const char *value)
{
    return read_format(r, row, value) == 0 ? 0 : units_bytes(value, field(r, row));
}

static const struct kind_row {
    int (*read)(struct reading *r, const struct option_row *row, const char *value);
    const char *example;
} kinds[] = {
    [OPTION_FLAG] = {read_flag, ""},
    [OPTION_TEXT] = {read_text, "a non-empty text"},
    [OPTION_PATH] = {read_path, "an absolute path in the sandbox, such as /home/agent"},
    [OPTION_BYTES] = {read_bytes, "a size above 0, such as 512K, 256M or 1.5G"},
    [OPTION_DURATION] = {read_duration, "a time above 0, such as 500ms, 5s, 1.5m or 2h"},
    [OPTION_CPUS] = {read_cpus, "a number of CPUs above 0, such as 0.5 or 2"},
    [OPTION_COUNT] = {read_count, "a whole number above 0"},
    [OPTION_NUMBER] = {read_number, "a whole number"},
    [OPTION_LABEL] = {read_label, "KEY=VALUE, such as team=search (at most 32 of them)"},
    [OPTION_VOLUME] = {read_volume, "NAME:PATH or NAME:PATH:ro, such as data:/data (at most 8)"},
    [OPTION_MOUNT] = {read_mount,
                      "FOLDER:PATH or FOLDER:PATH:ro, such as /srv/data:/data:ro (at most 8)"},
    [OPTION_ENV] = {read_env,
                    "NAME=VALUE, or NAME to copy it from your environment (at most 256 of them)"},
    [OPTION_NETWORK] = {read_choice, "one of off, none, allowlist, open"},
    [OPTION_CUT] = {read_choice, "one of ok, fail"},
    [OPTION_RESET] = {read_choice, "one of sandbox, files"},
    [OPTION_WARM] = {read_choice, "python"},
    [OPTION_FORM] = {read_choice, "one of stk, e2b"},
    [OPTION_TRANSACTION] = {read_choice, "one of ask, on-success"},
    [OPTION_ANSWER] = {read_answer,
                       "DESTINATION=FILE, such as example.com:80=reply.txt (at most 16)"},
    [OPTION_TOOL] = {read_tool, "a program and patterns, such as 'git clone *'"},
    [OPTION_SEVERITY] = {read_choice, "one of info, notice, warning, critical"},
    [OPTION_ALLOW] =
        {read_allow,
         "a destination, such as example.com:443, *.example.com or 192.0.2.0/24:80-90/tcp"},
    [OPTION_EVENT_KIND] = {read_event_kind, "a kind of event, such as denied or job_ended"},
    [OPTION_INBOUND] = {read_inbound, "a port from 1 to 65535, or a range such as 8000-8010"},
    [OPTION_FORMAT] = {read_format, "one of text, json"},
    [OPTION_OUTPUT] = {read_output, "a size above 0, such as 64K or 1M (or json, the format)"},
};
_Static_assert(sizeof kinds / sizeof kinds[0] == OPTION_KINDS, "one row for each kind");

// ---- the line

static int
refuse(struct reading *r, const char *word, const struct option_row *near)
{
    (void)snprintf(r->p->why, sizeof r->p->why, "there is no option '%s'", word);
    if (near != NULL)
        (void)snprintf(r->p->hint, sizeof r->p->hint, "did you mean --%s?", near->name);
    return -EINVAL;
}

static int
missing_value(struct reading *r, const struct option_row *row)
{
    (void)snprintf(r->p->why, sizeof r->p->why, "--%s needs a value: %s", row->name,
                   kinds[row->kind].example);
    return -EINVAL;
}

// An argument that a script has not filled in: no command has one that may be empty.
static int
empty_argument(struct reading *r, int number)
{
    (void)snprintf(r->p->why, sizeof r->p->why, "argument %d must not be empty", number);
    return -EINVAL;
}

static int
read_value(struct reading *r, const struct option_row *row, const char *value)
{
    int rc = kinds[row->kind].read(r, row, value);
    if (rc == 0)
        return 0;
    if (strcmp(value, "--") == 0)
        return missing_value(r, row);
    if (value[0] == '\0' && r->p->hint[0] == '\0')
        (void)snprintf(r->p->why, sizeof r->p->why, "--%s must not be empty", row->name);
    else if (rc == -ERANGE)
        (void)snprintf(r->p->why, sizeof r->p->why, "--%s: '%.100s' is too large", row->name,
                       value);
    else
        (void)snprintf(r->p->why, sizeof r->p->why, "--%s: '%.100s' is not %s", row->name, value,
                       kinds[row->kind].example);
    return -EINVAL;
}

const struct option_row *
options_long(const struct option_row *const *groups, const char *name, size_t n)
{
    for (; *groups != NULL; groups++)
        for (const struct option_row *r = *groups; r->name != NULL; r++)
            if (strlen(r->name) == n && strncmp(r->name, name, n) == 0)
                return r;
    return NULL;
}

const struct option_row *
options_letter(const struct option_row *const *groups, char letter)
{
    for (; *groups != NULL; groups++)
        for (const struct option_row *r = *groups; r->name != NULL; r++)
            if (r->letter == letter && letter != 0)
                return r;
    return NULL;
}

// Commands without an --output of their own take it for --format, as many programs have it.
static const struct option_row *
row_named(const struct option_row *const *groups, const char *name, size_t n)
{
    static const char other[] = "output";
    const struct option_row *row = options_long(groups, name, n);
    if (row != NULL || n != sizeof other - 1 || strncmp(name, other, n) != 0)
        return row;
    return options_long(groups, "format", strlen("format"));
}

// "--name", "--name=value", "--name value". Returns the number of words, or -EINVAL.
static int
parse_long(struct reading *r, const struct option_row *const *groups, int argc, char **argv)
{
    const char *name = argv[0] + 2;
    size_t n = strcspn(name, "=");
    const struct option_row *row = row_named(groups, name, n);
    if (row == NULL) {
        char typed[WORD_MAX + 1];
        (void)snprintf(typed, sizeof typed, "%.*s", (int)(n < WORD_MAX ? n : WORD_MAX), name);
        return refuse(r, argv[0], nearest_option(groups, typed));
    }
    if (row->kind == OPTION_FLAG) {
        if (name[n] == '=') {
            (void)snprintf(r->p->why, sizeof r->p->why, "--%s takes no value", row->name);
            return -EINVAL;
        }
        return read_value(r, row, "") < 0 ? -EINVAL : 1;
    }
    if (name[n] == '=')
        return read_value(r, row, name + n + 1) < 0 ? -EINVAL : 1;
    if (argc < 2)
        return missing_value(r, row);
    return read_value(r, row, argv[1]) < 0 ? -EINVAL : 2;
}

// "-it", "-e NAME", "-eNAME". Returns the number of words, or -EINVAL.
static int
parse_letters(struct reading *r, const struct option_row *const *groups, int argc, char **argv)
{
    for (const char *p = argv[0] + 1; *p != '\0'; p++) {
        const struct option_row *row = options_letter(groups, *p);
        if (row == NULL)
            return refuse(r, argv[0], NULL);
        if (row->kind != OPTION_FLAG) {
            if (p[1] != '\0')
                return read_value(r, row, p[1] == '=' ? p + 2 : p + 1) < 0 ? -EINVAL : 1;
            if (argc < 2)
                return missing_value(r, row);
            return read_value(r, row, argv[1]) < 0 ? -EINVAL : 2;
        }
        (void)read_value(r, row, "");
    }
    return 1;
}

// Moves the operands to the front of argv, in order, terminated by NULL.
int
options_parse(struct options *o, const struct option_row *const *groups, bool rest, int argc,
              char **argv, struct problem *p)
{
    struct reading r = {.o = o, .p = p};
    int kept = 0, i = 0;
    *p = (struct problem){.why = ""};
    while (i < argc) {
        int took = 1;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strncmp(argv[i], "--", 2) == 0)
            took = parse_long(&r, groups, argc - i, argv + i);
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            took = parse_letters(&r, groups, argc - i, argv + i);
        else if (rest)
            break;
        else if (argv[i][0] == '\0')
            return empty_argument(&r, kept + 1);
        else
            argv[kept++] = argv[i];
        if (took < 0)
            return took;
        i += took;
    }
    while (i < argc)
        argv[kept++] = argv[i++];
    argv[kept] = NULL;
    union { // argv may be reordered, but its strings are only read
        char **from;
        const char *const *to;
    } args = {.from = argv};
    o->args = args.to;
    o->args_n = kept;
    return 0;
}

bool
options_policy(const struct options *o, struct stockade_policy *out)
{
    struct stockade_policy p = o->policy;
    bool limited = p.egress_bytes_max != 0 || p.ingress_bytes_max != 0 || p.egress_rate != 0 ||
                   p.ingress_rate != 0 || p.queries_per_minute != 0;
    p.mode = (enum stockade_network)cli_network_number(o->network);
    if (o->network == NULL && o->allow_n > 0)
        p.mode = STOCKADE_NETWORK_ALLOWLIST;
    p.allow = o->allow;
    p.allow_n = o->allow_n;
    p.inbound = o->inbound;
    p.inbound_n = o->inbound_n;
    *out = p;
    return limited || p.mode != STOCKADE_NETWORK_TEMPLATE || p.inbound_n > 0;
}

void
options_free(struct options *o)
{
    while (o->owned_n > 0)
        free(o->owned[--o->owned_n]);
}
