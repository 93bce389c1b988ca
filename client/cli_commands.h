// SPDX-License-Identifier: Apache-2.0
// The commands, one function each; cli_commands.c has the table. Each returns the exit code.
#pragma once

#include <stdio.h>

#include "cli_options.h"

command_fn cli_run, cli_exec, cli_create, cli_ls, cli_rm, cli_pause, cli_resume, cli_update,
    cli_get, cli_ps, cli_logs, cli_network, cli_forward, cli_info, cli_doctor, cli_completion,
    cli_version, cli_help_command, cli_anomalies, cli_profiles, cli_events, cli_top, cli_inspect;

// Writes what `stockade --help` and `stockade COMMAND --help` say.
void help_all(FILE *to);
void help_command(FILE *to, const struct command *c);

// Writes what the last of n words of a command line (without "stockade") can become, one on each line, with a tab and what
// it is. Or, alone, what the shell knows better: ":files", or ":command N": from the N-th word on (the first is 1) it is
// the line of another command. Asks the broker for names, for 3 s at most; without one there are none.
void words_offer(FILE *to, const char *const *words, int n);

// Writes the completion script for "bash", "zsh" or "fish"; false for another shell.
bool completion_write(FILE *to, const char *shell);
