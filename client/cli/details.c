// SPDX-License-Identifier: Apache-2.0
// The long texts of `stockade COMMAND --help` and the manual; commands.c names them in its rows.
#include "details.h"

const char code_details[] =
    "Runs a cell of code and prints its output and the value of its last expression. Without "
    "--sandbox and --context it runs in a fresh sandbox, which is destroyed afterwards. With "
    "--sandbox the variables stay for the next cell. FILE '-' or none: stdin.\n\n"
    "python has the last expression and await at top level; magics (%time) and !command where the "
    "sandbox has IPython. Pictures are shown on terminals with kitty's or iTerm2's protocol.\n\n"
    "Exit codes: 0 the cell reached its end; 1 it raised an error; 124 timeout; 130 interrupted; 137 "
    "the interpreter crashed; 125 Stockade failed; 77 refused; 75 try again.\n\n"
    "Example: stockade code -c 'sum(range(10))'";

const char repl_details[] =
    "Reads cells at a prompt and runs each, like python's own prompt, with what the cells before it "
    "have defined. Without --sandbox and --context they run in a new sandbox, which is removed at "
    "the end. With --sandbox they have a context of their own there; with --context an existing "
    "one, whose --language only decides which lines belong together.\n\n"
    "A line that begins a block, a bracket or a quotation continues on the next one; a block ends "
    "with an empty line. ^C interrupts the running cell, and at the prompt drops what was typed; ^D "
    "ends. Arrow keys move the cursor and show earlier entries, which "
    "~/.local/state/stockade/history keeps. Pictures are shown on terminals with kitty's or "
    "iTerm2's protocol; otherwise they are saved (--pictures, or the current folder).\n\n"
    "If stdin is not a terminal, it has the cells, and the exit code is that of the last one, as of "
    "stockade code. With -o json each cell is an object on a line, as of stockade code.\n\n"
    "Example: stockade repl --sandbox notebook";

const char checkpoint_details[] =
    "A checkpoint holds the memory of a python interpreter between two cells: its variables, modules, "
    "folder, environment and open files with their positions. Files themselves are not part of it: "
    "see 'stockade help snapshot'. It is a fork of the interpreter inside the sandbox, and its memory "
    "counts to the sandbox's limits; a sandbox has at most 8. It ends with the sandbox, and with "
    "snapshots and restores of its files.\n\n"
    "What a fork cannot carry is refused, with the reason: threads, child processes, connections, "
    "pipes, files without a name or with a lock, shared memory, timers, tasks of the event loop; and "
    "bash and javascript. Memory never goes to another sandbox.\n\n"
    "Actions: create SANDBOX [NAME] prints the name; ls SANDBOX; restore SANDBOX NAME, the variables of "
    "now are lost; fork SANDBOX [NAME] makes a context with the variables of a checkpoint, or of now, "
    "and prints its id for --context of other commands; rm SANDBOX NAME.\n\n"
    "Example: stockade checkpoint create notebook before; stockade checkpoint restore notebook before";

const char run_details[] =
    "The job reads your stdin and writes to your stdout and stderr; the command exits with the exit "
    "code of the job. The template sets the limits that you omit.\n\n"
    "Exit codes: the job's own; 124 a time limit ended the job; 125 Stockade failed, stdin or stdout "
    "failed, or the command line is wrong; 126 not executable; 127 not found; 128+n ended by signal "
    "n (137: also by the memory limit, or cancelled); 77 refused; 75 temporary failure, try again; "
    "74 the job exited with 0, but some of its output was discarded.\n\n"
    "Only --output limits the output: when the reader is slow, the job waits.\n\n"
    "-o json prints one object at the end with outcome, exit_code, bill, stdout and stderr (at most "
    "64 MiB each).\n\n"
    "--simulate prints on stderr what the job would have changed (+ added, ~ changed, - removed), sent (>) and been refused (!). Nothing "
    "leaves the sandbox, and when the command ends nothing of it is left. A connection that the policy allows gets the --answer for its "
    "destination, or is reset.\n\n"
    "Example: stockade run --memory 256M --bill -- python3 -c 'print(6 * 7)'";

const char batch_details[] =
    "Each line of FILE (-: stdin) is a job: a JSON list of the program and its arguments, or an object "
    "with \"args\" and any of \"key\", \"stdin\", \"stdin_base64\", \"env\", \"workdir\" and \"limits\" "
    "(names as in 'stockade get -o json'). Each job runs in a fresh sandbox. The result of each is a "
    "line of JSON on stdout, in the order in which the jobs end: number (of the job, from 0), key, "
    "outcome, exit_code, bill, stdout, stderr.\n\n"
    "Of the output of a job at most 64 KiB are kept (--output sets another limit, at most 1M).\n\n"
    "No job is executed twice, also when the connection breaks. A command that was killed can be "
    "continued with --key and --resume; results whose line was perhaps not read are printed again.\n\n"
    "Exit codes: 0 each job exited with 0; 1 one of them did not, or the batch failed; 2 wrong command "
    "line or wrong line; 75 temporary failure; 77 refused; 128+n signal n, which cancels the rest.\n\n"
    "Example: echo '[\"echo\", \"hello\"]' | stockade batch -";

const char exec_details[] =
    "Like 'stockade run', in a sandbox that 'stockade create' created; the sandbox stays. The "
    "process keeps running when this command is killed; 'stockade logs -f PROCESS' shows its "
    "output.\n\n"
    "A job that stays (-d, -i, -t) runs as long as its sandbox: it has no --timeout, --cpu-time or "
    "--output limit unless they are set here or were set when the sandbox was created.\n\n"
    "With --simulate the process runs in a fork of the sandbox, which stays as it is; 'stockade help run' says what is printed.";

const char update_details[] =
    "Use 'stockade network' to change the network policy. Limits cannot be changed.\n\n"
    "Example: stockade update --ttl 2h agent";

const char sleep_details[] =
    "Files and snapshots go to the broker's disk, jobs and contexts end, and their memory is given back. "
    "Id, name, labels, limits, network policy, volumes and time to live stay. A sandbox that is asleep "
    "outlasts the broker and the host. The next command that needs it wakes it up, in a few "
    "milliseconds; so does 'stockade wake'. 'stockade ls', 'get' and 'rm' do not.\n\n"
    "Refused while a transaction is open, and while jobs run, unless with --stop. What ended is printed to stderr. 'stockade create "
    "--sleep-after TIME', or sleep_after of a template, lets idle sandboxes fall asleep by "
    "themselves.\n\n"
    "Example: stockade sleep notebook";

const char profiles_details[] =
    "A profile holds the executables that the jobs of a template run, and the sequences of system "
    "calls that each executable makes. The broker learns it from a number of runs and then freezes "
    "it; from then on, the rules new-executable and unseen-sequence report behaviour that is not in "
    "the profile. Requires root.\n\n"
    "Actions: ls [TEMPLATE]; export TEMPLATE [FILE]; import TEMPLATE [FILE]; reset TEMPLATE deletes "
    "the profile and starts to learn again; freeze TEMPLATE stops learning.\n\n"
    "Example: stockade profiles reset default --learn 20";

const char key_details[] =
    "An API key is a text that stands for a tenant and a set of rights. It is sent with each call, from any address that the broker "
    "listens on: in STOCKADE_TOKEN, or in a file that --token-file names. The broker keeps a hash of it, so it is shown once.\n\n"
    "The actions: create, which prints the key; ls; revoke KEY, with its id. A key has at most the rights of its maker.\n\n"
    "Example: STOCKADE_TOKEN=$(stockade key create --ttl 1h --scopes process.run,process.read) stockade run true";

const char token_details[] =
    "A capability token stands for a tenant, a set of rights, and conditions, its caveats. Whoever has it can narrow it further, "
    "without the broker, and nobody can widen it. It is sent like an API key: in STOCKADE_TOKEN, or with --token-file.\n\n"
    "The actions: mint, which prints a token; exchange, which prints one for the JSON Web Token that is sent as the credential; attenuate TOKEN, which prints a narrower one; inspect TOKEN, which shows what it says, "
    "and verify TOKEN, which asks the broker for its public keys and checks it; revoke TOKEN or BLOCK, for ever, with all tokens "
    "that were made from it; keys, the public keys; rotate, which signs with a new key from now on (root only). "
    "Without TOKEN, or with -, it is read from stdin.\n\n"
    "Example: STOCKADE_TOKEN=$(stockade token mint --ttl 1h | stockade token attenuate --uses 1 --ttl 5m --tool 'python3 -c *' - ) "
    "stockade run python3 -c 'print(1)'";

const char approvals_details[] =
    "A rule of the broker can ask for the agreement of others before a call runs. Such a call fails with the id of an approval, "
    "which waits for its approvers until a timeout; after their agreement the same call can be made again, with --approval ID; with "
    "--wait-approval TIME it waits for them. One refusal denies it, and nobody "
    "can answer an approval of its own.\n\n"
    "The actions: ls; show APPROVAL, with the whole request; approve APPROVAL, for this call once, or with --for as often as it is "
    "made until then, or with --pattern for command lines that match; deny APPROVAL; cancel APPROVAL, which withdraws one of your "
    "own; watch [APPROVAL], which prints each change, and with an APPROVAL ends when that was answered.\n\n"
    "Approvers need the right approval.answer, which only operators give: stockade key create --tenant team --scopes "
    "approval.read,approval.answer.\n\n"
    "Example: stockade approvals approve 18992bb4e848ab09f0f0197cd7dd5b51 --pattern 'git push *' --for 1h";

const char audit_details[] =
    "The audit log is a chain of records in files, audit-NUMBER.log, in the folder audit of the broker's state directory. Its "
    "checkpoints are signed, and whoever has the files and the public key (audit.pub) can check them, without the broker. A folder "
    "stands for all files of a log in it.\n\n"
    "The actions: verify --public-key KEY FILE..., which names what is missing, torn, changed or not in its place, and exits with 1 "
    "then; export FILE..., which prints each record as a line of JSON; grep TEXT FILE..., those lines that contain the text; "
    "show SEQUENCE FILE..., one record; proof PROCESS FILE..., which prints the record of one job with what is needed to check it "
    "alone; verify --public-key KEY --proof FILE, which checks that and prints the record; and tail, which asks the broker for the "
    "last records of the caller's own, and with --follow prints each new one.\n\n"
    "Example: stockade audit verify --public-key /var/lib/stockade/audit/audit.pub /var/lib/stockade/audit";

const char anomalies_details[] =
    "Without an action, or with ls, it lists the findings, oldest first, each with its number.\n\n"
    "ack NUMBER... notes that you have handled findings, with --reason; unack NUMBER... takes that back; acknowledged "
    "lists them, also those of earlier runs of the broker.\n\n"
    "silence RULE raises no alert for findings of a rule --for some time, and needs a --reason; --sandbox, --template and "
    "--comm narrow it down. The findings are still kept, counted and published, and the response follows all the same, unless "
    "--suppress-response is given. Of a rule that is not your own, the host's alerts and responses remain. silences lists the "
    "silences in force; unsilence SILENCE... ends them.\n\n"
    "Example: stockade anomalies ack 12 --reason 'a test'; stockade anomalies silence mass-rename --for 2h --reason 'a codemod'";

const char rules_details[] =
    "Detection rules say which behaviour in sandboxes is suspicious; stockade-rules(5) describes them. The host has its rules in "
    "files; you may have rules of your own, which the broker keeps, for your own sandboxes.\n\n"
    "These actions read files, and each *.yaml of folders, as the broker reads them, and need no broker: check FILE..., which "
    "also runs the tests in the files; test FILE..., which lists the tests, and with --kept "
    "compares the events that the broker keeps with the rules and prints what they would have found, without a response; "
    "ls FILE...; show RULE FILE....\n\n"
    "These act on your own rules in the broker: set FILE..., which creates or replaces a file of rules, and changes nothing if "
    "it has an error; ls; show RULE; get NAME, which prints a file; rm NAME; enable RULE; disable RULE. A rule of the host "
    "cannot be switched off so: its operator can, in the host's files.\n\n"
    "Example: stockade rules check my-rules.yaml; stockade rules set my-rules.yaml; stockade rules disable my-rule";

const char policy_details[] =
    "A policy says which calls are allowed, refused, limited, or wait for people: stockade-policy(5).\n\n"
    "The actions: check FILE..., which reads files as a broker would and runs the tests of their rules; test FILE..., which runs "
    "the tests of rules, and those of files with calls and expected verdicts; explain -- COMMAND..., which shows what would be decided about "
    "a call, by which rule, and what each layer says, without making it; show, the layers that apply to your calls; diff FILE..., what "
    "these files would change; reload, which has the broker read its files again, all or none; sets [SET], the named sets of "
    "destinations; learn [PROCESS...], which writes a policy from what jobs did and were denied, for you to review. check, and test, explain and diff with --policy or --against, need no broker.\n\n"
    "Exit codes: explain ends with 0 if the call is allowed, 77 if it is denied, 75 if people would be asked or it comes too early, 1 or 2 if "
    "it could not be made; "
    "test with 1 if a test fails; diff with 0 if nothing differs, 1 if something does, 2 after an error.\n\n"
    "--allow @NAME allows all destinations of a set; so do policies, templates, tokens and the SDKs. The table of sets is that of this "
    "command. The broker expands the sets with its own, from the same release.\n\n"
    "Example: stockade policy explain --allow @pypi -- pip download six";

const char admin_details[] =
    "The actions: cert FOLDER, which makes a private certificate authority there, if there is none, and a certificate for a broker, or "
    "with --client for a caller, and prints what to write into the configuration; it needs no broker. And backup FILE, which writes a consistent copy of the broker's database while it runs. The copy holds secrets. To "
    "restore it, stop the broker, put it in place of state/stockade.db in the state directory, and remove the files stockade.db-wal "
    "and stockade.db-shm beside it. It has the data keys of encryption in their wrapped form only: keep the master key elsewhere.\n\n"
    "And audit-key, which shows the public keys of the audit log, oldest first; audit-key rotate, which has the broker make another key: a "
    "checkpoint that the present key signs names the next one, so `stockade audit verify` follows the change and needs no more than the first key; and "
    "audit-key export FILE, which writes the public keys for --public-key.\n\n"
    "And encryption status, which shows what is encrypted at rest, and the data keys of tenants; encryption rotate --new-key FILE, which wraps them "
    "with another master key, and rewrites no data; encryption forget TENANT --yes, which destroys the data key of a tenant: "
    "what it has kept stays in the lists as unreadable until it is deleted. Earlier backups still have that key, wrapped: rotate the "
    "master key as well, and destroy the old one.\n\n"
    "Only root, and the account that the broker runs as, may do more than cert.\n\n"
    "Example: stockade admin cert /etc/stockade/tls --names broker.example.org,192.0.2.1; stockade admin backup /root/stockade.db";

const char volume_details[] =
    "A volume is a folder on the broker's host with a quota of bytes and inodes. Run and create mount it with --volume, several "
    "at a time. It stays until it is removed. It is not part of snapshots; forks have the volumes of their sandbox.\n\n"
    "The actions: create NAME; ls; show NAME; rm NAME, refused while a sandbox has the volume, unless --force removes those as "
    "well. cp and fs work on its files as volume:NAME, without a sandbox of yours.\n\n"
    "Example: stockade volume create data --size 10G; stockade run -v data:/data touch /data/hello";

const char snapshot_details[] =
    "A snapshot holds the files that jobs can write: /home/agent, /tmp, /var/tmp and /dev/shm. It ends with its sandbox; until then its files count to its "
    "limits. Not part of it are processes and their memory, System V IPC objects and message queues, connections, limits, labels and the network policy. No"
    " job may run meanwhile: see --stop. With --copy jobs may run: the sandbox is frozen, and what it has written since its last snapshot is copied, "
    "within its limits of disk and memory.\n\nWith --keep it goes to the broker's disk as well, outlasts sandbox, broker and host, and counts to "
    "quotas.kept_bytes_per_caller. 'stockade create --snapshot NAME' begins with its files.\n\nActions: create SANDBOX [NAME] prints the name; ls SANDBOX; "
    "show SANDBOX NAME; diff SANDBOX NAME [NAME] lists the files that differ between two snapshots, or between one and now: + added, - removed, ~ changed, "
    "with permissions and size; restore SANDBOX NAME rolls the files back, what was written since is lost; rm SANDBOX NAME. Kept ones: ls, show NAME, rm "
    "NAME.\n\nExample: stockade snapshot create agent before; stockade snapshot restore agent before";

const char transaction_details[] =
    "Jobs of a transaction see the files of the sandbox as they were at its begin; what they write appears in the sandbox with commit, or never. "
    "They run in a sandbox of their own, whose id is that of the transaction: exec, cp, fs and code take it. Several may be open at a "
    "time. Commit is refused if both sides changed a path, and names it. Volumes are written at once. No job may run in the "
    "sandbox at begin and commit: see --stop.\n\n"
    "Actions: begin SANDBOX prints the id; ls [SANDBOX]; show TRANSACTION; diff TRANSACTION lists what it changed: + added, - removed, ~ "
    "changed; commit TRANSACTION; discard TRANSACTION.\n\n"
    "Example: stockade exec --transaction ask agent -- pip install x; stockade transaction ls";

const char template_details[] =
    "A template is a kind of sandbox: one of the host, which the configuration lists, or one that you make "
    "from the files of a sandbox. Limits, network and user of the latter are those of the template that "
    "the sandbox came from. --template NAME of other commands takes both. Sandboxes of it see none of each "
    "other's changes. It is on the broker's disk, and lasts until rm; sandboxes of it keep their files. show "
    "lists the jobs whose files it holds, as the broker saw them, and what they reached.\n\n"
    "Actions: create NAME --from SANDBOX[:SNAPSHOT] prints the name; build FILE makes one from a file of steps "
    "(YAML) and prints its name: a step whose files are kept from an earlier build is not run again; prune deletes such files; ls; "
    "show NAME; rm NAME; push NAME [FILE] writes it as a tar archive; load FILE makes a template of one, also on another "
    "host that has the same template below it. "
    "stockade(1) describes the file.\n\n"
    "Example: stockade template create pandas --from agent; stockade run --template pandas -- python3 x.py";

const char fork_details[] =
    "Makes sandboxes that begin with the files of this one, and prints their ids. Nothing is copied, and "
    "none sees what another one writes. A fork has the template, limits, labels and network policy of "
    "the sandbox, and an id and bill of its own; it has no name and no snapshots. Without --snapshot no "
    "job may run in the sandbox meanwhile: see --stop and --copy. 'stockade help snapshot' lists what forks do not "
    "get.\n\n"
    "Example: stockade fork --count 8 agent";

const char events_details[] =
    "One line per event: time, severity, kind, sandbox, job, process and details. Without -f the "
    "command shows the events that the broker still keeps. Missing events are reported on stderr, or "
    "as {\"gap\": ...} with -o json, which prints one object per line.\n\n"
    "Example: stockade events -f --kind denied --kind finding";

const char top_details[] =
    "A live table of your sandboxes, the busiest first. Press q to quit. Figures per second cover "
    "the last interval; DENIED and ALERTS count from the creation of the sandbox. If stdout is not a "
    "terminal, or with --once, the command prints one table; with -o json it prints one object per "
    "interval, each on a line.";

const char inspect_details[] =
    "Shows the kernel's record of a running or ended job: network connections, processes, system "
    "calls (if they were counted: --syscalls), refusals and how to request what was refused, "
    "executed programs, findings, and what the record does not cover. JOB is the id of the job or "
    "its first digits; the default is your job that ended last. The broker keeps the last 1,000 "
    "records.\n\n"
    "With --proof it prints the record as the audit log has it, with its way to a signed checkpoint, which 'stockade audit verify "
    "--proof FILE' checks by the public key alone. That may take until the next checkpoint, 10 s.\n\n"
    "Example: stockade run --syscalls -- ls; stockade inspect";

const char metrics_details[] =
    "Shows what the broker has counted since its start: calls, connections, sandboxes, jobs, events, "
    "findings, and everything that was lost. PREFIX selects metrics by the beginning of their names, "
    "with or without stockade_. The metrics cover all tenants, so the command requires root. A line "
    "of a histogram shows the number of observations, and bounds of their median and of the slowest "
    "1 %.\n\n"
    "Example: stockade metrics pool; stockade metrics --prometheus > metrics.txt";

const char doctor_details[] =
    "Checks the kernel, cgroups, namespaces, limits and ids of this host and prints how to fix each "
    "problem. The command does not need a broker; if one is running, it also shows what the broker "
    "reports as missing, and whether it accepts the credential in STOCKADE_TOKEN or --token-file: one that is expired, revoked or "
    "for another broker is a problem. Exit code 0: sandboxes can run here; 1: something is missing.";

const char network_details[] =
    "Without options the command shows the policy in force. With options it replaces the whole "
    "policy; the template sets what you omit. The new policy is in force when the command returns; "
    "connections that it forbids are closed.\n\n"
    "Example: stockade network --allow example.com:443 --allow 192.0.2.0/24:80 box";

const char forward_details[] =
    "Listens on 127.0.0.1:LOCAL (0: any free port; the command prints it) until it is interrupted "
    "or the sandbox is removed, and forwards each connection to PORT on the sandbox's loopback interface. The network policy of "
    "the sandbox must allow the port: --allow-inbound.\n\n"
    "Example: stockade create --name web --allow-inbound 8000\n"
    "         stockade forward web 8080:8000";

const char copy_details[] =
    "One of FROM and TO is SANDBOX:PATH, or volume:NAME:PATH for a volume; the other a path of this machine, or - for stdin or stdout. A "
    "folder is copied with everything in it, with permissions and symbolic links; into TO if that is a "
    "folder. A file is replaced as a whole or not at all. From a sandbox, links that lead out of the "
    "folder are refused, because a job may have made them to mislead you; SANDBOX:PATH of a folder to - "
    "writes a tar archive with all links.\n\n"
    "--zstd saves bandwidth where the broker is far away, and costs CPU time of the sandbox. --unpack finds out by itself "
    "whether the archive is compressed; what is absolute, has '..', leads through a link, or is a device is refused. A "
    "compressed archive may grow to 1000 times its size, beyond the first MiB; --ratio allows more.\n\n"
    "Example: stockade cp src box:work; stockade cp box:work/result.csv .; stockade cp in.csv volume:data:/; stockade cp --zstd "
    "box:work - >work.tar.zst; stockade cp --unpack work.tar.zst box:again";

const char files_details[] =
    "Actions: ls [PATH]; stat PATH...; cat PATH...; write PATH (from stdin, replaced as a whole or not "
    "at all); mkdir PATH...; rm PATH...; mv PATH TO; cp PATH TO (inside the sandbox); chmod PATH...; "
    "watch [PATH] prints changes as they happen.\n\n"
    "A path is what a job in the sandbox would use; a relative one begins at the template's working "
    "directory. The actions have the rights of a job: no link leads out of the sandbox. volume:NAME instead of the sandbox "
    "is a volume, whose root is /: the broker makes a sandbox for it, which lasts about a minute.\n\n"
    "Example: echo 'print(42)' | stockade fs write box a.py; stockade fs ls box; stockade fs ls volume:data";

const char completion_details[] =
    "Stockade's package installs the scripts. Without the package, bash: source <(stockade "
    "completion bash); zsh: write the script to a file _stockade in a folder of $fpath; fish: "
    "stockade completion fish | source.\n\n"
    "The scripts run 'stockade completion words -- WORD...', which lists the completions of the last "
    "WORD.";
