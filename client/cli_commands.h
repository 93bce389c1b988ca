// The commands, one function each; cli_commands.c has the table. Each returns the exit code.
#pragma once

#include <stdio.h>

#include "cli_options.h"

command_fn cli_run, cli_exec, cli_create, cli_ls, cli_rm, cli_pause, cli_resume, cli_get, cli_ps,
    cli_logs, cli_network, cli_forward, cli_info, cli_doctor, cli_completion, cli_version,
    cli_help_command, cli_anomalies, cli_profiles, cli_events, cli_top, cli_inspect;

// Writes what `stockade --help` and `stockade COMMAND --help` say.
void help_all(FILE *to);
void help_command(FILE *to, const struct command *c);

// Writes the completion script for "bash", "zsh" or "fish"; false for another shell.
bool completion_write(FILE *to, const char *shell);
