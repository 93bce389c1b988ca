// SPDX-License-Identifier: Apache-2.0
// What the commands share: reaching the broker, saying what went wrong, and the exit code that says it to scripts.
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "cli_options.h"
#include "stockade.h"

// Exit codes. Those of `run` and `exec` are the job's own, or 124 to 127 and 128+n as docker and timeout(1) have them.
enum {
    EXIT_OK = 0,
    EXIT_PROBLEM = 1,  // of other commands: it did not work
    EXIT_USAGE = 2,    // of other commands: a wrong command line
    EXIT_CUT = 74,     // a job ended well, but output of it was cut (EX_IOERR)
    EXIT_WAITING = 75, // not now: broker away, or full (sysexits.h EX_TEMPFAIL)
    EXIT_REFUSED = 77, // not allowed (EX_NOPERM)
    EXIT_TIME = 124,   // a time limit ended the job
    EXIT_OURS = 125,   // Stockade failed, or a wrong command line
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL = 128,                 // + its number
    EXIT_PIPE = EXIT_SIGNAL + SIGPIPE, // nobody reads the output any more
};

// A handle for --address. NULL after the failure has been told; *code is then what to exit with.
struct stockade *cli_open(const struct command *c, const struct options *o, int *code);

// Tells a failure on stderr: a sentence, the rule or limit, the hint. Returns the exit code for it.
int cli_fail(const struct command *c, const char *what, const struct stockade_error *e);

// The same for a call on the sandbox that was typed: when there is none, the nearest name helps.
int cli_fail_sandbox(struct stockade *s, const struct command *c, const char *typed,
                     struct stockade_error *e);

// Sends on what stdout holds. Where it cannot be written: 128 + SIGPIPE when nobody reads it any more, or EXIT_PROBLEM after
// that has been told.
int cli_flush(const struct command *c);

// Tells a wrong command line. Returns the exit code for it.
int cli_usage(const struct command *c, const char *why, const char *hint);

// The exit code for an error and for a result.
int exit_code_of_error(const struct stockade_error *e, bool passes_exit_code);
int exit_code_of_result(const struct stockade_result *r);

// "memory_bytes" -> "memory": the option that sets a limit, or NULL.
const char *cli_option_of_limit(const char *limit);

// "OUTCOME" as JSON and people have it: "EXITED", or "UNKNOWN".
const char *cli_outcome_name(uint32_t outcome);
const char *cli_state_name(uint32_t state);
const char *cli_network_name(uint32_t network);
const char *cli_severity_name(uint32_t severity); // "warning", or "?"
uint32_t cli_severity_number(const char *name);   // 0: NULL, or no such
int cli_network_number(const char *name);         // enum stockade_network; NULL: the template's

// Whether this can be a process's id, or the beginning of one; told where it cannot.
bool cli_names_process(const struct command *c, const char *typed, int *code);

// The full id for what was typed: an id, the beginning of one (6 hex digits at least), or a sandbox's name. Returns
// false after the failure has been told (*code: what to exit with).
bool cli_find_process(struct stockade *s, const struct command *c, const char *typed, char out[33],
                      int *code);
bool cli_find_sandbox(struct stockade *s, const struct command *c, const char *typed, char out[65],
                      int *code);

// The same, where a name would not do. A full id is taken as it is: of one that is gone there are events still.
bool cli_find_sandbox_id(struct stockade *s, const struct command *c, const char *typed,
                         char out[33], int *code);
