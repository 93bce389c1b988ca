// SPDX-License-Identifier: Apache-2.0
// Completions of a command line: the tables of commands.c, and names that the broker knows. The completion scripts
// (completion.c) call `stockade completion words -- WORD...`, and complete themselves what a shell knows better: files,
// and the lines of other commands.
#include <stdio.h>
#include <string.h>

#include "text.h"
#include "words_private.h"

enum { ABOUT_BYTES = 128, WORD_MAX = 256 };

// ---- before the cursor

static const struct option_row *const *
groups_of(const struct line *l)
{
    return l->command != NULL ? l->command->options : options_main;
}

static void
take_value(struct line *l, const struct option_row *row, const char *value)
{
    if (strcmp(row->name, "address") == 0)
        l->address = value;
    else if (strcmp(row->name, "token-file") == 0)
        l->token_file = value;
    else if (strcmp(row->name, "ca-file") == 0)
        l->ca_file = value;
    l->awaited = NULL;
}

// "--name", "--name=value", "-n", "-nVALUE", "-abn".
static void
read_option(struct line *l, const char *word)
{
    const struct option_row *row = NULL;
    const char *value = NULL;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        row = options_long(groups_of(l), word + 2, n);
        value = word[2 + n] == '=' ? word + 3 + n : NULL;
    } else {
        const char *p = word + 1;
        row = options_letter(groups_of(l), *p);
        while (row != NULL && row->kind == OPTION_FLAG && p[1] != '\0')
            row = options_letter(groups_of(l), *++p);
        value = p[1] != '\0' ? p + 1 : NULL;
    }
    if (row == NULL || row->kind == OPTION_FLAG)
        return;
    if (value == NULL)
        l->awaited = row;
    else
        take_value(l, row, value);
}

// Number of operands before the command for the sandbox; -1: there is none.
static int
operands_before_command(const struct command *c)
{
    return c->rest ? c->args_min - 1 : -1;
}

static void
read_operand(struct line *l, const char *word, int at)
{
    if (l->command == NULL) {
        l->command = command_find(word);
        l->lost = l->command == NULL;
        l->ended = false;
        return;
    }
    if (l->operands == 0)
        l->first = word;
    else if (l->operands == 1)
        l->second = word;
    if (l->operands++ == operands_before_command(l->command))
        l->command_at = at;
    l->ended |= l->command->rest;
}

static void
read_word(struct line *l, const char *word, int at)
{
    if (l->command_at != 0)
        return;
    if (l->awaited != NULL) {
        take_value(l, l->awaited, word);
    } else if (strcmp(word, "--") == 0) {
        l->ended = true;
    } else if (!l->ended && word[0] == '-' && word[1] != '\0') {
        read_option(l, word);
    } else {
        read_operand(l, word, at);
    }
}

// ---- completions of the cursor's word

void
words_word(const struct offers *o, const char *word, const char *about)
{
    char flat[ABOUT_BYTES];
    if (strncmp(word, o->typed, strlen(o->typed)) == 0)
        (void)fprintf(o->to, "%s%s\t%s\n", o->prefix, word, text_flat(about, flat, sizeof flat));
}

// The last of several words with commas between them: what is before it stays.
static void
offer_of_list(const struct offers *o, enum thing thing)
{
    char prefix[WORD_MAX];
    struct offers last = *o;
    const char *comma = strrchr(o->typed, ',');
    if (comma != NULL) {
        const int n = snprintf(prefix, sizeof prefix, "%s%.*s", o->prefix,
                               (int)(comma + 1 - o->typed), o->typed);
        if (n < 0 || (size_t)n >= sizeof prefix)
            return;
        last.prefix = prefix;
        last.typed = comma + 1;
    }
    words_thing(&last, thing);
}

static void
offer_set(const struct offers *o)
{
    char prefix[WORD_MAX];
    struct offers set = *o;
    if (o->typed[0] != '@' && o->typed[0] != '\0')
        return;
    (void)snprintf(prefix, sizeof prefix, "%s@", o->prefix);
    set.prefix = prefix;
    set.typed = o->typed + (o->typed[0] == '@');
    words_thing(&set, THING_SET);
}

static void
offer_value(const struct offers *o, const struct option_row *row)
{
    static const struct {
        const char *name;
        enum thing thing;
    } things[] = {
        {"sandbox", THING_SANDBOX},    {"sandboxes", THING_SANDBOX}, {"template", THING_TEMPLATE},
        {"templates", THING_TEMPLATE}, {"approval", THING_APPROVAL},
    };
    for (const char *const *choice = row->choices; choice != NULL && *choice != NULL; choice++)
        words_word(o, *choice, row->value);
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        if (strcmp(row->name, things[i].name) == 0)
            offer_of_list(o, things[i].thing);
    if (strcmp(row->name, "allow") == 0)
        offer_set(o);
    if (row->value != NULL &&
        (strcmp(row->value, "FILE") == 0 || strcmp(row->value, "FOLDER") == 0))
        words_thing(o, THING_FILE);
}

static void
offer_options(const struct offers *o, const struct option_row *const *groups)
{
    char word[64];
    for (; *groups != NULL; groups++)
        for (const struct option_row *r = *groups; r->name != NULL; r++) {
            (void)snprintf(word, sizeof word, "--%s", r->name);
            words_word(o, word, r->help);
            (void)snprintf(word, sizeof word, "-%c", r->letter);
            if (r->letter != 0 && strcmp(word, o->typed) == 0)
                words_word(o, word, r->help);
        }
}

static void
offer_commands(const struct offers *o)
{
    for (const struct command *c = commands; c->name != NULL; c++)
        words_word(o, c->name, c->summary);
}

// "--name=VALUE" as typed so far: completes the value.
static bool
begins_value(struct offers *o, char *prefix, size_t n)
{
    const char *equals = strchr(o->typed, '=');
    if (equals == NULL || strncmp(o->typed, "--", 2) != 0)
        return false;
    (void)snprintf(prefix, n, "%.*s=", (int)(equals - o->typed), o->typed);
    o->prefix = prefix;
    o->typed = equals + 1;
    return true;
}

void
words_offer(FILE *to, const char *const *words, int n)
{
    struct line l = {0};
    char prefix[64];
    const char *typed = n > 0 ? words[n - 1] : "";
    for (int i = 0; i < n - 1; i++)
        read_word(&l, words[i], i + 1);
    if (l.lost)
        return;
    struct offers o = {.to = to,
                       .prefix = "",
                       .typed = typed,
                       .address = l.address,
                       .token_file = l.token_file,
                       .ca_file = l.ca_file};
    const struct option_row *row = l.awaited;
    bool option = row == NULL && !l.ended && typed[0] == '-';
    bool joined = option && begins_value(&o, prefix, sizeof prefix);
    if (joined)
        row = options_long(groups_of(&l), prefix + 2, strlen(prefix) - 3);
    if (l.command_at != 0)
        (void)fprintf(to, ":command %d\n", l.command_at);
    else if (row != NULL)
        offer_value(&o, row);
    else if (joined)
        return; // unknown option
    else if (option)
        offer_options(&o, groups_of(&l));
    else if (l.command == NULL)
        offer_commands(&o);
    else if (l.operands == operands_before_command(l.command))
        (void)fprintf(to, ":command %d\n", n);
    else
        words_operand(&o, &l);
}
