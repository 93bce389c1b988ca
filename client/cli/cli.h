// SPDX-License-Identifier: Apache-2.0
// Common functions of the commands: connecting to the broker, reporting failures, and exit codes for scripts.
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "options.h"
#include "names.h"
#include "client/stockade.h"

// Exit codes. Those of `run` and `exec` are the job's own, or 124 to 127 and 128+n as in docker and timeout(1).
enum {
    EXIT_OK = 0,
    EXIT_PROBLEM = 1,  // other commands: failure
    EXIT_USAGE = 2,    // other commands: a wrong command line
    EXIT_CUT = 74,     // the job exited with 0, but its output was cut (EX_IOERR)
    EXIT_WAITING = 75, // temporary failure: broker not available, or full (sysexits.h EX_TEMPFAIL)
    EXIT_REFUSED = 77, // not permitted (EX_NOPERM)
    EXIT_TIME = 124,   // a time limit ended the job
    EXIT_OURS = 125,   // Stockade failed, or a wrong command line
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128,                 // + its number
    EXIT_PIPE = EXIT_SIGNAL + SIGPIPE, // the reader has closed the output
};

enum { CLI_TOKEN_BYTES_MAX = 8 * 1024, APPROVAL_WAIT_MAX_MS = 600000 };

// Reads the first line of the file of --token-file. NULL, or why there is no token in it.
const char *cli_read_token(const char *path, char out[CLI_TOKEN_BYTES_MAX]);

// Opens a handle for --address. NULL: the failure was reported; *code is the exit code.
struct stockade *cli_open(const struct command *c, const struct options *o, int *code);

// Reports on stderr that a command that follows has lost the connection, with the reason, or has it again (NULL).
void cli_connection(const struct command *c, const struct stockade_error *lost);

// With -o json failures and wrong command lines also go to stdout, as {"error": {...}}.
void cli_errors_as_json(bool on);

// Until it is called with NULL, a failure is kept in *e instead of being reported: more will be known about it.
void cli_hold_error(struct stockade_error *e);

// Reports a failure on stderr: a sentence, the rule or limit, the hint. Returns its exit code.
int cli_fail(const struct command *c, const char *what, const struct stockade_error *e);

// The same where the line gives what is wrong as an argument: its text names the field, not an option of this name.
int cli_fail_operand(const struct command *c, const char *what, const struct stockade_error *e);

// The same for a call on the named sandbox: if it does not exist, suggests the nearest name.
int cli_fail_sandbox(struct stockade *s, const struct command *c, const char *typed,
                     struct stockade_error *e);

// Flushes stdout. If it cannot be written: 128 + SIGPIPE if the reader has closed it, else EXIT_PROBLEM, after
// reporting it.
int cli_flush(const struct command *c);

// Reports a wrong command line. Returns its exit code.
int cli_usage(const struct command *c, const char *why, const char *hint);

// fork.c. Options of fork and snapshot about copies that contradict each other: as cli_usage(), or EXIT_OK.
int cli_check_copy(const struct command *c, const struct options *o);

// The exit code for an error and for a result.
int exit_code_of_error(const struct stockade_error *e, bool passes_exit_code);
int exit_code_of_result(const struct stockade_result *r);

// Of what was cancelled for this reason: EXIT_WAITING if the broker was stopping, or 128 + SIGKILL.
int exit_code_of_cancelled(const char *reason);

enum {
    CLI_ID_SIZE = 49, // of an id with its NUL (Sandbox.id in sandbox_service.proto)
    CLI_SHORT_ID_SIZE = 13,
};

// The first 12 hex digits of an id, as tables show it: without the node name, which is that of the broker. Returns out.
const char *cli_short_id(const char *id, char out[CLI_SHORT_ID_SIZE]);

// The option that sets a limit ("memory" for "memory_bytes"), or NULL.
const char *cli_option_of_limit(const char *limit);

// Whether this can be a process's id, or its first digits; reports it if not.
bool cli_names_process(const struct command *c, const char *typed, int *code);

// The full id for the typed text: an id, the first digits of one (at least 6), or a sandbox's name. False: the failure
// was reported (*code: the exit code).
bool cli_find_process(struct stockade *s, const struct command *c, const char *typed,
                      char out[CLI_ID_SIZE], int *code);
bool cli_find_sandbox(struct stockade *s, const struct command *c, const char *typed, char out[65],
                      int *code);

// The target of a command on files: a sandbox as above, or "volume:NAME", which stays as it is. The length of the broker's field.
enum { CLI_TARGET_SIZE = 72 };
bool cli_find_target(struct stockade *s, const struct command *c, const char *typed,
                     char out[CLI_TARGET_SIZE], int *code);

// The same as cli_find_sandbox(), but names are not accepted. A full id is accepted as it is: events of removed sandboxes still exist.
bool cli_find_sandbox_id(struct stockade *s, const struct command *c, const char *typed,
                         char out[CLI_ID_SIZE], int *code);
