// SPDX-License-Identifier: Apache-2.0
// The commands, one function each; commands.c has the table. Each returns the exit code.
#pragma once

#include <stdio.h>

#include "options.h"

command_fn cli_run, cli_batch, cli_exec, cli_create, cli_ls, cli_rm, cli_pause, cli_resume,
    cli_sleep, cli_wake, cli_update, cli_get, cli_ps, cli_logs, cli_network, cli_forward, cli_info,
    cli_metrics, cli_doctor, cli_completion, cli_version, cli_help_command, cli_anomalies,
    cli_profiles, cli_events, cli_top, cli_inspect, cli_cp, cli_fs, cli_snapshot, cli_fork,
    cli_code, cli_repl, cli_checkpoint, cli_template, cli_transaction, cli_volume, cli_key,
    cli_admin, cli_policy, cli_token, cli_approvals, cli_audit, cli_rules;

// Prints `stockade --help` and `stockade COMMAND --help`.
void help_all(FILE *to);
void help_command(FILE *to, const struct command *c);

// Prints the completions of the last of n words of a command line (without "stockade"), one per line, with a tab and a
// description. Or, alone, a task for the shell: ":files", or ":command N": from the N-th word on (from 1) it is the
// line of another command. Requests names from the broker, for at most 3 s; without a broker it offers none.
void words_offer(FILE *to, const char *const *words, int n);

// Writes the completion script for "bash", "zsh" or "fish"; false for another shell.
bool completion_write(FILE *to, const char *shell);
