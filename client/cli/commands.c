// SPDX-License-Identifier: Apache-2.0
// The tables of all commands and options, with the texts for --help, completion and the manual.
#include "commands.h"

#include <stddef.h>

#include "details.h"

#define AT(field)     offsetof(struct options, field)
#define LIMIT(field)  offsetof(struct options, limits.field)
#define POLICY(field) offsetof(struct options, policy.field)

static const char *const formats[] = {"text", "json", NULL};
static const char *const networks[] = {"off", "none", "allowlist", "open", NULL};

const struct option_row options_common[] = {
    {"address", 0, OPTION_TEXT, AT(address), "ADDRESS",
     "address of the broker: ipc:///path, unix:/path, tcp://host:port or tls+tcp://host:port (default: "
     "$STOCKADE_ADDRESS, or ipc:///run/stockade/stockade.sock)",
     NULL},
    {"ca-file", 0, OPTION_TEXT, AT(ca_file), "FILE",
     "file with the CA of the broker's certificate, for tls+tcp (default: $STOCKADE_CA_FILE, or the system's)",
     NULL},
    {"token-file", 0, OPTION_TEXT, AT(token_file), "FILE",
     "file with an API key or a token for the broker (default: $STOCKADE_TOKEN is the key or token itself)",
     NULL},
    {"format", 'o', OPTION_FORMAT, AT(json), "FORMAT", "text or json", formats},
    {"help", 'h', OPTION_FLAG, AT(help), NULL, "show the usage of the command", NULL},
    {0},
};

static const struct option_row version_only[] = {
    {"version", 'V', OPTION_FLAG, AT(version), NULL, "show the version of this command", NULL},
    {0},
};

const struct option_row *const options_main[] = {options_common, version_only, NULL};

// Limits of one job.
static const struct option_row job_limits[] = {
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME",
     "wall-clock time of a job, such as 500ms, 5s, 2m or 1h", NULL},
    {"cpu-time", 0, OPTION_DURATION, LIMIT(cpu_time_ms), "TIME",
     "CPU time of a job, user and kernel time together", NULL},
    {"files", 0, OPTION_COUNT, LIMIT(files), "N", "open files per process", NULL},
    {"file-size", 0, OPTION_BYTES, LIMIT(file_size_bytes), "SIZE", "maximum size of a file", NULL},
    {"output", 0, OPTION_OUTPUT, LIMIT(output_bytes), "SIZE",
     "maximum size of stdout and stderr together; output beyond it is counted and discarded "
     "(default: no limit). --output json means -o json",
     NULL},
    {0},
};

// Limits of a whole sandbox.
static const struct option_row sandbox_limits[] = {
    {"memory", 'm', OPTION_BYTES, LIMIT(memory_bytes), "SIZE",
     "memory of the sandbox including its files, such as 256M or 1.5G", NULL},
    {"cpus", 0, OPTION_CPUS, LIMIT(cpu_millis), "N", "maximum number of CPUs, such as 0.5 or 2",
     NULL},
    {"pids", 0, OPTION_COUNT, LIMIT(pids), "N", "maximum number of processes and threads", NULL},
    {"disk", 0, OPTION_BYTES, LIMIT(disk_bytes), "SIZE", "total size of files written or changed",
     NULL},
    {"inodes", 0, OPTION_COUNT, LIMIT(inodes), "N",
     "maximum number of files and folders created or changed", NULL},
    {0},
};

static const struct option_row network[] = {
    {"network", 0, OPTION_NETWORK, AT(network), "MODE",
     "off (no sockets but unix ones, not even for loopback), none, allowlist or open", networks},
    {"allow", 0, OPTION_ALLOW, AT(allow), "HOST[:PORT[-PORT]][/tcp|/udp]|@SET",
     "allow a name, *.name, address, range or set (repeatable; implies --network allowlist)", NULL},
    {"allow-inbound", 0, OPTION_INBOUND, AT(inbound), "PORT[-PORT]",
     "allow 'stockade forward' to connect to these ports of the sandbox (repeatable)", NULL},
    {"egress-bytes", 0, OPTION_BYTES, POLICY(egress_bytes_max), "SIZE",
     "maximum bytes sent during the sandbox's lifetime", NULL},
    {"ingress-bytes", 0, OPTION_BYTES, POLICY(ingress_bytes_max), "SIZE",
     "maximum bytes received during the sandbox's lifetime", NULL},
    {"egress-rate", 0, OPTION_BYTES, POLICY(egress_rate), "SIZE", "maximum bytes per second sent",
     NULL},
    {"ingress-rate", 0, OPTION_BYTES, POLICY(ingress_rate), "SIZE",
     "maximum bytes per second received", NULL},
    {"dns-queries", 0, OPTION_COUNT, POLICY(queries_per_minute), "N",
     "maximum number of DNS lookups per minute (default: 600)", NULL},
    {0},
};

static const struct option_row sandbox_kind[] = {
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "template of the sandbox (default: default; 'stockade info' lists them)", NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME", "name of the sandbox, unique among your sandboxes",
     NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "label of the sandbox, for ls --label (repeatable)", NULL},
    {"volume", 'v', OPTION_VOLUME, AT(mounts), "NAME:PATH[:ro]",
     "mount a volume at a path, with :ro read-only (repeatable; 'stockade help volume')", NULL},
    {0},
};

static const char *const verdicts[] = {"ok", "fail", NULL};

static const struct option_row job_kind[] = {
    {"env", 'e', OPTION_ENV, AT(env), "NAME[=VALUE]",
     "set an environment variable; NAME alone copies it from your environment (repeatable)", NULL},
    {"workdir", 'w', OPTION_PATH, AT(workdir), "PATH", "working directory inside the sandbox",
     NULL},
    {"interactive", 'i', OPTION_FLAG, AT(interactive), NULL,
     "send stdin even if it is a terminal (a pipe or file is always sent)", NULL},
    {"terminal", 't', OPTION_FLAG, AT(terminal), NULL,
     "give the job a terminal; stdout and stderr become one stream", NULL},
    {"no-stdin", 'n', OPTION_FLAG, AT(no_stdin), NULL, "send no stdin; the job reads end of file",
     NULL},
    {"output-cut", 0, OPTION_CUT, AT(output_cut), "VERDICT",
     "what to do when output was discarded: fail (exit with 74) or ok (default: fail)", verdicts},
    {"bill", 0, OPTION_FLAG, AT(bill), NULL, "print the resources that the job used on stderr",
     NULL},
    {"syscalls", 0, OPTION_FLAG, AT(syscalls), NULL,
     "count the system calls of the job, for 'stockade inspect'", NULL},
    {0},
};

static const char *const policies[] = {"ask", "on-success", NULL};
static const char *const resets[] = {"sandbox", "files", NULL};

static const struct option_row batch_only[] = {
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "template of the sandboxes (default: default; 'stockade info' lists them)", NULL},
    {"parallel", 'p', OPTION_COUNT, AT(parallel), "N",
     "jobs that run at the same time, at most 256 (default: two for each CPU of the broker's host)",
     NULL},
    {"reset", 0, OPTION_RESET, AT(reset), "WHAT",
     "what a job finds of the one before it: a fresh sandbox, or the same one with processes, files and memory removed, which "
     "is faster and needs network none or off (default: sandbox)",
     resets},
    {"window", 0, OPTION_COUNT, AT(window), "N",
     "jobs that the broker may have ahead of the output, at most 4096 (default: 256)", NULL},
    {"deadline", 0, OPTION_DURATION, AT(deadline_ms), "TIME",
     "time for the whole batch; jobs that have not ended by then are cancelled", NULL},
    {"key", 0, OPTION_TEXT, AT(key), "KEY",
     "name of the batch, for --resume (default: a random one)", NULL},
    {"resume", 0, OPTION_FLAG, AT(resume), NULL,
     "continue the batch KEY with the same input, within a minute", NULL},
    {0},
};

static const struct option_row exec_only[] = {
    {"detach", 'd', OPTION_FLAG, AT(detach), NULL,
     "print the process id when the process has started, and leave it running", NULL},
    {"transaction", 0, OPTION_TRANSACTION, AT(transaction), "POLICY",
     "write to a transaction: ask leaves it open, on-success commits it after exit code 0 and "
     "discards it otherwise",
     policies},
    {0},
};

static const struct option_row create_only[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time after which the broker deletes the sandbox (default: set by the configuration)", NULL},
    {"snapshot", 0, OPTION_TEXT, AT(snapshot), "NAME", "begin with a kept snapshot", NULL},
    {"sleep-after", 0, OPTION_DURATION, AT(sleep_after_ms), "TIME",
     "let the sandbox fall asleep when it was idle for so long (default: set by the template)",
     NULL},
    {0},
};

static const struct option_row sleep_only[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL, "cancel the jobs that run in the sandboxes first",
     NULL},
    {0},
};

static const struct option_row update_only[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time from now after which the broker deletes the sandbox", NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "set a label; KEY= removes it (repeatable)", NULL},
    {0},
};

static const struct option_row list_only[] = {
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "show only sandboxes with this label (repeatable: with all of them)", NULL},
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "show only ids, one per line", NULL},
    {0},
};

static const struct option_row ps_only[] = {
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids and commands", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "show only ids, one per line", NULL},
    {0},
};

static const struct option_row rm_only[] = {
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "remove all your sandboxes", NULL},
    {0},
};

static const struct option_row copy_only[] = {
    {"zstd", 'z', OPTION_FLAG, AT(zstd), NULL,
     "compress folders on the way; with - as TO, write a .tar.zst", NULL},
    {"unpack", 0, OPTION_FLAG, AT(unpack), NULL,
     "FROM is a .tar or .tar.zst, or - : unpack it into the folder TO", NULL},
    {"ratio", 0, OPTION_COUNT, AT(ratio), "N",
     "refuse a compressed archive that becomes more than N times as large (default: 1000)", NULL},
    {0},
};

static const struct option_row files_only[] = {
    {"recursive", 'r', OPTION_FLAG, AT(recursive), NULL,
     "ls: show everything below; rm: remove a folder with everything in it; watch: also the "
     "folders below it",
     NULL},
    {"glob", 0, OPTION_TEXT, AT(glob), "PATTERN",
     "ls: show only names that match; with / compare the path below the folder", NULL},
    {"parents", 'p', OPTION_FLAG, AT(parents), NULL, "make the folders that are missing", NULL},
    {"mode", 0, OPTION_TEXT, AT(mode), "OCTAL", "permissions, such as 644", NULL},
    {"no-clobber", 0, OPTION_FLAG, AT(no_clobber), NULL,
     "write, mv: fail if the file exists, instead of replacing it", NULL},
    {0},
};

static const struct option_row logs_only[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "continue until the process ends", NULL},
    {"since", 0, OPTION_NUMBER, AT(since), "OFFSET",
     "start at this byte, counted over stdout and stderr together", NULL},
    {0},
};

static const char *const severities[] = {"info", "notice", "warning", "critical", NULL};

static const struct option_row anomalies_only[] = {
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
     "with --rules: show the settings of this template", NULL},
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

static const struct option_row events_only[] = {
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

static const struct option_row top_only[] = {
    {"once", 0, OPTION_FLAG, AT(once), NULL, "print one table and exit", NULL},
    {"interval", 0, OPTION_DURATION, AT(interval_ms), "TIME",
     "time between two tables (default: 1s)", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "show only this sandbox", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "show another caller, such as uid:1000, or '*' for all (root only)", NULL},
    {0},
};

static const struct option_row profiles_only[] = {
    {"learn", 0, OPTION_COUNT, AT(learn), "N",
     "with reset: learn for this number of runs, instead of the number in the configuration", NULL},
    {0},
};

static const struct option_row snapshot_only[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with create and restore: cancel the jobs that run in the sandbox first", NULL},
    {"patch", 'p', OPTION_FLAG, AT(patch), NULL,
     "with diff: print the differences of text files, as input of patch(1)", NULL},
    {"path", 0, OPTION_TEXT, AT(path), "PATH",
     "with diff: only this file or folder, and what it holds", NULL},
    {"keep", 0, OPTION_FLAG, AT(keep), NULL, "with create: let it outlast the sandbox", NULL},
    {"copy", 0, OPTION_FLAG, AT(copy), NULL,
     "with create: while jobs run: freeze them, copy the files, and let them go on", NULL},
    {"copy-max", 0, OPTION_BYTES, AT(copy_max), "SIZE",
     "with --copy: refuse to copy more (default: 256M)", NULL},
    {"copy-time", 0, OPTION_DURATION, AT(copy_ms), "TIME",
     "with --copy: give up after this time, at most 1m (default: 5s)", NULL},
    {0},
};

static const struct option_row transaction_only[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with begin and commit: cancel the jobs that run first", NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with begin: time after which it is discarded (default: that of the sandbox)", NULL},
    {"patch", 'p', OPTION_FLAG, AT(patch), NULL,
     "with diff: print the differences of text files, as input of patch(1)", NULL},
    {"path", 0, OPTION_TEXT, AT(path), "PATH",
     "with diff: only this file or folder, and what it holds", NULL},
    {0},
};

static const struct option_row template_only[] = {
    {"from", 0, OPTION_TEXT, AT(source), "SANDBOX",
     "with create: the sandbox whose files it gets, or SANDBOX:SNAPSHOT", NULL},
    {"stop", 0, OPTION_FLAG, AT(stop), NULL,
     "with create: cancel the jobs that run in the sandbox first", NULL},
    {"env", 'e', OPTION_ENV, AT(env), "NAME[=VALUE]",
     "with create: set an environment variable of its jobs", NULL},
    {"workdir", 'w', OPTION_PATH, AT(workdir), "PATH", "with create: working directory of its jobs",
     NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME",
     "with build: name of the template (default: that of FILE, up to its first dot)", NULL},
    {"no-cache", 0, OPTION_FLAG, AT(no_cache), NULL,
     "with build: run every step, and keep none for other builds", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "with build: show no progress", NULL},
    {0},
};

static const struct option_row volume_only[] = {
    {"size", 0, OPTION_BYTES, AT(size), "SIZE", "with create: bytes of its files (default: 1G)",
     NULL},
    {"inodes", 0, OPTION_COUNT, LIMIT(inodes), "N",
     "with create: files and folders (default: one for every 16K)", NULL},
    {"force", 0, OPTION_FLAG, AT(force), NULL, "with rm: remove the sandboxes that have it, too",
     NULL},
    {0},
};

static const char *const key_forms[] = {"stk", "e2b", NULL};

static const struct option_row key_only[] = {
    {"label", 0, OPTION_TEXT, AT(name), "TEXT", "with create: what the key is for", NULL},
    {"scopes", 0, OPTION_TEXT, AT(scopes), "RIGHT,...",
     "with create: its rights, such as sandbox.write,process.run (default: yours, without those of operators and those to make "
     "keys)",
     NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with create: time after which it expires (default: never)", NULL},
    {"form", 0, OPTION_FORM, AT(form), "FORM", "with create: how it begins (default: stk)",
     key_forms},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with create and ls: another tenant, such as team-a; with ls '*' for all (root only)", NULL},
    {0},
};

static const struct option_row approvals_only[] = {
    {"for", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "with approve: as often as the call is made in this time (default: once)", NULL},
    {"pattern", 0, OPTION_TEXT, AT(glob), "TEXT",
     "with approve: command lines like this one, in which * stands for any text, for the time of --for (default: 8h)",
     NULL},
    {"comment", 0, OPTION_TEXT, AT(name), "TEXT", "with approve and deny: why", NULL},
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "with ls: also those that have ended", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "with ls and watch: another tenant, such as team-a, or '*' for all (root only)", NULL},
    {0},
};

static const char *const none_only[] = {"none", NULL};

static const struct option_row token_only[] = {
    {"scopes", 0, OPTION_TEXT, AT(scopes), "RIGHT,...",
     "with mint: its rights (default: yours, without those of operators and those to make credentials); with attenuate: the rights "
     "that stay",
     NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "it expires after this time; with rotate: how long tokens of the key before stay valid (default: not at all)",
     NULL},
    {"not-before", 0, OPTION_DURATION, AT(not_before_ms), "TIME", "it is valid after this time",
     NULL},
    {"uses", 0, OPTION_COUNT, AT(uses), "N", "number of calls, with --ttl", NULL},
    {"methods", 0, OPTION_TEXT, AT(methods), "METHOD,...",
     "only these methods, such as ProcessService/Run or FileService/*", NULL},
    {"sandboxes", 0, OPTION_TEXT, AT(sandboxes), "SANDBOX,...",
     "only these sandboxes, by id or name", NULL},
    {"templates", 0, OPTION_TEXT, AT(templates), "NAME,...", "only sandboxes of these templates",
     NULL},
    {"tool", 0, OPTION_TOOL, AT(tools), "'PROGRAM [PATTERN]... [...]'",
     "run only this program, with arguments that match the patterns, in which * stands for any text (repeatable)",
     NULL},
    {"network", 0, OPTION_NETWORK, AT(network), "none", "only sandboxes without a network",
     none_only},
    {"allow", 0, OPTION_ALLOW, AT(allow), "HOST[:PORT[-PORT]][/tcp|/udp]|@SET",
     "only sandboxes that reach nothing but these destinations (repeatable)", NULL},
    {"memory", 'm', OPTION_BYTES, LIMIT(memory_bytes), "SIZE", "highest memory of a sandbox", NULL},
    {"cpus", 0, OPTION_CPUS, LIMIT(cpu_millis), "N", "highest number of CPUs of a sandbox", NULL},
    {"pids", 0, OPTION_COUNT, LIMIT(pids), "N", "highest number of processes and threads", NULL},
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME", "longest time of a job", NULL},
    {"audience", 0, OPTION_TEXT, AT(audience), "NAME,...",
     "only brokers with one of these names (access.audience)", NULL},
    {"seal", 0, OPTION_FLAG, AT(seal), NULL, "with attenuate: nobody can narrow it further", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME", "with mint: another tenant (root only)", NULL},
    {0},
};

static const struct option_row audit_only[] = {
    {"public-key", 0, OPTION_TEXT, AT(key), "KEY",
     "with verify: 64 hex digits, or a file with them (audit.pub)", NULL},
    {"proof", 0, OPTION_TEXT, AT(path), "FILE", "with verify: check one record by this proof",
     NULL},
    {0},
};

static const struct option_row fork_only[] = {
    {"count", 'n', OPTION_COUNT, AT(count), "N", "number of forks, at most 100 (default: 1)", NULL},
    {"snapshot", 0, OPTION_TEXT, AT(snapshot), "NAME",
     "begin with the files of this snapshot, instead of those of now", NULL},
    {"stop", 0, OPTION_FLAG, AT(stop), NULL, "cancel the jobs that run in the sandbox first", NULL},
    {"copy", 0, OPTION_FLAG, AT(copy), NULL,
     "while jobs run: freeze them, copy the files, and let them go on", NULL},
    {"copy-max", 0, OPTION_BYTES, AT(copy_max), "SIZE",
     "with --copy: refuse to copy more (default: 256M)", NULL},
    {"copy-time", 0, OPTION_DURATION, AT(copy_ms), "TIME",
     "with --copy: give up after this time, at most 1m (default: 5s)", NULL},
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time after which the broker deletes the forks (default: that of the sandbox)", NULL},
    {0},
};

static const struct option_row metrics_only[] = {
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "show values that are 0 too", NULL},
    {"prometheus", 0, OPTION_FLAG, AT(prometheus), NULL,
     "print the text format of Prometheus, with the values that are 0", NULL},
    {"openmetrics", 0, OPTION_FLAG, AT(openmetrics), NULL, "the same in OpenMetrics 1.0", NULL},
    {0},
};

static const char *const code_languages[] = {"python", "bash", "javascript", NULL};

// A cell, in a context or in a sandbox of its own.
static const struct option_row code_kind[] = {
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX",
     "run in this sandbox, in its default context for the language", NULL},
    {"context", 0, OPTION_TEXT, AT(context), "ID", "run in this context", NULL},
    {"language", 'L', OPTION_TEXT, AT(language), "NAME",
     "python, bash or javascript (default: by the name of FILE, else python)", code_languages},
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME",
     "time of a cell, after which it is interrupted (default: 60s in a fresh sandbox)", NULL},
    {"pictures", 0, OPTION_TEXT, AT(pictures), "FOLDER", "save pictures here and print their names",
     NULL},
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "template of a fresh sandbox (default: default)", NULL},
    {"env", 'e', OPTION_ENV, AT(env), "NAME[=VALUE]",
     "set an environment variable in a fresh sandbox (repeatable)", NULL},
    {0},
};

static const struct option_row code_only[] = {
    {"code", 'c', OPTION_TEXT, AT(code), "CODE", "the code", NULL},
    {"bill", 0, OPTION_FLAG, AT(bill), NULL, "print the resources that the cell used on stderr",
     NULL},
    {0},
};

static const struct option_row checkpoint_only[] = {
    {"context", 0, OPTION_TEXT, AT(context), "ID",
     "with create, restore and fork: this context (default: the sandbox's default one of python)",
     NULL},
    {0},
};

#define GROUPS(...) ((const struct option_row *const[]){__VA_ARGS__, options_common, NULL})
#define NO_GROUPS   ((const struct option_row *const[]){options_common, NULL})

const struct command commands[] = {
    {"run", "run a command in a fresh sandbox", "[OPTION]... [--] COMMAND [ARG]...", run_details,
     GROUPS(sandbox_limits, job_limits, network, sandbox_kind, job_kind), OPERAND_COMMAND, 1, -1,
     true, true, cli_run},
    {"batch", "run many commands, each in a fresh sandbox", "[OPTION]... FILE", batch_details,
     GROUPS(sandbox_limits, job_limits, network, batch_only), OPERAND_FILE, 1, 1, false, false,
     cli_batch},
    {"create", "create a sandbox that stays", "[OPTION]...", NULL,
     GROUPS(sandbox_limits, job_limits, network, sandbox_kind, create_only), OPERAND_NONE, 0, 0,
     false, false, cli_create},
    {"exec", "run a command in an existing sandbox", "[OPTION]... SANDBOX [--] COMMAND [ARG]...",
     exec_details, GROUPS(job_limits, job_kind, exec_only), OPERAND_SANDBOX, 2, -1, true, true,
     cli_exec},
    {"code", "run a cell of python, bash or javascript", "[OPTION]... [-c CODE | FILE | -]",
     code_details, GROUPS(code_only, code_kind, sandbox_limits, network), OPERAND_NONE, 0, 1, false,
     true, cli_code},
    {"repl", "run cells that are typed at a prompt", "[OPTION]...", repl_details,
     GROUPS(code_kind, sandbox_limits, network), OPERAND_NONE, 0, 0, false, false, cli_repl},
    {"checkpoint", "keep the variables of python, go back to them, and fork them",
     "[OPTION]... ACTION SANDBOX [NAME]", checkpoint_details, GROUPS(checkpoint_only),
     OPERAND_CHECKPOINT, 1, 3, false, false, cli_checkpoint},
    {"ls", "list your sandboxes", "[OPTION]...", NULL, GROUPS(list_only), OPERAND_NONE, 0, 0, false,
     false, cli_ls},
    {"get", "show one sandbox", "[OPTION]... SANDBOX", NULL, NO_GROUPS, OPERAND_SANDBOX, 1, 1,
     false, false, cli_get},
    {"update", "change the time to live or the labels of sandboxes", "[OPTION]... SANDBOX...",
     update_details, GROUPS(update_only), OPERAND_SANDBOX, 1, -1, false, false, cli_update},
    {"ps", "list processes", "[OPTION]... [SANDBOX]", NULL, GROUPS(ps_only), OPERAND_SANDBOX, 0, 1,
     false, false, cli_ps},
    {"logs", "show the output of a process", "[OPTION]... PROCESS", NULL, GROUPS(logs_only),
     OPERAND_PROCESS, 1, 1, false, false, cli_logs},
    {"network", "show or change the network policy of a sandbox", "[OPTION]... SANDBOX",
     network_details, GROUPS(network), OPERAND_SANDBOX, 1, 1, false, false, cli_network},
    {"policy", "show the named sets of destinations", "[OPTION]... ACTION [SET]", policy_details,
     NO_GROUPS, OPERAND_POLICY, 1, 2, false, false, cli_policy},
    {"forward", "forward a port of this machine to a sandbox", "[OPTION]... SANDBOX [LOCAL:]PORT",
     forward_details, NO_GROUPS, OPERAND_SANDBOX, 2, 2, false, false, cli_forward},
    {"cp", "copy files and folders to and from a sandbox", "[OPTION]... FROM TO", copy_details,
     GROUPS(copy_only), OPERAND_FILE, 2, 2, false, false, cli_cp},
    {"fs", "list, read and change files of a sandbox", "[OPTION]... ACTION SANDBOX [PATH]...",
     files_details, GROUPS(files_only), OPERAND_FILES, 2, -1, false, false, cli_fs},
    {"pause", "freeze sandboxes", "[OPTION]... SANDBOX...", NULL, NO_GROUPS, OPERAND_SANDBOX, 1, -1,
     false, false, cli_pause},
    {"resume", "continue paused sandboxes", "[OPTION]... SANDBOX...", NULL, NO_GROUPS,
     OPERAND_SANDBOX, 1, -1, false, false, cli_resume},
    {"sleep", "put sandboxes to sleep: only their files stay, on the disk",
     "[OPTION]... SANDBOX...", sleep_details, GROUPS(sleep_only), OPERAND_SANDBOX, 1, -1, false,
     false, cli_sleep},
    {"wake", "wake sandboxes up", "[OPTION]... SANDBOX...", NULL, NO_GROUPS, OPERAND_SANDBOX, 1, -1,
     false, false, cli_wake},
    {"rm", "kill the jobs of sandboxes and remove them", "[OPTION]... SANDBOX... | --all", NULL,
     GROUPS(rm_only), OPERAND_SANDBOX, 0, -1, false, false, cli_rm},
    {"snapshot", "keep states of the files of a sandbox, and roll back to them",
     "[OPTION]... ACTION [SANDBOX] [NAME [NAME]]", snapshot_details, GROUPS(snapshot_only),
     OPERAND_SNAPSHOT, 1, 4, false, false, cli_snapshot},
    {"transaction", "change files of a sandbox together, or not at all",
     "[OPTION]... ACTION [SANDBOX | TRANSACTION]", transaction_details, GROUPS(transaction_only),
     OPERAND_TRANSACTION, 1, 2, false, false, cli_transaction},
    {"template", "make and list templates of sandboxes", "[OPTION]... ACTION [NAME | FILE]",
     template_details, GROUPS(template_only), OPERAND_TEMPLATE, 1, 2, false, false, cli_template},
    {"volume", "keep folders with a quota that outlive sandboxes", "[OPTION]... ACTION [NAME]",
     volume_details, GROUPS(volume_only), OPERAND_VOLUME, 1, 2, false, false, cli_volume},
    {"key", "make, list and revoke API keys", "[OPTION]... ACTION [KEY]", key_details,
     GROUPS(key_only), OPERAND_KEY, 1, 2, false, false, cli_key},
    {"token", "make, narrow and check capability tokens", "[OPTION]... ACTION [TOKEN]",
     token_details, GROUPS(token_only), OPERAND_TOKEN, 1, 2, false, false, cli_token},
    {"approvals", "list and answer calls that need an approval", "[OPTION]... ACTION [APPROVAL]",
     approvals_details, GROUPS(approvals_only), OPERAND_APPROVAL, 1, 2, false, false,
     cli_approvals},
    {"audit", "check and read the audit log", "[OPTION]... ACTION [WORD] [FILE | FOLDER]...",
     audit_details, GROUPS(audit_only), OPERAND_AUDIT, 1, -1, false, false, cli_audit},
    {"admin", "copy the database of the broker", "[OPTION]... ACTION FILE", admin_details,
     NO_GROUPS, OPERAND_ADMIN, 2, 2, false, false, cli_admin},
    {"fork", "make sandboxes that begin with the files of another one", "[OPTION]... SANDBOX",
     fork_details, GROUPS(fork_only), OPERAND_SANDBOX, 1, 1, false, false, cli_fork},
    {"anomalies", "show suspicious behaviour in sandboxes", "[OPTION]...", NULL,
     GROUPS(anomalies_only), OPERAND_NONE, 0, 0, false, false, cli_anomalies},
    {"events", "show events in sandboxes", "[OPTION]...", events_details, GROUPS(events_only),
     OPERAND_NONE, 0, 0, false, false, cli_events},
    {"top", "show a live table of resource use", "[OPTION]...", top_details, GROUPS(top_only),
     OPERAND_NONE, 0, 0, false, false, cli_top},
    {"inspect", "show the kernel's record of a job", "[OPTION]... [JOB]", inspect_details,
     NO_GROUPS, OPERAND_PROCESS, 0, 1, false, false, cli_inspect},
    {"profiles", "show and change the learned profiles of templates",
     "[OPTION]... ACTION [TEMPLATE [FILE]]", profiles_details, GROUPS(profiles_only),
     OPERAND_PROFILES, 1, 3, false, false, cli_profiles},
    {"info", "show the broker, its templates and missing features", "[OPTION]...", NULL, NO_GROUPS,
     OPERAND_NONE, 0, 0, false, false, cli_info},
    {"metrics", "show what the broker counts about itself", "[OPTION]... [PREFIX]", metrics_details,
     GROUPS(metrics_only), OPERAND_NONE, 0, 1, false, false, cli_metrics},
    {"doctor", "check this host and show how to fix problems", "[OPTION]...", doctor_details,
     NO_GROUPS, OPERAND_NONE, 0, 0, false, false, cli_doctor},
    {"completion", "write a completion script", "[OPTION]... bash|zsh|fish", completion_details,
     NO_GROUPS, OPERAND_SHELL, 1, -1, false, false, cli_completion},
    {"version", "show the versions of this command and of the broker", "[OPTION]...", NULL,
     NO_GROUPS, OPERAND_NONE, 0, 0, false, false, cli_version},
    {"help", "show the usage of a command", "[COMMAND]", NULL, NO_GROUPS, OPERAND_HELP, 0, 1, false,
     false, cli_help_command},
    {0},
};
