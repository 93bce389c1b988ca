// SPDX-License-Identifier: Apache-2.0
// What the files of `completion words` share: words.c reads the line, words_operands.c knows the operands of each command, and
// words_broker.c asks the broker.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "commands.h"

struct stockade;

// The meaning of the words before the cursor's.
struct line {
    const struct command *command;    // NULL: none yet
    const struct option_row *awaited; // the option with the value at the cursor, or NULL
    const char *address, *token_file, *ca_file;
    int operands;
    const char *first, *second; // of them
    int command_at; // index (from 1) of the first word of the command for the sandbox; 0: none yet
    bool ended;     // no option can follow
    bool lost;      // unknown command
};

// The receiver of completions, and the text that was typed so far.
struct offers {
    FILE *to;
    const char *prefix; // "--name=" in front of a value, or ""
    const char *typed;
    const char *address, *token_file, *ca_file;
};

// What can stand at a position of a line.
enum thing {
    THING_NONE,
    THING_FILE, // or a folder; the shell completes it
    THING_SANDBOX,
    THING_PROCESS,
    THING_TEMPLATE,
    THING_VOLUME,
    THING_TARGET,   // a sandbox, or "volume:NAME"
    THING_KEY,      // an API key that is not revoked
    THING_APPROVAL, // any
    THING_PENDING,  // an approval without an answer
    THING_RULE,     // a rule of the caller's own
    THING_RULES,    // a file of rules that the broker keeps
    THING_SET,      // of destinations
};

// Completes a word.
void words_word(const struct offers *o, const char *word, const char *about);

// Completes a thing, with an answer of the broker if it knows them. Prints nothing on failure.
void words_thing(const struct offers *o, enum thing thing);

// Completes an operand of the command of the line.
void words_operand(const struct offers *o, const struct line *l);
