// What can be typed: every command and every option, with the words that --help, completion and the manual show.
#include "cli_commands.h"

#include <stddef.h>

#define AT(field)     offsetof(struct options, field)
#define LIMIT(field)  offsetof(struct options, limits.field)
#define POLICY(field) offsetof(struct options, policy.field)

static const char *const formats[] = {"text", "json", NULL};
static const char *const networks[] = {"none", "allowlist", "open", NULL};

const struct option_row options_common[] = {
    {"address", 0, OPTION_TEXT, AT(address), "ADDRESS",
     "the broker: ipc:///path, unix:/path or tcp://host:port (default: $STOCKADE_ADDRESS, else "
     "ipc:///run/stockade/stockade.sock)",
     NULL},
    {"format", 'o', OPTION_FORMAT, AT(json), "FORMAT", "text or json", formats},
    {"help", 'h', OPTION_FLAG, AT(help), NULL, "say how the command is used", NULL},
    {0},
};

static const struct option_row version_only[] = {
    {"version", 'V', OPTION_FLAG, AT(version), NULL, "say the version of this command", NULL},
    {0},
};

const struct option_row *const options_main[] = {options_common, version_only, NULL};

// Limits of one job.
static const struct option_row job_limits[] = {
    {"timeout", 0, OPTION_DURATION, LIMIT(wall_ms), "TIME",
     "wall-clock time of a job: 500ms, 5s, 2m, 1h", NULL},
    {"cpu-time", 0, OPTION_DURATION, LIMIT(cpu_time_ms), "TIME",
     "CPU time, user and kernel together", NULL},
    {"files", 0, OPTION_COUNT, LIMIT(files), "N", "open files per process", NULL},
    {"file-size", 0, OPTION_BYTES, LIMIT(file_size_bytes), "SIZE", "largest file", NULL},
    {"output", 0, OPTION_OUTPUT, LIMIT(output_bytes), "SIZE",
     "stdout and stderr together; what comes after is counted and thrown away (default: no limit; "
     "also taken: --output json for -o json)",
     NULL},
    {0},
};

// Limits of a whole sandbox.
static const struct option_row sandbox_limits[] = {
    {"memory", 'm', OPTION_BYTES, LIMIT(memory_bytes), "SIZE", "memory, files included: 256M, 1.5G",
     NULL},
    {"cpus", 0, OPTION_CPUS, LIMIT(cpu_millis), "N", "CPUs at most: 0.5, 2", NULL},
    {"pids", 0, OPTION_COUNT, LIMIT(pids), "N", "processes and threads", NULL},
    {"disk", 0, OPTION_BYTES, LIMIT(disk_bytes), "SIZE", "bytes of files written or changed", NULL},
    {"inodes", 0, OPTION_COUNT, LIMIT(inodes), "N", "files and folders made or changed", NULL},
    {0},
};

static const struct option_row network[] = {
    {"network", 0, OPTION_NETWORK, AT(network), "MODE", "none, allowlist or open", networks},
    {"allow", 0, OPTION_ALLOW, AT(allow), "HOST[:PORT[-PORT]][/tcp|/udp]",
     "a name, *.name, address or range that may be reached (repeatable; alone it means --network "
     "allowlist)",
     NULL},
    {"allow-inbound", 0, OPTION_INBOUND, AT(inbound), "PORT[-PORT]",
     "ports of the sandbox that you may connect to with 'stockade forward' (repeatable)", NULL},
    {"egress-bytes", 0, OPTION_BYTES, POLICY(egress_bytes_max), "SIZE",
     "bytes that may leave in its life", NULL},
    {"ingress-bytes", 0, OPTION_BYTES, POLICY(ingress_bytes_max), "SIZE",
     "bytes that may come in in its life", NULL},
    {"egress-rate", 0, OPTION_BYTES, POLICY(egress_rate), "SIZE", "bytes per second out", NULL},
    {"ingress-rate", 0, OPTION_BYTES, POLICY(ingress_rate), "SIZE", "bytes per second in", NULL},
    {"dns-queries", 0, OPTION_COUNT, POLICY(queries_per_minute), "N",
     "names looked up per minute (default: 600)", NULL},
    {0},
};

static const struct option_row sandbox_kind[] = {
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME",
     "kind of sandbox (default: default; see 'stockade info')", NULL},
    {"name", 0, OPTION_TEXT, AT(name), "NAME", "a name for the sandbox, unique among yours", NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "a label of the sandbox, for ls --label (repeatable)", NULL},
    {0},
};

static const char *const verdicts[] = {"ok", "fail", NULL};

static const struct option_row job_kind[] = {
    {"env", 'e', OPTION_ENV, AT(env), "NAME[=VALUE]",
     "an environment variable; NAME alone takes it from here (repeatable)", NULL},
    {"workdir", 'w', OPTION_PATH, AT(workdir), "PATH", "folder to start in, inside the sandbox",
     NULL},
    {"interactive", 'i', OPTION_FLAG, AT(interactive), NULL,
     "send stdin also when it is a terminal (a pipe or file is always sent)", NULL},
    {"terminal", 't', OPTION_FLAG, AT(terminal), NULL,
     "give the job a terminal; stdout and stderr become one", NULL},
    {"no-stdin", 'n', OPTION_FLAG, AT(no_stdin), NULL, "the job's stdin is empty", NULL},
    {"output-cut", 0, OPTION_CUT, AT(output_cut), "VERDICT",
     "what it means when output was cut: ok, or fail: exit with 74 (default: fail)", verdicts},
    {"bill", 0, OPTION_FLAG, AT(bill), NULL, "print on stderr what the job used", NULL},
    {"syscalls", 0, OPTION_FLAG, AT(syscalls), NULL,
     "count its system calls, for 'stockade inspect'", NULL},
    {0},
};

static const struct option_row exec_only[] = {
    {"detach", 'd', OPTION_FLAG, AT(detach), NULL,
     "print the process id once it runs, and leave it running", NULL},
    {0},
};

static const struct option_row create_only[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time until it is deleted by itself (default: the template's)", NULL},
    {0},
};

static const struct option_row update_only[] = {
    {"ttl", 0, OPTION_DURATION, AT(ttl_ms), "TIME",
     "time until it is deleted by itself, from now on", NULL},
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "a label to set; KEY= removes it (repeatable)", NULL},
    {0},
};

static const struct option_row list_only[] = {
    {"label", 'l', OPTION_LABEL, AT(labels), "KEY=VALUE",
     "only those with this label (repeatable: with all of them)", NULL},
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "only ids, one per line", NULL},
    {0},
};

static const struct option_row ps_only[] = {
    {"no-trunc", 0, OPTION_FLAG, AT(no_trunc), NULL, "show whole ids and commands", NULL},
    {"quiet", 'q', OPTION_FLAG, AT(quiet), NULL, "only ids, one per line", NULL},
    {0},
};

static const struct option_row rm_only[] = {
    {"all", 'a', OPTION_FLAG, AT(all), NULL, "every sandbox of yours", NULL},
    {0},
};

static const struct option_row logs_only[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "go on until the process ends", NULL},
    {"since", 0, OPTION_NUMBER, AT(since), "OFFSET",
     "begin at this byte, counted over stdout and stderr together", NULL},
    {0},
};

static const char *const severities[] = {"info", "notice", "warning", "critical", NULL};

static const struct option_row anomalies_only[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL, "go on with those that come", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "only of this sandbox", NULL},
    {"rule", 0, OPTION_TEXT, AT(rule), "NAME", "only of this rule", NULL},
    {"severity", 0, OPTION_SEVERITY, AT(severity), "LEVEL", "only what is at least this grave",
     severities},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "of another caller, such as uid:1000, or * for all (root only)", NULL},
    {"rules", 0, OPTION_FLAG, AT(rules), NULL, "list the rules with what holds", NULL},
    {"template", 0, OPTION_TEXT, AT(template_name), "NAME", "with --rules: of this template", NULL},
    {0},
};

static const char *const event_kinds[] = {"sandbox-created",
                                          "sandbox-deleted",
                                          "sandbox-paused",
                                          "sandbox-resumed",
                                          "policy-changed",
                                          "job-started",
                                          "job-ended",
                                          "limit-hit",
                                          "exec",
                                          "exit",
                                          "sensitive-open",
                                          "signal",
                                          "dangerous-call",
                                          "io-uring",
                                          "out-of-memory",
                                          "connect",
                                          "denied",
                                          "lookup",
                                          "flow",
                                          "flow-ended",
                                          "profile",
                                          "finding",
                                          "gap",
                                          NULL};

static const struct option_row events_only[] = {
    {"follow", 'f', OPTION_FLAG, AT(follow), NULL,
     "go on with those that come (without --from: only with those)", NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "only of this sandbox", NULL},
    {"kind", 0, OPTION_EVENT_KIND, AT(event_kinds), "KIND",
     "only of this kind, such as denied or exec (repeatable); dangerous-call, io-uring, "
     "sensitive-open and profile have system calls watched while -f runs",
     event_kinds},
    {"severity", 0, OPTION_SEVERITY, AT(severity), "LEVEL", "only what is at least this grave",
     severities},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "of another caller, such as uid:1000, or * for all (root only)", NULL},
    {"from", 0, OPTION_NUMBER, AT(from), "NUMBER", "begin at this sequence number", NULL},
    {0},
};

static const struct option_row top_only[] = {
    {"once", 0, OPTION_FLAG, AT(once), NULL, "print one table and end", NULL},
    {"interval", 0, OPTION_DURATION, AT(interval_ms), "TIME", "between two tables (default: 1s)",
     NULL},
    {"sandbox", 0, OPTION_TEXT, AT(sandbox), "SANDBOX", "only this sandbox", NULL},
    {"tenant", 0, OPTION_TEXT, AT(tenant), "NAME",
     "of another caller, such as uid:1000, or * for all (root only)", NULL},
    {0},
};

static const struct option_row profiles_only[] = {
    {"learn", 0, OPTION_COUNT, AT(learn), "N",
     "with reset: learn for so many runs, whatever the configuration says", NULL},
    {0},
};

#define GROUPS(...) ((const struct option_row *const[]){__VA_ARGS__, options_common, NULL})
#define NO_GROUPS   ((const struct option_row *const[]){options_common, NULL})

static const char run_details[] =
    "The job gets your stdin, its stdout and stderr are yours, and so is its exit code. A limit "
    "that is left out is the template's.\n\n"
    "Exit codes: the job's own; 124 a time limit ended it; 125 Stockade failed, or a wrong command "
    "line; 126 not executable; 127 not found; 128+n ended by signal n (137 also: memory); 77 "
    "refused; 75 not now, try again; 74 the job exited with 0, but output of it was cut.\n\n"
    "Output has no limit but --output: a slow reader makes the job wait.\n\n"
    "-o json prints one object at the end with outcome, exit_code, bill, stdout and stderr (at most "
    "64 MiB each).\n\n"
    "Example: stockade run --memory 256M --bill -- python3 -c 'print(6 * 7)'";

static const char exec_details[] =
    "As 'stockade run', in a sandbox that 'stockade create' made; the sandbox stays. A process goes "
    "on when this command is killed: 'stockade logs -f PROCESS' finds its output again.\n\n"
    "What stays (-d, -i, -t) lives as long as its sandbox: it has no --timeout, --cpu-time or "
    "--output but those that are named here, or were when the sandbox was created.";

static const char update_details[] =
    "Its network policy is changed by 'stockade network'; limits stay as they were made.\n\n"
    "Example: stockade update --ttl 2h agent";

static const char profiles_details[] =
    "A profile is which executables the jobs of a template run, and which sequences of system "
    "calls each of them makes. It is learnt from so many runs, and then frozen: what is not in it "
    "is told by the rules new-executable and unseen-sequence. For root.\n\n"
    "Actions: ls [TEMPLATE]; export TEMPLATE [FILE]; import TEMPLATE [FILE]; reset TEMPLATE, to "
    "forget it and learn anew; freeze TEMPLATE, to end learning now.\n\n"
    "Example: stockade profiles reset default --learn 20";

static const char events_details[] =
    "One line for each event: time, severity, kind, sandbox, job, process, and what it is about. "
    "Without -f it shows those that are still kept. Events that are missing are told on stderr, or "
    "as {\"gap\": ...} with -o json, which prints one object per line.\n\n"
    "Example: stockade events -f --kind denied --kind finding";

static const char top_details[] =
    "A live table of your sandboxes, the busiest first. Keys: q quits. Figures per second are those "
    "of the last interval, DENIED and ALERTS those since the sandbox was made. Where stdout is no "
    "terminal, or with --once, it prints one table; with -o json one object per interval and line.";

static const char inspect_details[] =
    "What the kernel saw of a job, running or over: network, processes, system calls where they "
    "were counted (--syscalls), what was refused and how to ask for it, what was executed, what "
    "looked wrong, and what the record does not cover. JOB is its id, or the beginning of it; left "
    "out, it is your job that ended last. The last 1,000 are kept.\n\n"
    "Example: stockade run --syscalls -- ls; stockade inspect";

static const char doctor_details[] =
    "Needs no broker: looks at the kernel, cgroups, namespaces, limits and ids of this host, says "
    "how to mend each problem, and asks the broker, where one runs, what it lacks. Exit code 0: "
    "everything needed is there; 1: something is missing.";

static const char network_details[] =
    "Without options it shows the policy in force. With them the sandbox gets another one, whole: "
    "what is not said is the template's. It holds when the command comes back, and connections that "
    "it forbids are cut.\n\n"
    "Example: stockade network --allow example.com:443 --allow 192.0.2.0/24:80 box";

static const char forward_details[] =
    "Listens on 127.0.0.1:LOCAL (0: any free port; printed) until it is interrupted, and leads each "
    "connection to PORT of the sandbox's loopback. The sandbox's policy must have the port: "
    "--allow-inbound.\n\n"
    "Example: stockade create --name web --allow-inbound 8000\n"
    "         stockade forward web 8080:8000";

static const char completion_details[] =
    "Stockade's package has the scripts installed. Without it, bash: source <(stockade completion "
    "bash); zsh: write it to a file _stockade in a folder of $fpath; fish: stockade completion fish "
    "| source.\n\n"
    "'stockade completion words -- WORD...' is what the scripts ask: what the last WORD can become.";

const struct command commands[] = {
    {"run", "run a command in a fresh sandbox", "[OPTION]... [--] COMMAND [ARG]...", run_details,
     GROUPS(sandbox_limits, job_limits, network, sandbox_kind, job_kind), OPERAND_COMMAND, 1, -1,
     true, true, cli_run},
    {"create", "make a sandbox that stays", "[OPTION]...", NULL,
     GROUPS(sandbox_limits, job_limits, network, sandbox_kind, create_only), OPERAND_NONE, 0, 0,
     false, false, cli_create},
    {"exec", "run a command in a sandbox", "[OPTION]... SANDBOX [--] COMMAND [ARG]...",
     exec_details, GROUPS(job_limits, job_kind, exec_only), OPERAND_SANDBOX, 2, -1, true, true,
     cli_exec},
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
    {"forward", "lead a port of this machine into a sandbox", "[OPTION]... SANDBOX [LOCAL:]PORT",
     forward_details, NO_GROUPS, OPERAND_SANDBOX, 2, 2, false, false, cli_forward},
    {"pause", "freeze sandboxes", "[OPTION]... SANDBOX...", NULL, NO_GROUPS, OPERAND_SANDBOX, 1, -1,
     false, false, cli_pause},
    {"resume", "let frozen sandboxes go on", "[OPTION]... SANDBOX...", NULL, NO_GROUPS,
     OPERAND_SANDBOX, 1, -1, false, false, cli_resume},
    {"rm", "end and remove sandboxes", "[OPTION]... SANDBOX... | --all", NULL, GROUPS(rm_only),
     OPERAND_SANDBOX, 0, -1, false, false, cli_rm},
    {"anomalies", "show what looks wrong", "[OPTION]...", NULL, GROUPS(anomalies_only),
     OPERAND_NONE, 0, 0, false, false, cli_anomalies},
    {"events", "show what happens", "[OPTION]...", events_details, GROUPS(events_only),
     OPERAND_NONE, 0, 0, false, false, cli_events},
    {"top", "show what sandboxes use, live", "[OPTION]...", top_details, GROUPS(top_only),
     OPERAND_NONE, 0, 0, false, false, cli_top},
    {"inspect", "show what the kernel saw of a job", "[OPTION]... [JOB]", inspect_details,
     NO_GROUPS, OPERAND_PROCESS, 0, 1, false, false, cli_inspect},
    {"profiles", "show and change what is usual for a template",
     "[OPTION]... ACTION [TEMPLATE [FILE]]", profiles_details, GROUPS(profiles_only),
     OPERAND_PROFILES, 1, 3, false, false, cli_profiles},
    {"info", "show the broker, its templates and what it lacks", "[OPTION]...", NULL, NO_GROUPS,
     OPERAND_NONE, 0, 0, false, false, cli_info},
    {"doctor", "check this host and say how to mend it", "[OPTION]...", doctor_details, NO_GROUPS,
     OPERAND_NONE, 0, 0, false, false, cli_doctor},
    {"completion", "write a completion script", "[OPTION]... bash|zsh|fish", completion_details,
     NO_GROUPS, OPERAND_SHELL, 1, -1, false, false, cli_completion},
    {"version", "show the versions of this command and of the broker", "[OPTION]...", NULL,
     NO_GROUPS, OPERAND_NONE, 0, 0, false, false, cli_version},
    {"help", "show how a command is used", "[COMMAND]", NULL, NO_GROUPS, OPERAND_HELP, 0, 1, false,
     false, cli_help_command},
    {0},
};
