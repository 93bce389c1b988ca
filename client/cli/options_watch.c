// SPDX-License-Identifier: Apache-2.0
// The options of commands that show output, events and numbers. Help, completion and the manual show their texts.
#include "option_tables.h"

const struct option_row logs_options[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "continue until the process ends", NULL},
    {"since", 0, OPTION_NUMBER, AT(since), "OFFSET",
     "start at this byte, counted over stdout and stderr together", NULL},
    {0},
};

static const char *const severities[] = {"info", "notice", "warning", "critical", NULL};

const struct option_row inspect_options[] = {
    {"proof", 0, OPTION_FLAG, AT(prove), NULL,
     "print the proof of the job's record in the audit log instead", NULL},
    {0},
};

const struct option_row anomalies_options[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "continue with new findings", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "show only this sandbox", NULL},
    {"rule", 0, OPTION_TEXT, AT(rule), "NAME",
     "show only findings of this rule; --rules lists the rules", NULL},
    {"severity", 0, OPTION_SEVERITY, AT(severity), "LEVEL",
     "show only this severity or higher:", severities},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "show another caller, such as uid:1000, or '*' for all (root only)", NULL},
    {"rules", 0, OPTION_FLAG, AT(rules), NULL, "list the rules and their settings in force", NULL},
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "with --rules: show the settings of this template; with silence: only findings of this template",
     NULL},
    {"reason", 0, OPTION_TEXT, AT(reason), "TEXT", "with ack and silence: why", NULL},
    {"for", 0, OPTION_DURATION, AT(ttl_ms), "TIME", "with silence: how long, up to 30d", NULL},
    {"comm", 0, OPTION_TEXT, AT(comm), "NAME",
     "with silence: only findings about processes with this name", NULL},
    {"suppress-response", 0, OPTION_FLAG, AT(suppress_response), NULL,
     "with silence: do not throttle, pause or kill, either", NULL},
    {0},
};

const struct option_row rules_options[] = {
    {"kept", 0, OPTION_FLAG, AT(kept), NULL,
     "with test: compare the events that the broker keeps with the rules", NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME",
     "with set: keep the file under this name (default: its own, without .yaml)", NULL},
    {"host", 0, OPTION_FLAG, AT(host), NULL,
     "with ls: also the rules of the host, with its tripwires", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "act on the rules of another caller, such as uid:1000 (root only)", NULL},
    {0},
};

static const char *const event_kinds[] = {"sandbox_created",
                                          "sandbox_deleted",
                                          "sandbox_paused",
                                          "sandbox_resumed",
                                          "sandbox_asleep",
                                          "sandbox_awake",
                                          "policy_changed",
                                          "job_started",
                                          "job_ended",
                                          "limit_hit",
                                          "file_transfer",
                                          "credential_refused",
                                          "handshake_refused",
                                          "exec",
                                          "exit",
                                          "sensitive_open",
                                          "signal",
                                          "dangerous_call",
                                          "io_uring",
                                          "out_of_memory",
                                          "remote_terminal",
                                          "connect",
                                          "denied",
                                          "lookup",
                                          "flow",
                                          "flow_ended",
                                          "listen",
                                          "profile",
                                          "finding",
                                          "gap",
                                          NULL};

const struct option_row events_options[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL,
     "continue with new events (without --from: show only new events)", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "show only this sandbox", NULL},
    {"kind", 0, OPTION_EVENT_KIND, AT(event_kinds), "KIND",
     "show only events of this kind (repeatable); dangerous_call, io_uring, sensitive_open, "
     "remote_terminal and profile make the broker watch system calls while -f runs. The kinds are",
     event_kinds},
    {"severity", 0, OPTION_SEVERITY, AT(severity), "LEVEL",
     "show only this severity or higher:", severities},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "show another caller, such as uid:1000, or '*' for all (root only)", NULL},
    {"from", 0, OPTION_NUMBER, AT(from), "NUMBER", "start at this sequence number", NULL},
    {0},
};

const struct option_row top_options[] = {
    {"once", 0, OPTION_FLAG, AT(once), NULL, "print one table and exit", NULL},
    {"interval", 0, OPTION_DURATION, AT(interval_ms), "TIME",
     "time between two tables (default: 1s)", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "show only this sandbox", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "show another caller, such as uid:1000, or '*' for all (root only)", NULL},
    {0},
};

const struct option_row info_options[] = {
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "show the weight and the quotas of another caller, such as uid:1000 (root only)", NULL},
    {0},
};

const struct option_row profiles_options[] = {
    {"learn", 0, OPTION_COUNT, AT(learn), "N",
     "with reset: learn for this number of runs, instead of the number in the configuration", NULL},
    {0},
};

const struct option_row metrics_options[] = {
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "show values that are 0 too", NULL},
    {"prometheus", 0, OPTION_FLAG, AT(prometheus), NULL,
     "print the text format of Prometheus, with the values that are 0", NULL},
    {"openmetrics", 0, OPTION_FLAG, AT(openmetrics), NULL, "the same in OpenMetrics 1.0", NULL},
    {0},
};
