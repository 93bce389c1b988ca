// SPDX-License-Identifier: Apache-2.0
// The options of commands for sandboxes, jobs and cells. Help, completion and the manual show their texts.
#include "option_tables.h"

static const char *const networks[] = {"off", "none", "allowlist", "open", NULL};

// Limits of one job.
const struct option_row job_limit_options[] = {
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
const struct option_row sandbox_limit_options[] = {
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

const struct option_row network_options[] = {
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

const struct option_row sandbox_options[] = {
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "template of the sandbox (default: default; 'stockade template ls' lists them)", NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME", "name of the sandbox, unique among your sandboxes",
     NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "label of the sandbox, for ls --label (repeatable)", NULL},
    {0},
};

const struct option_row mount_options[] = {
    {"volume", 'v', OPTION_VOLUME, AT(mounts), "NAME:PATH[:ro]",
     "mount a volume at a path, with :ro read-only (repeatable; 'stockade help volume')", NULL},
    {"mount", 0, OPTION_MOUNT, AT(mounts), "FOLDER:PATH[:ro]",
     "mount a folder of the broker's host, if the template allows that, at a path (repeatable; a refusal names "
     "those that it allows)",
     NULL},
    {0},
};

static const char *const verdicts[] = {"ok", "fail", NULL};

const struct option_row job_options[] = {
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
    {"policy", 0, OPTION_TEXT, AT(policy_file), "FILE",
     "allow no more than this policy does, for this call (at most 4 KiB)", NULL},
    {"learn", 0, OPTION_TEXT, AT(learn_file), "FILE",
     "write a policy from what the job did and was denied, for you to review", NULL},
    {"bill", 0, OPTION_FLAG, AT(bill), NULL, "print the resources that the job used on stderr",
     NULL},
    {"syscalls", 0, OPTION_FLAG, AT(syscalls), NULL,
     "count the system calls of the job, for 'stockade inspect'", NULL},
    {0},
};

static const char *const resets[] = {"sandbox", "files", NULL};
static const char *const warms[] = {"python", NULL};

const struct option_row batch_options[] = {
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "template of the sandboxes (default: default; 'stockade template ls' lists them)", NULL},
    {"parallel", 'p', OPTION_COUNT, AT(parallel), "N",
     "jobs that run at the same time, at most 256 (default: two for each CPU of the broker's host)",
     NULL},
    {"reset", 0, OPTION_RESET, AT(reset), "WHAT",
     "what a job finds of the one before it: a fresh sandbox, or the same one with processes, files and memory removed, which "
     "is faster and needs network none or off (default: sandbox)",
     resets},
    {"warm", 0, OPTION_WARM, AT(warm), "LANGUAGE",
     "with --reset files: fork jobs whose command is 'python3 -c CODE' from an interpreter that runs already: python",
     warms},
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

const struct option_row simulate_options[] = {
    {"simulate", 0, OPTION_FLAG, AT(simulate), NULL,
     "run it in a fork with nothing leaving, then print what would have changed, been sent and been refused",
     NULL},
    {"answer", 0, OPTION_ANSWER, AT(answers), "DESTINATION=FILE",
     "with --simulate: a destination answers with what the file holds, at most 2 KiB (repeatable)",
     NULL},
    {0},
};

static const char *const policies[] = {"ask", "on-success", NULL};

const struct option_row exec_options[] = {
    {"detach", 'd', OPTION_FLAG, AT(detach), NULL,
     "print the process id when the process has started, and leave it running", NULL},
    {"transaction", 0, OPTION_TRANSACTION, AT(transaction), "POLICY",
     "write to a transaction: ask leaves it open, on-success commits it after exit code 0 and "
     "discards it otherwise",
     policies},
    {0},
};

static const char *const code_languages[] = {"python", "bash", "javascript", NULL};

// A cell, in a context or in a sandbox of its own.
const struct option_row cell_options[] = {
    {"context", 0, OPTION_TEXT, AT(context), "ID", "run in this context", NULL},
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

const struct option_row code_options[] = {
    {"code", 'c', OPTION_TEXT, AT(code), "CODE", "the code", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX",
     "run in this sandbox, in its default context for the language", NULL},
    {"language", 'L', OPTION_TEXT, AT(language), "NAME",
     "python, bash or javascript (default: by the name of FILE, else python)", code_languages},
    {"bill", 0, OPTION_FLAG, AT(bill), NULL, "print the resources that the cell used on stderr",
     NULL},
    {0},
};

const struct option_row repl_options[] = {
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX",
     "run in this sandbox, in a new context that ends with the command", NULL},
    {"language", 'L', OPTION_TEXT, AT(language), "NAME",
     "python, bash or javascript (default: python)", code_languages},
    {0},
};

const struct option_row create_options[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time after which the broker deletes the sandbox (default: set by the configuration)", NULL},
    {"snapshot", 0, OPTION_TEXT, AT(snapshot), "NAME", "begin with a kept snapshot", NULL},
    {"sleep-after", 0, OPTION_DURATION, AT(sleep_after_ms), "TIME",
     "let the sandbox fall asleep when it was idle for so long (default: set by the template)",
     NULL},
    {0},
};

const struct option_row sleep_options[] = {
    {"stop", 0, OPTION_FLAG, AT(stop), NULL, "cancel the jobs that run in the sandboxes first",
     NULL},
    {0},
};

const struct option_row update_options[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time from now after which the broker deletes the sandbox", NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "set a label; KEY= removes it (repeatable)", NULL},
    {0},
};

const struct option_row ls_options[] = {
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "show only sandboxes with this label (repeatable: with all of them)", NULL},
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "show only ids, one per line", NULL},
    {0},
};

const struct option_row ps_options[] = {
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids and commands", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "show only ids, one per line", NULL},
    {0},
};

const struct option_row rm_options[] = {
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "remove all your sandboxes", NULL},
    {0},
};
