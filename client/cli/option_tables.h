// SPDX-License-Identifier: Apache-2.0
// The options of the commands, each table terminated by {0}; commands.c says which command has which.
#pragma once

#include <stddef.h>

#include "options.h"

// Where a row stores its value: a field of struct options, of its limits, or of its network policy.
#define AT(field)     offsetof(struct options, field)
#define LIMIT(field)  offsetof(struct options, limits.field)
#define POLICY(field) offsetof(struct options, policy.field)

// options_run.c
extern const struct option_row job_limit_options[], sandbox_limit_options[], network_options[],
    sandbox_options[], mount_options[], job_options[], batch_options[], exec_options[],
    cell_options[], code_options[], repl_options[], create_options[], sleep_options[],
    update_options[], ls_options[], ps_options[], rm_options[];

// options_files.c
extern const struct option_row copy_options[], files_options[], snapshot_options[],
    transaction_options[], simulate_options[], fork_options[], checkpoint_options[],
    template_options[], volume_options[];

// options_watch.c
extern const struct option_row info_options[], logs_options[], inspect_options[],
    anomalies_options[], rules_options[], events_options[], top_options[], profiles_options[],
    metrics_options[];

// options_access.c
extern const struct option_row key_options[], approvals_options[], token_options[], audit_options[],
    admin_options[];

// policies.c
extern const struct option_row policy_options[];
