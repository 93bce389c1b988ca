// SPDX-License-Identifier: Apache-2.0
// See words_private.h: the actions of commands, and what follows each of them.
#include <string.h>

#include "words_private.h"

struct action {
    const char *name, *about;
    enum thing second, others; // the operand after it, and those that follow
};

static const struct action profiles[] = {
    {"ls", "list profiles", THING_TEMPLATE, THING_FILE},
    {"export", "write a profile to a file", THING_TEMPLATE, THING_FILE},
    {"import", "read a profile from a file", THING_TEMPLATE, THING_FILE},
    {"reset", "delete a profile and learn again", THING_TEMPLATE, THING_FILE},
    {"freeze", "stop learning", THING_TEMPLATE, THING_FILE},
    {0},
};
static const struct action snapshots[] = {
    {"create", "make a snapshot", THING_SANDBOX, THING_NONE},
    {"ls", "list the snapshots of a sandbox", THING_SANDBOX, THING_NONE},
    {"show", "show one snapshot", THING_SANDBOX, THING_NONE},
    {"diff", "show what differs", THING_SANDBOX, THING_NONE},
    {"restore", "roll the files back", THING_SANDBOX, THING_NONE},
    {"rm", "delete a snapshot", THING_SANDBOX, THING_NONE},
    {0},
};
static const struct action checkpoints[] = {
    {"create", "keep the variables", THING_SANDBOX, THING_NONE},
    {"ls", "list the checkpoints of a sandbox", THING_SANDBOX, THING_NONE},
    {"restore", "go back to a checkpoint", THING_SANDBOX, THING_NONE},
    {"fork", "make a context with the same variables", THING_SANDBOX, THING_NONE},
    {"rm", "delete a checkpoint", THING_SANDBOX, THING_NONE},
    {0},
};
static const struct action transactions[] = {
    {"begin", "begin a transaction of a sandbox", THING_SANDBOX, THING_NONE},
    {"ls", "list transactions", THING_SANDBOX, THING_NONE},
    {"show", "show one transaction", THING_SANDBOX, THING_NONE},
    {"diff", "show what it changed", THING_SANDBOX, THING_NONE},
    {"commit", "give its changes to the sandbox", THING_SANDBOX, THING_NONE},
    {"discard", "drop its changes", THING_SANDBOX, THING_NONE},
    {0},
};
static const struct action templates[] = {
    {"build", "make a template from a file of steps", THING_FILE, THING_NONE},
    {"create", "make a template from a sandbox", THING_TEMPLATE, THING_NONE},
    {"ls", "list templates", THING_TEMPLATE, THING_NONE},
    {"show", "show one template", THING_TEMPLATE, THING_NONE},
    {"rm", "delete a template", THING_TEMPLATE, THING_NONE},
    {"prune", "delete the kept steps of builds", THING_NONE, THING_NONE},
    {"push", "write a template to an archive", THING_TEMPLATE, THING_FILE},
    {"load", "make a template of an archive", THING_FILE, THING_NONE},
    {0},
};
static const struct action tokens[] = {
    {"mint", "make a token and print it", THING_NONE, THING_NONE},
    {"exchange", "get a token for a JSON Web Token", THING_NONE, THING_NONE},
    {"attenuate", "print a narrower token", THING_NONE, THING_NONE},
    {"inspect", "show what a token says", THING_NONE, THING_NONE},
    {"verify", "check a token", THING_NONE, THING_NONE},
    {"revoke", "revoke a token for ever", THING_NONE, THING_NONE},
    {"keys", "list the public keys of the broker", THING_NONE, THING_NONE},
    {"rotate", "sign with a new key", THING_NONE, THING_NONE},
    {0},
};
static const struct action approvals[] = {
    {"ls", "list pending approvals", THING_NONE, THING_NONE},
    {"show", "show one with its request", THING_APPROVAL, THING_NONE},
    {"approve", "agree to a call", THING_PENDING, THING_NONE},
    {"deny", "refuse a call", THING_PENDING, THING_NONE},
    {"cancel", "withdraw one of your own", THING_PENDING, THING_NONE},
    {"watch", "print changes as they happen", THING_NONE, THING_NONE},
    {0},
};
static const struct action audit[] = {
    {"verify", "name what is missing, torn, changed or not in its place", THING_FILE, THING_FILE},
    {"export", "print all records as JSON", THING_FILE, THING_FILE},
    {"grep", "print the records that contain a text", THING_NONE, THING_FILE},
    {"show", "print one record", THING_NONE, THING_FILE},
    {"proof", "print the proof of a job's record", THING_PROCESS, THING_FILE},
    {"tail", "print the last records, as the broker has them", THING_NONE, THING_NONE},
    {0},
};
static const struct action anomalies[] = {
    {"ls", "list findings", THING_NONE, THING_NONE},
    {"ack", "note that you have handled findings", THING_NONE, THING_NONE},
    {"unack", "take that back", THING_NONE, THING_NONE},
    {"acknowledged", "list those that were acknowledged", THING_NONE, THING_NONE},
    {"silence", "raise no alert for a rule for a while", THING_RULE, THING_NONE},
    {"unsilence", "end a silence", THING_NONE, THING_NONE},
    {"silences", "list the silences in force", THING_NONE, THING_NONE},
    {0},
};

static const struct action rules[] = {
    {"check", "read files of rules and run their tests", THING_FILE, THING_FILE},
    {"test", "list the tests, or compare kept events with the rules", THING_FILE, THING_FILE},
    {"ls", "list your rules, or those of files", THING_FILE, THING_FILE},
    {"show", "show one rule", THING_RULE, THING_FILE},
    {"set", "keep files of rules in the broker", THING_FILE, THING_FILE},
    {"get", "print a file of rules that the broker keeps", THING_RULES, THING_NONE},
    {"rm", "remove a file of rules from the broker", THING_RULES, THING_NONE},
    {"enable", "switch a rule on", THING_RULE, THING_NONE},
    {"disable", "switch a rule off", THING_RULE, THING_NONE},
    {0},
};
static const struct action keys[] = {
    {"create", "make a key and print it", THING_NONE, THING_NONE},
    {"ls", "list your keys", THING_NONE, THING_NONE},
    {"revoke", "revoke a key for ever", THING_KEY, THING_NONE},
    {0},
};
static const struct action policies[] = {
    {"check", "read files as a broker would, and run their tests", THING_FILE, THING_FILE},
    {"test", "run the tests of rules, and of files of tests", THING_FILE, THING_FILE},
    {"explain", "show what would be decided about a call", THING_NONE, THING_NONE},
    {"show", "show the policy of your calls", THING_NONE, THING_NONE},
    {"diff", "show what files would change", THING_FILE, THING_FILE},
    {"reload", "have the broker read its files again", THING_NONE, THING_NONE},
    {"sets", "show the named sets of destinations", THING_SET, THING_NONE},
    {"learn", "write a policy from what jobs did", THING_PROCESS, THING_PROCESS},
    {0},
};
static const struct action volumes[] = {
    {"create", "make a volume", THING_NONE, THING_NONE},
    {"ls", "list your volumes", THING_NONE, THING_NONE},
    {"show", "show one volume", THING_VOLUME, THING_NONE},
    {"rm", "remove a volume with all that it holds", THING_VOLUME, THING_NONE},
    {0},
};
static const struct action files[] = {
    {"ls", "list a folder", THING_TARGET, THING_NONE},
    {"stat", "describe files", THING_TARGET, THING_NONE},
    {"cat", "write files to stdout", THING_TARGET, THING_NONE},
    {"write", "write stdin to a file", THING_TARGET, THING_NONE},
    {"mkdir", "make folders", THING_TARGET, THING_NONE},
    {"rm", "remove files", THING_TARGET, THING_NONE},
    {"mv", "rename a file", THING_TARGET, THING_NONE},
    {"cp", "copy a file inside the sandbox", THING_TARGET, THING_NONE},
    {"chmod", "set permissions", THING_TARGET, THING_NONE},
    {"watch", "print changes as they happen", THING_TARGET, THING_NONE},
    {0},
};
static const struct action admin[] = {
    {"backup", "copy the database of the broker to a file", THING_FILE, THING_NONE},
    {"cert", "make certificates for a broker or a caller", THING_FILE, THING_NONE},
    {"audit-key", "show, change or export the key of the audit log", THING_NONE, THING_NONE},
    {"encryption", "show or change the keys of encryption at rest", THING_NONE, THING_NONE},
    {0},
};
static const struct action audit_keys[] = {
    {"show", "show the keys", THING_NONE, THING_NONE},
    {"rotate", "sign with a new key", THING_NONE, THING_NONE},
    {"export", "write the public keys to a file", THING_FILE, THING_NONE},
    {0},
};
static const struct action encryption[] = {
    {"status", "show what is encrypted, and the keys", THING_NONE, THING_NONE},
    {"rotate", "wrap the keys with a new master key", THING_NONE, THING_NONE},
    {"forget", "make what a tenant has kept unreadable", THING_NONE, THING_NONE},
    {0},
};
static const struct action shells[] = {
    {"bash", "shell", THING_NONE, THING_NONE},
    {"zsh", "shell", THING_NONE, THING_NONE},
    {"fish", "shell", THING_NONE, THING_NONE},
    {0},
};

static const struct {
    enum operand operand;
    const struct action *actions;
} tables[] = {
    {OPERAND_PROFILES, profiles},
    {OPERAND_SNAPSHOT, snapshots},
    {OPERAND_CHECKPOINT, checkpoints},
    {OPERAND_TRANSACTION, transactions},
    {OPERAND_TEMPLATE, templates},
    {OPERAND_TOKEN, tokens},
    {OPERAND_APPROVAL, approvals},
    {OPERAND_AUDIT, audit},
    {OPERAND_ANOMALIES, anomalies},
    {OPERAND_RULES, rules},
    {OPERAND_KEY, keys},
    {OPERAND_POLICY, policies},
    {OPERAND_VOLUME, volumes},
    {OPERAND_FILES, files},
    {OPERAND_ADMIN, admin},
    {OPERAND_SHELL, shells},
};

// The action that was typed, or what can be. n: operands before the cursor, of which `typed` is the first.
static void
offer_action(const struct offers *o, const struct action *all, int n, const char *typed)
{
    for (const struct action *a = all; a->name != NULL; a++) {
        if (n == 0)
            words_word(o, a->name, a->about);
        else if (strcmp(a->name, typed) == 0)
            words_thing(o, n == 1 ? a->second : a->others);
    }
}

// Actions below one of admin.
static void
offer_admin(const struct offers *o, const struct line *l)
{
    if (strcmp(l->first, "audit-key") == 0)
        offer_action(o, audit_keys, l->operands - 1, l->second);
    else if (strcmp(l->first, "encryption") == 0)
        offer_action(o, encryption, l->operands - 1, l->second);
}

void
words_operand(const struct offers *o, const struct line *l)
{
    const struct command *c = l->command;
    const bool takes_more = l->operands == 0 || (c->args_max < 0 && c->operand == OPERAND_SANDBOX);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (c->operand == tables[i].operand)
            offer_action(o, tables[i].actions, l->operands, l->first);
    if (c->operand == OPERAND_ADMIN && l->operands > 0)
        offer_admin(o, l);
    else if (!takes_more)
        return;
    else if (c->operand == OPERAND_SANDBOX)
        words_thing(o, THING_SANDBOX);
    else if (c->operand == OPERAND_PROCESS)
        words_thing(o, THING_PROCESS);
    else if (c->operand == OPERAND_FILE)
        words_thing(o, THING_FILE);
    for (const struct command *h = commands;
         c->operand == OPERAND_HELP && takes_more && h->name != NULL; h++)
        words_word(o, h->name, h->summary);
}
