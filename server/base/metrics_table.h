// SPDX-License-Identifier: Apache-2.0
// Every metric of the broker, one row each. See metrics.h for how they are counted and read.
//
// Names, units and types follow Prometheus and OpenMetrics: names begin with "stockade_", counters end with "_total",
// times are seconds. A label has a small, fixed set of values: never a sandbox or a job, and tenants only up to a number that
// the configuration sets.
#pragma once

// LABEL(id, name, values): values are numbered from 0; `values` is their greatest number plus 1. A layer that owns the
// names of the values registers them at its start (metrics_name_value()).
#define METRIC_LABELS(LABEL)                                                                       \
    LABEL(NONE, "", 1)                                                                             \
    LABEL(METHOD, "method", 128)      /* 0: of no method that exists; dispatch.c */                \
    LABEL(CODE, "code", 17)           /* enum err_code */                                          \
    LABEL(REFUSAL, "reason", 5)       /* conn.c */                                                 \
    LABEL(TLS, "reason", 4)           /* transport_tls.c */                                        \
    LABEL(FETCH, "result", 2)         /* enum metric_fetch */                                      \
    LABEL(LEVEL, "level", 4)          /* enum log_level */                                         \
    LABEL(STATE, "state", 9)          /* enum sandbox_state */                                     \
    LABEL(JOB_STATE, "state", 3)      /* enum job_state */                                         \
    LABEL(OUTCOME, "outcome", 8)      /* enum outcome */                                           \
    LABEL(LIMIT, "limit", 16)         /* enum limit */                                             \
    LABEL(STATUS, "status", 8)        /* enum code_status */                                       \
    LABEL(TEMPLATE, "template", 32)   /* template.number */                                        \
    LABEL(OPERATION, "operation", 48) /* enum spawn_op */                                          \
    LABEL(KIND, "kind", 128)          /* EventKind of the schema */                                \
    LABEL(CLASS, "class", 16)         /* classes of bpf/emit.h */                                  \
    LABEL(SINK, "sink", 8)            /* events_sink_add() */                                      \
    LABEL(RULE, "rule", 56)           /* enum anomaly_rule */                                      \
    LABEL(RESPONSE, "response", 7)    /* enum response */                                          \
    LABEL(VERDICT, "verdict", 4)      /* enum policy_verdict */                                    \
    LABEL(TENANT, "tenant", 65)       /* metrics_tenant(); 0: all others */                        \
    LABEL(DENIAL, "operation", 16)    /* kinds.c: hooks, and two of the relay */                   \
    LABEL(DIAL, "result", 4)          /* enum metric_dial */                                       \
    LABEL(ANSWER, "result", 4)        /* enum relay_answer */                                      \
    LABEL(DIRECTION, "direction", 2)  /* enum metric_direction */                                  \
    LABEL(MAP, "map", 4)              /* enum metric_map */                                        \
    LABEL(PROCESS, "process", 4)      /* enum metric_process */                                    \
    LABEL(SLEEP, "state", 2)          /* sleep/sleepers.c */                                       \
    LABEL(APPROVAL, "outcome", 6)     /* ApprovalState of the schema */                            \
    LABEL(KEPT, "kind", 3)            /* enum store_kind */                                        \
    LABEL(VERSION, "version", 1)

// COUNTER(id, unit, label, label, name, help)
// GAUGE(id, unit, label, name, help)
// PAIR(id, unit, label, label, name, help): a gauge with two labels
// TIMES(id, label, name, help): a histogram of times; METRIC_BOUNDS below
// LOSS(id, label, name, help, part, sentence): a counter that should stay 0. While it does not, SystemService.Info says
// "part: N sentence" among what is degraded.
#define METRICS_TABLE(COUNTER, GAUGE, PAIR, TIMES, LOSS)                                           \
    GAUGE(BUILD_INFO, NUMBER, VERSION, "stockade_build_info",                                      \
          "Always 1; the label is the version of the broker.")                                     \
    GAUGE(START_TIME, SECONDS, NONE, "stockade_start_time_seconds",                                \
          "Time at which the broker started, since 1970.")                                         \
    GAUGE(SERVING, NUMBER, NONE, "stockade_serving",                                               \
          "Whether the health service reports SERVING: 1 or 0.")                                   \
    COUNTER(RELOADS, NUMBER, NONE, NONE, "stockade_config_reloads_total",                          \
            "Times that the configuration was read again and applied.")                            \
    COUNTER(RELOADS_REFUSED, NUMBER, NONE, NONE, "stockade_config_reloads_refused_total",          \
            "Times that a changed configuration was refused as a whole.")                          \
    COUNTER(LOG_LINES, NUMBER, LEVEL, NONE, "stockade_log_lines_total",                            \
            "Lines written to the log, by level.")                                                 \
    COUNTER(LOG_OMITTED, NUMBER, NONE, NONE, "stockade_log_omitted_lines_total",                   \
            "Lines about peers that were not written, because there were too many.")               \
    LOSS(LOG_LOST, NONE, "stockade_log_lost_lines_total",                                          \
         "Lines of the log that were lost because stderr was full.", "log",                        \
         "lines were lost because stderr was full")                                                \
    GAUGE(PROCESS_MEMORY, BYTES, PROCESS, "stockade_process_resident_memory_bytes",                \
          "Resident memory of the processes of Stockade, by process.")                             \
    GAUGE(DESCRIPTORS, NUMBER, NONE, "stockade_broker_open_descriptors",                           \
          "Open descriptors of the broker.")                                                       \
    GAUGE(DESCRIPTORS_MAX, NUMBER, NONE, "stockade_broker_max_descriptors",                        \
          "Descriptors that the broker may have open.")                                            \
    GAUGE(CONNECTIONS, NUMBER, NONE, "stockade_rpc_connections", "Open connections.")              \
    COUNTER(ACCEPTED, NUMBER, NONE, NONE, "stockade_rpc_connections_accepted_total",               \
            "Connections that were accepted.")                                                     \
    LOSS(REFUSED, REFUSAL, "stockade_rpc_connections_refused_total",                               \
         "Connections that were closed at once, by reason.", "rpc.connections",                    \
         "connections were refused because there were too many")                                   \
    LOSS(ACCEPT_FAILED, NONE, "stockade_rpc_accept_failures_total",                                \
         "Failed attempts to accept a connection, such as without memory or a free descriptor.",   \
         "rpc.accept", "attempts to accept a connection failed")                                   \
    COUNTER(HANDSHAKE_FAILED, NUMBER, NONE, NONE, "stockade_rpc_handshake_failures_total",         \
            "Connections that did not begin with the greeting of an SP REQ socket in time.")       \
    COUNTER(TLS_HANDSHAKES, NUMBER, NONE, NONE, "stockade_tls_handshakes_total",                   \
            "TLS handshakes that were completed.")                                                 \
    COUNTER(TLS_FAILED, NUMBER, TLS, NONE, "stockade_tls_handshake_failures_total",                \
            "Connections that ended without a TLS handshake, by reason.")                          \
    COUNTER(PROTOCOL_ERRORS, NUMBER, NONE, NONE, "stockade_rpc_protocol_errors_total",             \
            "Frames that break the protocol.")                                                     \
    LOSS(UNREAD_CLOSED, NONE, "stockade_rpc_unread_connections_closed_total",                      \
         "Connections that were closed because their peer left too many bytes unread.",            \
         "rpc.queue_kill", "connections whose peer did not read were closed")                      \
    LOSS(STALLED_CLOSED, NONE, "stockade_rpc_stalled_connections_closed_total",                    \
         "Connections that were closed because their peer read nothing for too long.",             \
         "rpc.write_stall", "connections whose peer stopped reading were closed")                  \
    COUNTER(RECEIVED_BYTES, BYTES, NONE, NONE, "stockade_rpc_received_bytes_total",                \
            "Bytes read from connections.")                                                        \
    COUNTER(SENT_BYTES, BYTES, NONE, NONE, "stockade_rpc_sent_bytes_total",                        \
            "Bytes written to connections.")                                                       \
    COUNTER(POLICY_DECISIONS, NUMBER, VERDICT, NONE, "stockade_policy_decisions_total",            \
            "Calls that the policy in force was asked about, by its verdict.")                     \
    COUNTER(CREDENTIALS_REFUSED, NUMBER, NONE, NONE, "stockade_credentials_refused_total",         \
            "Calls that were refused because of their credential.")                                \
    COUNTER(ISSUER_FETCHES, NUMBER, FETCH, NONE, "stockade_issuer_key_fetches_total",              \
            "Times that the key set of an issuer of tokens was fetched, by result.")               \
    GAUGE(APPROVALS_PENDING, NUMBER, NONE, "stockade_approvals_pending",                           \
          "Approvals that wait for an answer.")                                                    \
    COUNTER(APPROVALS_ANSWERED, NUMBER, APPROVAL, NONE, "stockade_approvals_answered_total",       \
            "Approvals that ended, by outcome.")                                                   \
    TIMES(APPROVAL_WAIT, NONE, "stockade_approval_wait_seconds",                                   \
          "Time that ended approvals were pending.")                                               \
    COUNTER(AUDIT_RECORDS, NUMBER, NONE, NONE, "stockade_audit_records_total",                     \
            "Records that were written to the audit log.")                                         \
    COUNTER(AUDIT_BYTES, BYTES, NONE, NONE, "stockade_audit_written_bytes_total",                  \
            "Bytes that were written to the audit log.")                                           \
    COUNTER(AUDIT_CHECKPOINTS, NUMBER, NONE, NONE, "stockade_audit_checkpoints_total",             \
            "Checkpoints that were signed.")                                                       \
    GAUGE(AUDIT_CHECKPOINT_TIME, SECONDS, NONE, "stockade_audit_checkpoint_time_seconds",          \
          "Time of the last checkpoint of the audit log, since 1970.")                             \
    GAUGE(AUDIT_QUEUE, BYTES, NONE, "stockade_audit_queue_bytes",                                  \
          "Records that wait to be written to the audit log.")                                     \
    COUNTER(AUDIT_FAILURES, NUMBER, NONE, NONE, "stockade_audit_write_failures_total",             \
            "Failed attempts to write the audit log, such as because the disk is full.")           \
    COUNTER(AUDIT_REFUSED, NUMBER, NONE, NONE, "stockade_audit_refused_calls_total",               \
            "Calls that were refused because the audit log could not be written.")                 \
    COUNTER(AUDIT_MISSED, NUMBER, NONE, NONE, "stockade_audit_missed_records_total",               \
            "Records that found no room, and whose number is in the audit log instead.")           \
    GAUGE(CALLS_OPEN, NUMBER, NONE, "stockade_rpc_open_calls",                                     \
          "Calls in progress, streams included.")                                                  \
    GAUGE(STREAMS_OPEN, NUMBER, NONE, "stockade_rpc_open_streams", "Streams in progress.")         \
    COUNTER(CALLS, NUMBER, METHOD, CODE, "stockade_rpc_calls_total",                               \
            "Calls that ended, by method and code.")                                               \
    TIMES(CALL_TIME, METHOD, "stockade_rpc_call_duration_seconds",                                 \
          "Time from the arrival of a call to its end.")                                           \
    COUNTER(CALLS_REPEATED, NUMBER, NONE, NONE, "stockade_rpc_repeated_calls_total",               \
            "Calls that got the result of another call with the same idempotency key.")            \
    COUNTER(RESULTS_NOT_KEPT, NUMBER, NONE, NONE, "stockade_rpc_unkept_results_total",             \
            "Results of calls with an idempotency key that found no room to be kept.")             \
    PAIR(SANDBOXES, NUMBER, STATE, TEMPLATE, "stockade_sandboxes",                                 \
         "Sandboxes, by state and template; READY ones are in the pool.")                          \
    GAUGE(SLEEPING, NUMBER, SLEEP, "stockade_sleeping_sandboxes",                                  \
          "Sandboxes that have slept and are kept on the disk, by state: asleep, or awake again.") \
    COUNTER(SLEEPS, NUMBER, NONE, NONE, "stockade_sandbox_sleeps_total",                           \
            "Times that a sandbox fell asleep.")                                                   \
    COUNTER(                                                                                       \
        SLEEPS_FAILED, NUMBER, NONE, NONE, "stockade_sandbox_sleep_failures_total",                \
        "Times that a sandbox did not fall asleep: a call needed it, or it could not be kept.")    \
    TIMES(SLEEP_TIME, NONE, "stockade_sandbox_sleep_duration_seconds",                             \
          "Time until the files of a sandbox were on the disk and the rest of it was removed.")    \
    COUNTER(WAKES, NUMBER, NONE, NONE, "stockade_sandbox_wakes_total",                             \
            "Times that a sandbox woke up.")                                                       \
    COUNTER(WAKES_FAILED, NUMBER, NONE, NONE, "stockade_sandbox_wake_failures_total",              \
            "Times that a sandbox could not be woken up, and stayed asleep.")                      \
    TIMES(WAKE_TIME, NONE, "stockade_sandbox_wake_duration_seconds",                               \
          "Time until a sandbox that was asleep had its files again.")                             \
    COUNTER(SLEEPERS_FELL_BACK, NUMBER, NONE, NONE, "stockade_sandboxes_fell_back_total",          \
            "Sandboxes that were lost while they were awake, and are as they last fell asleep.")   \
    GAUGE(                                                                                         \
        KEPT_RECORDS, NUMBER, KEPT, "stockade_kept_states",                                        \
        "States of files in the state directory, by kind: snapshots, sandboxes that have slept, "  \
        "templates that callers made.")                                                            \
    GAUGE(KEPT_LAYERS, NUMBER, NONE, "stockade_kept_layers",                                       \
          "Layers of these states; states share layers.")                                          \
    GAUGE(KEPT_BYTES, BYTES, NONE, "stockade_kept_bytes", "Bytes of these layers.")                \
    TIMES(KEEP_TIME, NONE, "stockade_keep_duration_seconds",                                       \
          "Time until a state of files was on the disk.")                                          \
    COUNTER(KEEPS_FAILED, NUMBER, NONE, NONE, "stockade_keep_failures_total",                      \
            "Times that a state of files could not be kept.")                                      \
    COUNTER(KEPT_DAMAGED, NUMBER, NONE, NONE, "stockade_kept_damaged_layers_total",                \
            "Layers whose files were not what was written when they were read.")                   \
    COUNTER(BIRTHS, NUMBER, NONE, NONE, "stockade_sandbox_births_total",                           \
            "Sandboxes that became ready.")                                                        \
    COUNTER(BIRTHS_FAILED, NUMBER, NONE, NONE, "stockade_sandbox_birth_failures_total",            \
            "Sandboxes that could not be created.")                                                \
    TIMES(BIRTH_TIME, NONE, "stockade_sandbox_birth_duration_seconds",                             \
          "Time from the request to the spawner until the guest of a sandbox is ready.")           \
    COUNTER(SANDBOXES_LOST, NUMBER, NONE, NONE, "stockade_sandboxes_lost_total",                   \
            "Sandboxes that were removed because their guest failed.")                             \
    COUNTER(KERNEL_MEMORY_ENDS, NUMBER, NONE, NONE, "stockade_sandboxes_kernel_memory_ends_total", \
            "Sandboxes that were destroyed because they made the kernel hold lists of names.")     \
    LOSS(SANDBOXES_LEFT, NONE, "stockade_sandboxes_unremoved_total",                               \
         "Sandboxes that could not be removed completely.", "sandboxes",                           \
         "sandboxes could not be removed completely")                                              \
    GAUGE(POOL_READY, NUMBER, TEMPLATE, "stockade_pool_ready", "Ready sandboxes, by template.")    \
    GAUGE(POOL_WARM, NUMBER, TEMPLATE, "stockade_pool_warm",                                       \
          "Ready sandboxes whose interpreter runs already, by template.")                          \
    GAUGE(POOL_WARM_BYTES, BYTES, TEMPLATE, "stockade_pool_warm_sandbox_bytes",                    \
          "Memory of the last sandbox whose interpreter was started ahead, by template.")          \
    COUNTER(POOL_WARM_FAILED, NUMBER, NONE, NONE, "stockade_pool_warm_failures_total",             \
            "Sandboxes whose interpreter could not be started ahead.")                             \
    COUNTER(POOL_HITS, NUMBER, NONE, NONE, "stockade_pool_hits_total",                             \
            "Requests for a sandbox that found a ready one.")                                      \
    COUNTER(POOL_MISSES, NUMBER, NONE, NONE, "stockade_pool_misses_total",                         \
            "Requests for a sandbox that had to wait for one.")                                    \
    COUNTER(POOL_FAILED, NUMBER, NONE, NONE, "stockade_pool_failures_total",                       \
            "Requests for a sandbox that were given up: timeout, failed birth, shutdown.")         \
    COUNTER(POOL_FULL, NUMBER, NONE, NONE, "stockade_pool_queue_full_total",                       \
            "Requests for a sandbox that were refused because quotas.queue was reached.")          \
    GAUGE(POOL_WAITING, NUMBER, NONE, "stockade_pool_queue_length",                                \
          "Requests that wait for a sandbox.")                                                     \
    GAUGE(POOL_AGE, SECONDS, NONE, "stockade_pool_oldest_wait_seconds",                            \
          "Time that the oldest request in the queue has waited for a sandbox.")                   \
    TIMES(POOL_WAIT, NONE, "stockade_pool_wait_seconds",                                           \
          "Time from a request for a sandbox until it has one, with its limits and network.")      \
    COUNTER(COPIES, NUMBER, NONE, NONE, "stockade_layer_copies_total",                             \
            "Layers of files that were copied: for snapshots and forks while jobs ran.")           \
    COUNTER(COPIED_BYTES, BYTES, NONE, NONE, "stockade_layer_copied_bytes_total",                  \
            "Bytes that these layers take.")                                                       \
    COUNTER(COPY_FROZEN, SECONDS, NONE, NONE, "stockade_layer_copy_frozen_seconds_total",          \
            "Time that sandboxes were frozen for copies of their files.")                          \
    COUNTER(                                                                                       \
        JOINS, NUMBER, NONE, NONE, "stockade_layer_joins_total",                                   \
        "Layers of files that were made of several others, because too many lay on each other.")   \
    COUNTER(JOINED_LAYERS, NUMBER, NONE, NONE, "stockade_layer_joined_layers_total",               \
            "Layers of files that were joined in these.")                                          \
    COUNTER(JOINED_BYTES, BYTES, NONE, NONE, "stockade_layer_joined_bytes_total",                  \
            "Bytes that these layers take.")                                                       \
    COUNTER(JOINS_FAILED, NUMBER, NONE, NONE, "stockade_layer_join_failures_total",                \
            "Layers of files that could not be joined; it is tried again later.")                  \
    GAUGE(TRANSACTIONS, NUMBER, NONE, "stockade_transactions", "Transactions that are open.")      \
    COUNTER(TRANSACTIONS_BEGUN, NUMBER, NONE, NONE, "stockade_transactions_begun_total",           \
            "Transactions that were begun.")                                                       \
    COUNTER(TRANSACTIONS_DISCARDED, NUMBER, NONE, NONE, "stockade_transactions_discarded_total",   \
            "Transactions that were discarded, or ended with a sandbox.")                          \
    COUNTER(TRANSACTIONS_REFUSED, NUMBER, NONE, NONE,                                              \
            "stockade_transaction_commit_failures_total",                                          \
            "Commits that failed, conflicts included; the transaction stays open.")                \
    COUNTER(TRANSACTION_CONFLICTS, NUMBER, NONE, NONE, "stockade_transaction_conflicts_total",     \
            "Commits that failed because both had changed the same files.")                        \
    TIMES(TRANSACTION_COMMIT, NONE, "stockade_transaction_commit_seconds",                         \
          "Time from the request for a commit until the sandbox had the files.")                   \
    GAUGE(SIMULATIONS, NUMBER, NONE, "stockade_simulations", "Simulations in progress.")           \
    COUNTER(SIMULATIONS_BEGUN, NUMBER, NONE, NONE, "stockade_simulations_begun_total",             \
            "Simulations that were begun.")                                                        \
    COUNTER(SIMULATIONS_REFUSED, NUMBER, NONE, NONE, "stockade_simulations_refused_total",         \
            "Calls that were not simulated, because a policy would refuse them or ask people.")    \
    GAUGE(BATCHES, NUMBER, NONE, "stockade_batches", "Batches of jobs that are kept.")             \
    COUNTER(BATCH_RESETS, NUMBER, NONE, NONE, "stockade_batch_resets_total",                       \
            "Sandboxes that were made ready for another job of their batch.")                      \
    COUNTER(BATCH_WARM_JOBS, NUMBER, NONE, NONE, "stockade_batch_warm_jobs_total",                 \
            "Jobs of batches that were forked from a warm interpreter.")                           \
    COUNTER(BATCH_WARM_LOST, NUMBER, NONE, NONE, "stockade_batch_warm_lost_total",                 \
            "Warm interpreters of batches that ended, or were changed by a job.")                  \
    COUNTER(BATCH_RESULTS, NUMBER, NONE, NONE, "stockade_batch_results_total",                     \
            "Jobs of batches that ended, started or not.")                                         \
    GAUGE(FILES, NUMBER, NONE, "stockade_file_operations",                                         \
          "Operations on files that are in progress, watches included.")                           \
    GAUGE(FILES_TRANSFERS, NUMBER, NONE, "stockade_file_transfers",                                \
          "Files and archives that callers are sending, with Send and Finish.")                    \
    COUNTER(TRANSFERS_CUT, NUMBER, NONE, NONE, "stockade_template_transfers_cut_total",            \
            "Slow archives of templates that lost their place to another caller's.")               \
    COUNTER(FILES_CUT_OFF, NUMBER, NONE, NONE, "stockade_file_operations_cut_off_total",           \
            "Operations on files whose program in the sandbox ended before them.")                 \
    COUNTER(FILES_READ_BYTES, BYTES, NONE, NONE, "stockade_file_read_bytes_total",                 \
            "Bytes of files and archives that came from sandboxes.")                               \
    COUNTER(FILES_WRITTEN_BYTES, BYTES, NONE, NONE, "stockade_file_written_bytes_total",           \
            "Bytes of files and archives that were sent to sandboxes.")                            \
    GAUGE(VOLUMES, NUMBER, NONE, "stockade_volumes", "Volumes of all callers.")                    \
    GAUGE(VOLUMES_BYTES, BYTES, NONE, "stockade_volumes_quota_bytes",                              \
          "Bytes that all volumes together may hold.")                                             \
    GAUGE(VOLUMES_OPEN, NUMBER, NONE, "stockade_volumes_open", "Volumes whose disk is mounted.")   \
    PAIR(JOBS, NUMBER, JOB_STATE, TEMPLATE, "stockade_jobs",                                       \
         "Jobs that have not ended, by state and template; DRAINING ones have output left.")       \
    COUNTER(JOBS_STARTED, NUMBER, NONE, NONE, "stockade_jobs_started_total",                       \
            "Jobs that were requested from a guest.")                                              \
    COUNTER(JOBS_ENDED, NUMBER, OUTCOME, TEMPLATE, "stockade_jobs_ended_total",                    \
            "Jobs that ended, by outcome and template.")                                           \
    TIMES(JOB_TIME, NONE, "stockade_job_duration_seconds",                                         \
          "Time from the start of the main process of a job to its end.")                          \
    COUNTER(JOB_CPU, SECONDS, NONE, NONE, "stockade_job_cpu_seconds_total",                        \
            "CPU time of jobs that ended, as in their bills.")                                     \
    COUNTER(JOB_THROTTLED, SECONDS, NONE, NONE, "stockade_job_throttled_seconds_total",            \
            "Time that jobs waited because of their CPU quota, as in their bills.")                \
    COUNTER(JOB_OOM_KILLS, NUMBER, NONE, NONE, "stockade_job_oom_kills_total",                     \
            "Processes of jobs that the kernel killed because their memory was used up.")          \
    COUNTER(TENANT_JOBS, NUMBER, TENANT, OUTCOME, "stockade_tenant_jobs_ended_total",              \
            "Jobs that ended, by tenant and outcome; see metrics.tenants in the configuration.")   \
    COUNTER(TENANT_CPU, SECONDS, TENANT, NONE, "stockade_tenant_cpu_seconds_total",                \
            "CPU time of jobs that ended, by tenant.")                                             \
    COUNTER(TENANT_DENIALS, NUMBER, TENANT, NONE, "stockade_tenant_denials_total",                 \
            "Operations of sandboxes that were refused, by tenant.")                               \
    COUNTER(                                                                                       \
        TENANT_HELD, SECONDS, TENANT, NONE, "stockade_tenant_rpc_held_seconds_total",              \
        "Time for which the broker did not read a tenant's requests, because it had used more "    \
        "than its share of the broker while others were active, by tenant.")                       \
    GAUGE(CONTEXTS, NUMBER, NONE, "stockade_contexts", "Contexts of interpreters.")                \
    GAUGE(CHECKPOINTS, NUMBER, NONE, "stockade_checkpoints",                                       \
          "Checkpoints of the live state of contexts.")                                            \
    COUNTER(INTERPRETERS_STARTED, NUMBER, NONE, NONE, "stockade_interpreters_started_total",       \
            "Interpreters of contexts that were started by executing them.")                       \
    COUNTER(INTERPRETERS_FORKED, NUMBER, NONE, NONE, "stockade_interpreters_forked_total",         \
            "Interpreters of contexts that were forked from a warm one.")                          \
    COUNTER(CELLS_ENDED, NUMBER, STATUS, NONE, "stockade_cells_ended_total",                       \
            "Cells that have ended, by status.")                                                   \
    TIMES(CELL_TIME, NONE, "stockade_cell_duration_seconds",                                       \
          "Time from the start of a cell, when its interpreter was ready, to its end.")            \
    COUNTER(LIMITS_HIT, NUMBER, LIMIT, NONE, "stockade_job_limits_hit_total",                      \
            "Limits that jobs reached, by limit.")                                                 \
    COUNTER(OUTPUT_BYTES, BYTES, NONE, NONE, "stockade_job_output_bytes_total",                    \
            "Output of jobs that ended.")                                                          \
    COUNTER(OUTPUT_CUT, BYTES, NONE, NONE, "stockade_job_output_cut_bytes_total",                  \
            "Output of jobs that ended which was discarded because of the limit output_bytes.")    \
    COUNTER(SPAWNER_REQUESTS, NUMBER, OPERATION, NONE, "stockade_spawner_requests_total",          \
            "Requests to the spawner.")                                                            \
    COUNTER(SPAWNER_FAILED, NUMBER, OPERATION, NONE, "stockade_spawner_failures_total",            \
            "Requests to the spawner that failed or were given up.")                               \
    COUNTER(SPAWNER_HANGS, NUMBER, NONE, NONE, "stockade_spawner_hangs_total",                     \
            "Times that the spawner stopped responding. The broker ends if the spawner does.")     \
    COUNTER(RELAY_STARTS, NUMBER, NONE, NONE, "stockade_relay_starts_total",                       \
            "Starts of the relay, the first included.")                                            \
    COUNTER(RELAY_ENDS, NUMBER, NONE, NONE, "stockade_relay_ends_total",                           \
            "Ends of the relay while it was needed.")                                              \
    COUNTER(RELAY_SILENT, NUMBER, NONE, NONE, "stockade_relay_hangs_total",                        \
            "Times that the relay did not respond and was killed.")                                \
    COUNTER(RELAY_REPORTS_LOST, NUMBER, NONE, NONE, "stockade_relay_lost_reports_total",           \
            "Reports that the relay dropped because its socket was full.")                         \
    COUNTER(RELAYED_BYTES, BYTES, DIRECTION, NONE, "stockade_relay_bytes_total",                   \
            "Payload that sandboxes sent (out) and received (in) through the relay, without DNS.") \
    COUNTER(RELAYED_DIALS, NUMBER, DIAL, NONE, "stockade_relay_connections_total",                 \
            "Connections of sandboxes to destinations, by result: opened, failed, refused.")       \
    COUNTER(RELAYED_CUT, NUMBER, NONE, NONE, "stockade_relay_cut_connections_total",               \
            "Open connections of sandboxes that the relay cut, such as because of a quota.")       \
    COUNTER(DNS_ANSWERS, NUMBER, ANSWER, NONE, "stockade_dns_answers_total",                       \
            "DNS queries of sandboxes, by result: found, none, refused, failed.")                  \
    COUNTER(DENIALS, NUMBER, DENIAL, NONE, "stockade_denials_total",                               \
            "Operations of sandboxes that were refused, by operation.")                            \
    GAUGE(MAP_ENTRIES, NUMBER, MAP, "stockade_bpf_map_entries",                                    \
          "Entries in use of the maps of the BPF programs, by map.")                               \
    GAUGE(MAP_CAPACITY, NUMBER, MAP, "stockade_bpf_map_capacity",                                  \
          "Entries that the maps of the BPF programs have room for, by map.")                      \
    LOSS(OWN_ADDRESSES_LOST, NONE, "stockade_network_unknown_addresses_total",                     \
         "Reads of the addresses of this host that found more than the programs hold.", "network", \
         "times the host had more addresses than the programs hold")                               \
    LOSS(NETWORK_LOST, NONE, "stockade_network_lost_total",                                        \
         "Sandboxes whose network did not come back after the relay had ended.", "network",        \
         "sandboxes lost their network when the relay ended")                                      \
    COUNTER(RULES_LEFT, NUMBER, NONE, NONE, "stockade_network_unremoved_rules_total",              \
            "Network rules that the kernel did not remove.")                                       \
    COUNTER(WATCH_FAILED, NUMBER, NONE, NONE, "stockade_syscall_watch_failures_total",             \
            "Times that the watch of system calls could not be started or stopped.")               \
    COUNTER(EVENTS, NUMBER, KIND, NONE, "stockade_events_total", "Events of sandboxes, by kind.")  \
    LOSS(EVENTS_FAILED, NONE, "stockade_events_unencoded_total",                                   \
         "Events that could not be encoded.", "telemetry", "events could not be encoded")          \
    COUNTER(EVENTS_MISSED, NUMBER, NONE, NONE, "stockade_events_missed_total",                     \
            "Events that subscribers missed because they were too slow.")                          \
    COUNTER(SINK_FAILED, NUMBER, SINK, NONE, "stockade_event_sink_failures_total",                 \
            "Events that a receiver in the broker could not take, by receiver.")                   \
    GAUGE(SUBSCRIPTIONS, NUMBER, NONE, "stockade_event_subscriptions",                             \
          "Open subscriptions to events.")                                                         \
    COUNTER(KERNEL_EVENTS, NUMBER, CLASS, NONE, "stockade_kernel_events_total",                    \
            "Events that the BPF programs reported, by class.")                                    \
    COUNTER(KERNEL_LOST, NUMBER, CLASS, NONE, "stockade_kernel_lost_events_total",                 \
            "Events that the BPF programs did not report, by class: no budget, or ring full.")     \
    LOSS(KERNEL_BAD, NONE, "stockade_kernel_malformed_events_total",                               \
         "Records from the kernel that were malformed.", "telemetry",                              \
         "records from the kernel were malformed")                                                 \
    LOSS(UNWATCHED, NONE, "stockade_telemetry_unwatched_total",                                    \
         "Sandboxes, jobs and records that were not watched because memory was short.",            \
         "telemetry", "sandboxes, jobs or records were not watched because memory was short")      \
    GAUGE(FEED_PEERS, NUMBER, NONE, "stockade_feed_peers", "Peers of the feed.")                   \
    COUNTER(FEED_REFUSED, NUMBER, NONE, NONE, "stockade_feed_refused_total",                       \
            "Peers of the feed that were refused because there were too many.")                    \
    LOSS(FEED_LOST, NONE, "stockade_feed_lost_messages_total",                                     \
         "Messages of the feed that were lost because their peer did not read.", "telemetry.feed", \
         "messages were lost because peers did not read")                                          \
    COUNTER(FINDINGS, NUMBER, RULE, NONE, "stockade_findings_total", "Findings, by rule.")         \
    COUNTER(FINDINGS_WITHHELD, NUMBER, RULE, NONE, "stockade_findings_withheld_total",             \
            "Findings that were only counted, because there were too many in a minute.")           \
    COUNTER(ALERTS, NUMBER, RULE, NONE, "stockade_alerts_total",                                   \
            "Findings that raised an alert, by rule: their response is not log, and no silence.")  \
    COUNTER(FINDINGS_SILENCED, NUMBER, RULE, NONE, "stockade_findings_silenced_total",             \
            "Findings that raised no alert because of a silence, by rule; they count above, too.") \
    GAUGE(SILENCES, NUMBER, NONE, "stockade_silences", "Silences of findings.")                    \
    GAUGE(ACKNOWLEDGED, NUMBER, NONE, "stockade_acknowledged_findings",                            \
          "Acknowledged findings that are kept.")                                                  \
    COUNTER(ACKNOWLEDGEMENTS_DISPLACED, NUMBER, NONE, NONE,                                        \
            "stockade_acknowledgements_displaced_total",                                           \
            "Acknowledged findings that gave way to newer ones of their tenant.")                  \
    COUNTER(RULE_COMPARISONS, NUMBER, NONE, NONE, "stockade_rule_comparisons_total",               \
            "Events compared with a detection rule that users have written.")                      \
    COUNTER(RULE_COUNTS_DISPLACED, NUMBER, NONE, NONE, "stockade_rule_counts_displaced_total",     \
            "Counts of such rules that were given up for others while they mattered.")             \
    COUNTER(RULE_EVENTS_LOST, NUMBER, NONE, NONE, "stockade_rule_events_lost_total",               \
            "Lost events that such a rule is about, for each rule; their counts are incomplete.")  \
    COUNTER(RULE_EVENTS_SKIPPED, NUMBER, NONE, NONE, "stockade_rule_events_skipped_total",         \
            "Events not compared with the rules of their tenant, which took too long.")            \
    COUNTER(RESPONSES, NUMBER, RESPONSE, NONE, "stockade_finding_responses_total",                 \
            "Responses to findings that were begun: throttle, pause, kill.")                       \
    COUNTER(SNAPSHOTS_FIRST, NUMBER, NONE, NONE, "stockade_finding_snapshots_total",               \
            "Snapshots taken before the response to a finding.")                                   \
    COUNTER(SNAPSHOTS_FIRST_FAILED, NUMBER, NONE, NONE,                                            \
            "stockade_finding_snapshot_failures_total",                                            \
            "Responses to findings that followed without their snapshot, which failed.")           \
    COUNTER(RESPONSES_FAILED, NUMBER, RESPONSE, NONE, "stockade_finding_response_failures_total",  \
            "Responses to findings that failed.")                                                  \
    COUNTER(RULED_UNWATCHED, NUMBER, NONE, NONE, "stockade_rules_unwatched_total",                 \
            "Destinations and system calls of rules that the programs did not take.")              \
    LOSS(PATHS_UNWATCHED, NONE, "stockade_sensitive_paths_unwatched_total",                        \
         "Sensitive paths for which the programs had no room.", "anomaly",                         \
         "sensitive paths are not watched")                                                        \
    COUNTER(PROFILE_LEFT_OUT, NUMBER, NONE, NONE, "stockade_profile_omitted_executables_total",    \
            "Executables for which a profile had no room.")                                        \
    LOSS(PROFILE_UNSAVED, NONE, "stockade_profile_store_failures_total",                           \
         "Times that a profile could not be stored.", "anomaly",                                   \
         "attempts to store a profile failed")                                                     \
    LOSS(PROFILE_ERRORS, NONE, "stockade_profile_map_errors_total",                                \
         "Updates of a profile that the kernel refused.", "anomaly",                               \
         "updates of profiles were refused by the kernel")

// Upper bounds of the buckets of every histogram, in nanoseconds: 10 us to 100 s, the six preferred numbers of IEC 60063 (E6)
// in each decade, so that a quantile is known within a factor of 1.5. One more bucket has what is above.
#define METRIC_BOUNDS                                                                              \
    10000, 15000, 22000, 33000, 47000, 68000, 100000, 150000, 220000, 330000, 470000, 680000,      \
        1000000, 1500000, 2200000, 3300000, 4700000, 6800000, 10000000, 15000000, 22000000,        \
        33000000, 47000000, 68000000, 100000000, 150000000, 220000000, 330000000, 470000000,       \
        680000000, 1000000000, 1500000000, 2200000000, 3300000000, 4700000000, 6800000000,         \
        10000000000, 15000000000, 22000000000, 33000000000, 47000000000, 68000000000, 100000000000
