// SPDX-License-Identifier: Apache-2.0
// The long texts of `stockade COMMAND --help` and the manual, one for each command that needs more than its options.
#pragma once

extern const char code_details[], checkpoint_details[], repl_details[], run_details[],
    batch_details[], exec_details[], update_details[], sleep_details[], profiles_details[],
    volume_details[], key_details[], token_details[], approvals_details[], audit_details[],
    anomalies_details[], rules_details[], admin_details[], snapshot_details[], template_details[],
    transaction_details[], fork_details[], events_details[], top_details[], inspect_details[],
    metrics_details[], doctor_details[], network_details[], policy_details[], forward_details[],
    copy_details[], files_details[], completion_details[];
