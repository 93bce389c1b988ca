// SPDX-License-Identifier: Apache-2.0
// Completions of a command line: the tables of commands.c, and names that the broker knows. The completion scripts
// (completion.c) call `stockade completion words -- WORD...`, and complete themselves what a shell knows better: files,
// and the lines of other commands.
#include <stdio.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/destinations.h"
#include "cli.h"
#include "commands.h"
#include "pages.h"
#include "remote.h"
#include "stockade/v1/approval_service.pb-c.h"
#include "text.h"

enum { ID_SHOWN = 12, PAGE_BYTES = 33, ABOUT_BYTES = 128, OFFERS_ARENA = 4 * 1024 * 1024 };

// The meaning of the words before the cursor's.
struct line {
    const struct command *command;    // NULL: none yet
    const struct option_row *awaited; // the option with the value at the cursor, or NULL
    const char *address;
    int operands;
    const char *first; // of them
    int command_at; // index (from 1) of the first word of the command for the sandbox; 0: none yet
    bool ended;     // no option can follow
    bool lost;      // unknown command
};

// The receiver of completions, and the text that was typed so far.
struct offers {
    FILE *to;
    const char *prefix; // "--name=" in front of a value, or ""
    const char *typed;
    const char *address;
};

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

static void
offer(const struct offers *o, const char *word, const char *about)
{
    char flat[ABOUT_BYTES];
    if (strncmp(word, o->typed, strlen(o->typed)) == 0)
        (void)fprintf(o->to, "%s%s\t%s\n", o->prefix, word, text_flat(about, flat, sizeof flat));
}

// An id in its short form, or in full if more than that was typed. A sandbox with a name is completed by its name,
// unless the start of an id was typed.
static void
offer_id(const struct offers *o, const char *id, const char *name, const char *about)
{
    char shown[PAGE_BYTES];
    if (name[0] != '\0')
        offer(o, name, about);
    if (name[0] != '\0' && o->typed[0] == '\0')
        return;
    (void)snprintf(shown, sizeof shown, "%.*s",
                   strlen(o->typed) > ID_SHOWN ? PAGE_BYTES - 1 : ID_SHOWN, id);
    offer(o, shown, about);
}

static bool
offer_sandbox(void *cookie, const struct stockade_sandbox *box)
{
    char about[ABOUT_BYTES];
    (void)snprintf(about, sizeof about, "sandbox of %.64s, %s", box->template_name,
                   cli_state_name(box->state));
    offer_id(cookie, box->id, box->name, about);
    return true;
}

static void
offer_sandboxes(const struct offers *o, struct stockade *s)
{
    struct offers all = *o;
    (void)pages_sandboxes(s, NULL, 0, offer_sandbox, &all, NULL);
}

static bool
offer_process(void *cookie, const struct stockade_process *p)
{
    char about[ABOUT_BYTES];
    (void)snprintf(about, sizeof about, "%s: %.80s", p->result == NULL ? "running" : "ended",
                   p->args_n > 0 ? p->args[0] : "");
    offer_id(cookie, p->id, "", about);
    return true;
}

static void
offer_processes(const struct offers *o, struct stockade *s)
{
    struct offers all = *o;
    (void)pages_processes(s, NULL, offer_process, &all, NULL);
}

static void
offer_templates(const struct offers *o, struct stockade *s)
{
    const struct stockade_sandbox_templates *all = NULL;
    if (stockade_template_list(s, NULL, &all, NULL) < 0)
        return;
    for (size_t i = 0; i < all->n; i++)
        offer(o, all->items[i].name, all->items[i].of_host ? "template" : "template of yours");
    stockade_free(all);
}

static void
ask_broker(const struct offers *o, void (*ask)(const struct offers *o, struct stockade *s))
{
    struct stockade_options so = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    so.address = o->address;
    if (stockade_open(&s, &so, NULL) < 0)
        return;
    ask(o, s);
    stockade_close(s);
}

static void
offer_value(const struct offers *o, const struct option_row *row)
{
    for (const char *const *choice = row->choices; choice != NULL && *choice != NULL; choice++)
        offer(o, *choice, row->value);
    if (strcmp(row->name, "sandbox") == 0)
        ask_broker(o, offer_sandboxes);
    else if (strcmp(row->name, "template") == 0)
        ask_broker(o, offer_templates);
}

static void
offer_options(const struct offers *o, const struct option_row *const *groups)
{
    char word[64];
    for (; *groups != NULL; groups++)
        for (const struct option_row *r = *groups; r->name != NULL; r++) {
            (void)snprintf(word, sizeof word, "--%s", r->name);
            offer(o, word, r->help);
            (void)snprintf(word, sizeof word, "-%c", r->letter);
            if (r->letter != 0 && strcmp(word, o->typed) == 0)
                offer(o, word, r->help);
        }
}

static void
offer_commands(const struct offers *o)
{
    for (const struct command *c = commands; c->name != NULL; c++)
        offer(o, c->name, c->summary);
}

// The first operand.
static void
offer_actions(const struct offers *o, const struct line *l, const char *const (*actions)[2],
              size_t n)
{
    for (size_t i = 0; l->operands == 0 && i < n; i++)
        offer(o, actions[i][0], actions[i][1]);
}

static void
offer_profiles(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"ls", "list profiles"},
        {"export", "write a profile to a file"},
        {"import", "read a profile from a file"},
        {"reset", "delete a profile and learn again"},
        {"freeze", "stop learning"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_templates);
    else if (l->operands == 2)
        (void)fprintf(o->to, ":files\n");
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_snapshots(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"create", "make a snapshot"},      {"ls", "list the snapshots of a sandbox"},
        {"show", "show one snapshot"},      {"diff", "show what differs"},
        {"restore", "roll the files back"}, {"rm", "delete a snapshot"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_sandboxes);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_checkpoints(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"create", "keep the variables"},       {"ls", "list the checkpoints of a sandbox"},
        {"restore", "go back to a checkpoint"}, {"fork", "make a context with the same variables"},
        {"rm", "delete a checkpoint"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_sandboxes);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_transactions(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"begin", "begin a transaction of a sandbox"},
        {"ls", "list transactions"},
        {"show", "show one transaction"},
        {"diff", "show what it changed"},
        {"commit", "give its changes to the sandbox"},
        {"discard", "drop its changes"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_sandboxes);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_template_actions(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"build", "make a template from a file of steps"},
        {"create", "make a template from a sandbox"},
        {"ls", "list templates"},
        {"show", "show one template"},
        {"rm", "delete a template"},
        {"prune", "delete the kept steps of builds"},
    };
    if (l->operands == 1 && strcmp(l->first, "prune") == 0)
        return;
    if (l->operands == 1 && strcmp(l->first, "build") == 0)
        (void)fprintf(o->to, ":files\n");
    else if (l->operands == 1)
        ask_broker(o, offer_templates);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_each_volume(const struct offers *o, struct stockade *s, const char *prefix)
{
    struct stockade_error e;
    const struct stockade_volumes *all = NULL;
    if (stockade_volume_list(s, NULL, &all, &e) < 0)
        return;
    for (size_t i = 0; i < all->n; i++) {
        char word[CLI_PLACE_SIZE];
        (void)snprintf(word, sizeof word, "%s%s", prefix, all->items[i].name);
        offer(o, word, "volume");
    }
    stockade_free(all);
}

static void
offer_names(const struct offers *o, struct stockade *s)
{
    offer_each_volume(o, s, "");
}

static void
offer_places(const struct offers *o, struct stockade *s)
{
    offer_each_volume(o, s, "volume:");
}

static void
offer_pending(const struct offers *o, struct stockade *s)
{
    struct arena *auto_arena a = arena_new(OFFERS_ARENA);
    struct stockade_error e;
    ProtobufCMessage *m = NULL;
    Stockade__V1__ApprovalServiceListRequest request =
        STOCKADE__V1__APPROVAL_SERVICE_LIST_REQUEST__INIT;
    request.state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
    if (a == NULL ||
        remote_call(s, "/stockade.v1.ApprovalService/List", &request.base,
                    &stockade__v1__approval_service_list_response__descriptor, a, &m, &e) < 0)
        return;
    const Stockade__V1__ApprovalServiceListResponse *all =
        (const Stockade__V1__ApprovalServiceListResponse *)m;
    for (size_t i = 0; i < all->n_approvals; i++)
        offer(o, all->approvals[i]->id, all->approvals[i]->method);
}

static void
offer_admin(const struct offers *o)
{
    offer(o, "backup", "copy the database of the broker to a file");
    offer(o, "cert", "make certificates for a broker or a caller");
    offer(o, "audit-key", "show, change or export the key of the audit log");
    offer(o, "encryption", "show or change the keys of encryption at rest");
}

static void
offer_token(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"mint", "make a token and print it"},
        {"exchange", "get a token for a JSON Web Token"},
        {"attenuate", "print a narrower token"},
        {"inspect", "show what a token says"},
        {"verify", "check a token"},
        {"revoke", "revoke a token for ever"},
        {"keys", "list the public keys of the broker"},
        {"rotate", "sign with a new key"},
    };
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_approvals(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"ls", "list pending approvals"},       {"show", "show one with its request"},
        {"approve", "agree to a call"},         {"deny", "refuse a call"},
        {"cancel", "withdraw one of your own"}, {"watch", "print changes as they happen"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_pending);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_audit(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"verify", "name what is missing, torn, changed or not in its place"},
        {"export", "print all records as JSON"},
        {"grep", "print the records that contain a text"},
        {"show", "print one record"},
        {"proof", "print the proof of a job's record"},
        {"tail", "print the last records, as the broker has them"},
    };
    if (l->operands > 0)
        (void)fputs(":files\n", o->to);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_rules(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"check", "read files of rules and run their tests"},
        {"test", "list the tests, or compare kept events with the rules"},
        {"ls", "list your rules, or those of files"},
        {"show", "show one rule"},
        {"set", "keep files of rules in the broker"},
        {"get", "print a file of rules that the broker keeps"},
        {"rm", "remove a file of rules from the broker"},
        {"enable", "switch a rule on"},
        {"disable", "switch a rule off"},
    };
    if (l->operands > 0)
        (void)fputs(":files\n", o->to);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_keys(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"create", "make a key and print it"},
        {"ls", "list your keys"},
        {"revoke", "revoke a key for ever"},
    };
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_policy(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"check", "read files as a broker would, and run their tests"},
        {"test", "run the tests of rules, and of files of tests"},
        {"explain", "show what would be decided about a call"},
        {"show", "show the policy of your calls"},
        {"diff", "show what files would change"},
        {"reload", "have the broker read its files again"},
        {"sets", "show the named sets of destinations"},
        {"learn", "write a policy from what jobs did"},
    };
    static const char *const with_files[] = {"check", "test", "diff"};
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
    for (size_t i = 0; l->operands > 0 && i < sizeof with_files / sizeof with_files[0]; i++)
        if (strcmp(l->first, with_files[i]) == 0)
            (void)fputs(":files\n", o->to);
    if (l->operands != 1 || strcmp(l->first, "sets") != 0)
        return;
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++)
        offer(o, s->name, s->about);
}

static void
offer_volumes(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"create", "make a volume"},
        {"ls", "list your volumes"},
        {"show", "show one volume"},
        {"rm", "remove a volume with all that it holds"},
    };
    if (l->operands == 1)
        ask_broker(o, offer_names);
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_files(const struct offers *o, const struct line *l)
{
    static const char *const actions[][2] = {
        {"ls", "list a folder"},          {"stat", "describe files"},
        {"cat", "write files to stdout"}, {"write", "write stdin to a file"},
        {"mkdir", "make folders"},        {"rm", "remove files"},
        {"mv", "rename a file"},          {"cp", "copy a file inside the sandbox"},
        {"chmod", "set permissions"},     {"watch", "print changes as they happen"},
    };
    if (l->operands == 1) {
        ask_broker(o, offer_sandboxes);
        ask_broker(o, offer_places);
    }
    offer_actions(o, l, actions, sizeof actions / sizeof actions[0]);
}

static void
offer_operand(const struct offers *o, const struct line *l)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    const struct command *c = l->command;
    bool takes_more = l->operands == 0 || (c->args_max < 0 && c->operand == OPERAND_SANDBOX);
    if (c->operand == OPERAND_PROFILES)
        offer_profiles(o, l);
    else if (c->operand == OPERAND_SNAPSHOT)
        offer_snapshots(o, l);
    else if (c->operand == OPERAND_CHECKPOINT)
        offer_checkpoints(o, l);
    else if (c->operand == OPERAND_TRANSACTION)
        offer_transactions(o, l);
    else if (c->operand == OPERAND_TEMPLATE)
        offer_template_actions(o, l);
    else if (c->operand == OPERAND_TOKEN)
        offer_token(o, l);
    else if (c->operand == OPERAND_APPROVAL)
        offer_approvals(o, l);
    else if (c->operand == OPERAND_AUDIT)
        offer_audit(o, l);
    else if (c->operand == OPERAND_RULES)
        offer_rules(o, l);
    else if (c->operand == OPERAND_KEY)
        offer_keys(o, l);
    else if (c->operand == OPERAND_ADMIN && l->operands == 0)
        offer_admin(o);
    else if (c->operand == OPERAND_POLICY)
        offer_policy(o, l);
    else if (c->operand == OPERAND_VOLUME)
        offer_volumes(o, l);
    else if (c->operand == OPERAND_FILES)
        offer_files(o, l);
    else if (!takes_more)
        return;
    else if (c->operand == OPERAND_SANDBOX)
        ask_broker(o, offer_sandboxes);
    else if (c->operand == OPERAND_PROCESS)
        ask_broker(o, offer_processes);
    else if (c->operand == OPERAND_HELP)
        offer_commands(o);
    else if (c->operand == OPERAND_FILE)
        (void)fputs(":files\n", o->to);
    for (size_t i = 0; c->operand == OPERAND_SHELL && i < sizeof shells / sizeof shells[0]; i++)
        offer(o, shells[i], "shell");
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
    struct offers o = {.to = to, .prefix = "", .typed = typed, .address = l.address};
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
        offer_operand(&o, &l);
}
