// SPDX-License-Identifier: Apache-2.0
// The command line: the options, the arguments of each command, and their parser.
//
// Everything is a table: help, completion and the parser read the same rows, so they cannot disagree. The command of
// `run` and `exec` starts at the first word that is not an option, or after "--".
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/stockade.h"

enum {
    OPTIONS_MOUNTS_MAX = 8,
    OPTIONS_ANSWERS_MAX = 16,
    OPTIONS_PAIRS_MAX = 256,
    OPTIONS_LABELS_MAX = 32,
    OPTIONS_TOOLS_MAX = 32,
    OPTIONS_LIST_MAX = 256
}; // the schema's

// The parsed command line. Strings are borrowed from argv.
struct options {
    struct stockade_limits limits;
    const char *token_file, *approval;
    uint64_t approval_wait_ms;
    const char *ca_file;
    const char *scopes, *form;                              // key, token
    const char *policy_file, *against, *credential, *at;    // policy
    const char *learn_file;                                 // run, exec, policy
    const char *methods, *sandboxes, *templates, *audience; // token: lists
    const char *tools[OPTIONS_TOOLS_MAX];
    size_t tools_n;
    uint64_t uses, not_before_ms;
    const char *names, *client; // admin cert: lists
    const char *new_key;        // admin encryption rotate: a file
    bool yes;                   // admin encryption forget
    bool seal;
    const char *address, *template_name, *name, *workdir;
    const char *network;    // of `networks`
    const char *output_cut; // "ok": no failure; NULL as "fail"
    const char *allow[OPTIONS_LIST_MAX];
    size_t allow_n;
    const char *inbound[OPTIONS_LIST_MAX];
    size_t inbound_n;
    struct stockade_policy policy; // limits; options_policy() adds the rest
    struct stockade_pair env[OPTIONS_PAIRS_MAX];
    size_t env_n;
    const char *unset[OPTIONS_PAIRS_MAX]; // --env NAME of variables that are not set here
    size_t unset_n;
    struct stockade_pair labels[OPTIONS_LABELS_MAX];
    size_t labels_n;
    struct stockade_mount mounts[OPTIONS_MOUNTS_MAX];
    size_t mounts_n;
    bool simulate;
    struct stockade_pair answers[OPTIONS_ANSWERS_MAX]; // destination and file
    size_t answers_n;
    char *owned[2 * OPTIONS_PAIRS_MAX + 2 * OPTIONS_MOUNTS_MAX +
                OPTIONS_ANSWERS_MAX]; // parts split off a word
    size_t owned_n;
    const char *code, *language, *context, *pictures; // code, repl
    uint64_t ttl_ms;
    uint64_t older_ms;
    uint64_t parallel, window, deadline_ms; // batch
    const char *reset;                      // batch: "sandbox" or "files"; NULL as "sandbox"
    const char *warm;                       // batch: "python"; NULL: none
    const char *transaction;                // exec: "ask" or "on-success"; NULL: none
    const char *key;                        // also audit: public
    uint64_t since;                         // logs: offset
    const char *sandbox, *rule, *severity, *tenant;
    const char *reason, *comm; // anomalies
    bool suppress_response;
    uint64_t learn;                // profiles: runs
    uint64_t count;                // fork
    const char *snapshot, *source; // fork; template: SANDBOX[:SNAPSHOT]
    uint64_t size;                 // volume
    const char *event_kinds[OPTIONS_LIST_MAX];
    size_t event_kinds_n;
    uint64_t from;           // events: sequence number
    uint64_t interval_ms;    // top
    const char *mode, *glob; // fs
    bool zstd, unpack;       // cp
    uint64_t ratio;
    const char *path;           // snapshot; audit: of a proof
    uint64_t sleep_after_ms;    // create
    uint64_t copy_max, copy_ms; // snapshot, fork
    bool check;                 // policy
    bool prove, once, syscalls, resume, stop, replace, keep, copy, force, recursive, parents,
        no_clobber, no_cache;
    bool patch, kept, host; // snapshot; rules
    bool json, bill, interactive, terminal, no_stdin, detach, follow, all, no_trunc, quiet, rules,
        prometheus, openmetrics, help, version;
    const char *const *args; // operands, terminated by NULL
    int args_n;
};

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_PATH, // in a sandbox
    OPTION_BYTES,
    OPTION_DURATION,
    OPTION_CPUS,
    OPTION_COUNT,
    OPTION_NUMBER, // may be 0
    OPTION_LABEL,
    OPTION_VOLUME,
    OPTION_MOUNT,
    OPTION_ENV,
    OPTION_NETWORK,
    OPTION_CUT,
    OPTION_RESET,
    OPTION_WARM,
    OPTION_FORM,
    OPTION_TRANSACTION,
    OPTION_ANSWER,
    OPTION_TOOL,
    OPTION_SEVERITY,
    OPTION_ALLOW,
    OPTION_INBOUND,
    OPTION_EVENT_KIND,
    OPTION_FORMAT,
    OPTION_OUTPUT, // a size, or a format
    OPTION_KINDS,
};

struct option_row {
    const char *name; // without "--"
    char letter;      // or 0
    enum option_kind kind;
    size_t offset;     // of its field in struct options
    const char *value; // in help: "SIZE"; NULL for a flag
    const char *help;
    const char *const *choices; // completion; NULL: none
};

struct command;
typedef int command_fn(const struct command *c, const struct options *o);

// The kind of a positional argument, for help and completion.
enum operand {
    OPERAND_NONE,
    OPERAND_TRANSACTION,
    OPERAND_SANDBOX,
    OPERAND_PROCESS,
    OPERAND_SHELL,
    OPERAND_COMMAND,
    OPERAND_FILE,
    OPERAND_PROFILES,
    OPERAND_SNAPSHOT,
    OPERAND_CHECKPOINT,
    OPERAND_TEMPLATE,
    OPERAND_VOLUME,
    OPERAND_KEY,
    OPERAND_ADMIN,
    OPERAND_POLICY,
    OPERAND_TOKEN,
    OPERAND_APPROVAL,
    OPERAND_AUDIT, // ACTION [WORD] FILE...
    OPERAND_RULES, // ACTION [RULE] FILE...
    OPERAND_ANOMALIES,
    OPERAND_HELP,
    OPERAND_FILES, // ACTION SANDBOX PATH...
};

struct command {
    const char *name;
    const char *summary;
    const char *usage;   // what follows "stockade NAME "
    const char *details; // paragraphs for --help, or NULL
    const struct option_row *const
        *options; // groups, terminated by NULL; each group terminated by {0}
    enum operand operand;
    int args_min, args_max; // args_max < 0: any
    bool rest;              // options end at the first operand
    bool passes_exit_code;  // of the job; its own failures are then 125
    command_fn *run;
};

// All commands, terminated by {0} (commands.c).
extern const struct command commands[];

// Options of every command.
extern const struct option_row options_common[];

// Options that may precede the command.
extern const struct option_row *const options_main[];

// The option of these groups with this name (n bytes) or letter; or NULL.
const struct option_row *options_long(const struct option_row *const *groups, const char *name,
                                      size_t n);
const struct option_row *options_letter(const struct option_row *const *groups, char letter);

// Finds a command, or NULL.
const struct command *command_find(const char *name);

// The command with the name nearest to the typed word, or NULL.
const char *command_nearest(const char *typed);

// A problem of a command line.
struct problem {
    char why[256];  // a sentence
    char hint[256]; // what helps, or ""
};

// Parses argv[0..argc) into *o, which already holds the options before the command. 0, or -EINVAL with the problem. On
// success the texts of *p are empty.
int options_parse(struct options *o, const struct option_row *const *groups, bool rest, int argc,
                  char **argv, struct problem *p);

// The network policy of the options, borrowed from *o; false: no network option was given. --allow alone implies an
// allowlist.
bool options_policy(const struct options *o, struct stockade_policy *out);

// Frees memory of the parser.
void options_free(struct options *o);
