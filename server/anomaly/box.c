// SPDX-License-Identifier: Apache-2.0
// See box.h. The rules about events. ticks.c has those about counters, names.c about names, destinations.c about
// destinations.
#include "box.h"

#include <linux/audit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "bpf/net.h"
#include "box_private.h"
#include "server/base/log.h"
#include "server/base/syscall_names.h"

void
box_init(struct box *b, const struct anomaly_config *policy, uint32_t cpu_millis,
         box_raise_fn *raise, void *cookie)
{
    *b = (struct box){.policy = policy, .raise = raise, .cookie = cookie, .cpu_millis = cpu_millis};
    list_init(&b->jobs);
}

void
box_job_begin(struct box *b, struct box_job *j)
{
    list_init(&j->node);
    list_append(&b->jobs, &j->node);
}

void
box_job_end(struct box_job *j)
{
    list_remove(&j->node);
}

void
box_close(struct box *b)
{
    list_each(it, &b->jobs) list_remove(it);
}

void
box_enter(struct box *b, struct box_job *j)
{
    b->job = j;
}

uint64_t
box_hash(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ULL;
    h ^= h >> 29;
    return h != 0 ? h : 1;
}

// True if the subject has not been reported within its window; marks it as reported.
static bool
is_first(struct box *b, uint64_t subject, uint64_t now_ns, uint64_t until_ns)
{
    uint32_t n = b->reported_n < BOX_REPORTED ? b->reported_n : BOX_REPORTED;
    uint32_t at = b->reported_n % BOX_REPORTED;
    for (uint32_t i = 0; i < n; i++) {
        if (b->reported[i].subject != subject)
            continue;
        if (now_ns < b->reported[i].until_ns)
            return false;
        at = i;
    }
    b->reported_n += at == b->reported_n % BOX_REPORTED;
    b->reported[at].subject = subject;
    b->reported[at].until_ns = until_ns;
    return true;
}

int64_t
box_window_add(struct box_window *w, uint64_t now_ns, uint64_t window_ms, int32_t n)
{
    uint64_t at = now_ns / (window_ms * 1000000 / BOX_BUCKETS);
    uint64_t gone = at > w->at ? at - w->at : 0;
    for (uint64_t i = 1; i <= gone && i <= BOX_BUCKETS; i++)
        w->bucket[(w->at + i) % BOX_BUCKETS] = 0;
    w->at += gone;
    int64_t sum = 0;
    if (__builtin_add_overflow(w->bucket[w->at % BOX_BUCKETS], n, &w->bucket[w->at % BOX_BUCKETS]))
        w->bucket[w->at % BOX_BUCKETS] = n > 0 ? INT32_MAX : INT32_MIN;
    for (int i = 0; i < BOX_BUCKETS; i++)
        sum += w->bucket[i];
    return sum;
}

// Many findings of one rule must not suppress those of another rule, whose response may be to kill.
static bool
is_within_burst(struct box_scope *of, enum anomaly_rule rule, uint64_t now_ns)
{
    uint64_t minute = now_ns / 60000000000ULL;
    if (minute != of->minute) {
        of->minute = minute;
        of->findings = 0;
        of->raised = 0;
    }
    bool first = (of->raised >> rule & 1) == 0;
    if (!first && of->findings >= BOX_FINDINGS_BURST)
        return false;
    of->raised |= 1U << rule;
    of->findings++;
    return true;
}

static struct box_scope *
scope_of(struct box *b)
{
    return b->job != NULL ? &b->job->scope : &b->whole;
}

void
box_say(struct box *b, bool is_new, enum anomaly_rule rule, uint64_t now_ns, double score,
        const char *text)
{
    enum box_voice voice = BOX_ANSWER;
    if (is_new)
        voice = is_within_burst(scope_of(b), rule, now_ns) ? BOX_REPORT : BOX_COUNT;
    b->raise(b->cookie, voice, rule, score, text);
}

// A finding about the whole sandbox is not reported again for each job.
void
box_keep_quiet(struct box *b, enum anomaly_rule rule, uint64_t now_ns)
{
    uint64_t until_ns = now_ns + box_rule(b, rule)->window_ms * 1000000;
    b->whole.quiet_ns[rule] = until_ns;
    if (b->job != NULL) {
        b->job->scope.quiet_ns[rule] = until_ns;
        return;
    }
    list_each(it, &b->jobs) list_entry(it, struct box_job, node)->scope.quiet_ns[rule] = until_ns;
}

void
box_raise(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double score, const char *text)
{
    bool is_new = now_ns >= scope_of(b)->quiet_ns[rule];
    if (is_new)
        box_keep_quiet(b, rule, now_ns);
    box_say(b, is_new, rule, now_ns, score, text);
}

static bool
is_answered(const struct anomaly_policy *p)
{
    return p->response >= RESPONSE_THROTTLE;
}

bool
box_crossed(struct box *b, enum anomaly_rule rule, uint64_t now_ns, double job, double whole)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    bool of_job = b->job != NULL && job >= (double)p->threshold;
    bool of_whole = whole >= (double)p->threshold;
    if (p->enabled != 1 || (!of_job && !of_whole))
        return false;
    return is_answered(p) || (of_job && now_ns >= b->job->scope.quiet_ns[rule]) ||
           (of_whole && now_ns >= b->whole.quiet_ns[rule]);
}

void
box_count(struct box *b, enum anomaly_rule rule, uint64_t now_ns, uint64_t subject, uint64_t n,
          const char *text)
{
    const struct anomaly_policy *p = box_rule(b, rule);
    struct box_scope *const scopes[] = {&b->whole, b->job != NULL ? &b->job->scope : NULL};
    const uint64_t until_ns = now_ns + p->window_ms * 1000000;
    int64_t most = 0;
    bool first = false;
    for (size_t i = 0; i < 2 && scopes[i] != NULL; i++) {
        int64_t sum = box_window_add(&scopes[i]->window[rule], now_ns, p->window_ms,
                                     n < INT32_MAX ? (int32_t)n : INT32_MAX);
        if (p->enabled != 1 || sum < (int64_t)p->threshold)
            continue;
        uint64_t key = subject + rule + (i > 0 ? b->job->number * 0x9e3779b97f4a7c15ULL : 0);
        first = is_first(b, key, now_ns, until_ns) || first;
        most = sum > most ? sum : most;
    }
    if (first || (most > 0 && is_answered(p)))
        box_say(b, first, rule, now_ns, (double)most, text);
}

// ---- executed programs, opened files, system calls

// A path consists of bytes that a job chose, so it is escaped as in the log.
static void
quote(char *out, size_t n, const char *path, uint32_t path_n, uint32_t max)
{
    char raw[WATCH_PATH + 1];
    uint32_t len = path_n < max ? path_n : max;
    memcpy(raw, path, len);
    raw[len] = '\0';
    (void)log_escape(raw, out, n);
}

// Reports an executed program: its path and the reason.
static void
report_exec(struct box *b, const struct event *head, const struct watch_exec *e,
            enum anomaly_rule rule, uint64_t subject, const char *says)
{
    char path[160];
    char text[FINDING_TEXT_MAX];
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    (void)snprintf(text, sizeof text, "\"%s\" was executed%s", path, says);
    box_count(b, rule, head->time_ns, subject, 1, text);
}

// An argument is /proc/self/fd/N or /dev/fd/N, and N is a file without a name, which ld.so or an interpreter will
// run.
static bool
names_nameless(const struct watch_exec *e)
{
    char argv[WATCH_ARGV + 4] = {0};
    uint32_t n = e->args_n < WATCH_ARGV ? e->args_n : WATCH_ARGV;
    memcpy(argv, e->argv, n);
    for (uint32_t i = 0; e->nameless != 0 && i + 4 < n; i++) {
        if (memcmp(argv + i, "/fd/", 4) != 0)
            continue;
        unsigned long fd = strtoul(argv + i + 4, NULL, 10);
        if (fd < 32 && (e->nameless >> fd & 1) != 0)
            return true;
    }
    return false;
}

static void
on_exec(struct box *b, const struct event *head, const struct watch_exec *e, enum box_exe exe)
{
    box_tool_executed(b, e);
    if (e->fresh != 0)
        box_seen(b, RULE_NEW_EXECUTABLE);
    if (e->socket != 0)
        box_seen(b, RULE_REMOTE_SHELL);
    if (e->memfd == 0 && names_nameless(e)) // only the other kind also has a counter
        report_exec(b, head, e, RULE_UNNAMED_EXEC, 6,
                    ", with a file without a name as its program");
    if (e->memfd != 0) {
        box_seen(b, RULE_UNNAMED_EXEC);
        report_exec(b, head, e, RULE_UNNAMED_EXEC, 1, ", a file without a name");
    } else if (exe == BOX_EXE_NEW) {
        report_exec(b, head, e, RULE_NEW_EXECUTABLE, box_hash(&e->exe, sizeof e->exe, 3),
                    ", which is not in the template's profile");
    }
    if (e->socket != 0)
        report_exec(b, head, e, RULE_REMOTE_SHELL, 4, " with sockets as its stdin and stdout");
}

// Another process has the master side of the terminal.
static void
on_terminal(struct box *b, const struct event *head, const struct watch_terminal *e)
{
    char text[FINDING_TEXT_MAX];
    char raw[sizeof e->comm + 1] = {0};
    char shell[64];
    char holder[64];
    memcpy(raw, e->comm, sizeof e->comm);
    (void)log_escape(raw, shell, sizeof shell);
    memcpy(raw, head->comm, sizeof head->comm);
    (void)log_escape(raw, holder, sizeof holder);
    box_seen(b, RULE_REMOTE_SHELL);
    (void)snprintf(text, sizeof text,
                   "\"%s\" (%u) runs on a terminal whose master side is held by \"%s\", which is "
                   "connected to outside, or sends datagrams there",
                   shell, e->shell, holder);
    box_count(b, RULE_REMOTE_SHELL, head->time_ns, 8, 1, text);
}

// "/etc/shadow" was opened; an open of "/etc/shadow" failed: EACCES.
static void
describe_open(const struct watch_open *e, const char *path, const char *resolved, char *out,
              size_t n)
{
    static const struct {
        const char *done, *tried;
    } words[WATCH_FILE_OPS] = {
        [WATCH_FILE_OPEN] = {"opened", "an open"},
        [WATCH_FILE_LOOK] = {"examined", "an examination"},
        [WATCH_FILE_RENAME] = {"renamed", "a rename"},
        [WATCH_FILE_LINK] = {"linked", "a link"},
        [WATCH_FILE_SYMLINK] = {"pointed to by a symbolic link", "a symbolic link"},
        [WATCH_FILE_UNLINK] = {"removed", "a removal"},
        [WATCH_FILE_TRUNCATE] = {"truncated", "a truncation"},
        [WATCH_FILE_EXEC] = {"executed", "an execution"},
        [WATCH_FILE_PRELOAD] = {"put into a program by LD_PRELOAD or similar", "a preload"},
    };
    uint32_t op = e->op < WATCH_FILE_OPS && words[e->op].done != NULL ? e->op : WATCH_FILE_OPEN;
    bool more = resolved[0] != '\0';
    const char *error = e->result < 0 ? strerrorname_np(-e->result) : NULL;
    if (e->result < 0)
        (void)snprintf(out, n, "%s of \"%s\"%s%s failed: %s", words[op].tried, path,
                       more ? ", " : "", resolved, error != NULL ? error : "unknown error");
    else
        (void)snprintf(out, n, "\"%s\" was %s%s%s", path, words[op].done, more ? ": " : "",
                       resolved);
}

// Reports a sensitive path: as written by the job, and resolved. A use that failed first and then succeeded is reported
// twice.
static void
on_open(struct box *b, const struct event *head, const struct watch_open *e)
{
    char path[112] = "";
    char resolved[112] = "";
    char text[FINDING_TEXT_MAX];
    enum anomaly_rule rule = e->op == WATCH_FILE_LOOK      ? RULE_SENSITIVE_LOOK
                             : e->op == WATCH_FILE_PRELOAD ? RULE_PRELOADED_LIBRARY
                                                           : RULE_SENSITIVE_PATH;
    box_seen(b, rule);
    if (rule != RULE_PRELOADED_LIBRARY && box_tool_opens(b, head, e))
        return;
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    quote(resolved, sizeof resolved, e->resolved, e->resolved_n, WATCH_PATH);
    bool same = e->resolved_n == 0 || e->path_n == 0 || strcmp(path, resolved) == 0;
    describe_open(e, e->path_n > 0 ? path : resolved, same ? "" : resolved, text, sizeof text);
    const char *subject = e->resolved_n > 0 ? e->resolved : e->path;
    uint32_t n = e->resolved_n > 0 ? e->resolved_n : e->path_n;
    box_count(b, rule, head->time_ns,
              box_hash(subject, n < WATCH_PATH ? n : WATCH_PATH,
                       5 + ((uint64_t)e->op << 8) + ((uint64_t)(e->result < 0) << 16)),
              1, text);
}

// System call numbers have another meaning in other ABIs, except x32.
static const char *
abi_name(const struct watch_syscall *e)
{
    return e->arch == AUDIT_ARCH_I386 ? "i386 (int 0x80)" : "x32";
}

static const char *
called_name(const struct watch_syscall *e)
{
    if (e->arch == AUDIT_ARCH_I386)
        return "a system call";
    return syscall_name(e->arch != 0 ? e->number & ~UINT32_C(0x40000000) : e->number);
}

static void
on_syscall(struct box *b, const struct event *head, const struct watch_syscall *e)
{
    char text[FINDING_TEXT_MAX];
    char args[64] = "";
    bool uring = head->kind == EVENT_URING;
    const char *end = e->result < 0 ? strerrorname_np(-e->result) : NULL;
    box_seen(b, uring ? RULE_IO_URING : RULE_DANGEROUS_SYSCALL);
    if (e->number == SYS_socket)
        (void)snprintf(args, sizeof args, "(family %u, type %u)", (uint32_t)e->args[0],
                       (uint32_t)e->args[1] & 0xf);
    if (strstr(syscall_name(e->number), "chmod") != NULL)
        (void)snprintf(args, sizeof args, " with a set-user-id bit");
    if (e->arch != 0)
        (void)snprintf(args, sizeof args, " of another ABI, %s,", abi_name(e));
    (void)snprintf(text, sizeof text, "%s%s was called%s%s", called_name(e), args,
                   e->result < 0 ? ", and refused: " : "",
                   end != NULL ? end : (e->result < 0 ? "unknown error" : ""));
    box_count(b, uring ? RULE_IO_URING : RULE_DANGEROUS_SYSCALL, head->time_ns,
              uring ? 2 : box_hash(&e->number, sizeof e->number, 7), 1, text);
}

static void
on_oom(struct box *b, const struct event *head)
{
    box_seen(b, RULE_OOM);
    box_count(b, RULE_OOM, head->time_ns, box_hash(&head->time_ns, sizeof head->time_ns, 9), 1,
              "the kernel killed a process because the sandbox was out of memory");
}

// The profile learns which calls are refused in normal work. A call that was never refused before is reported, once
// each.
static void
on_refusal(struct box *b, const struct event *head, const struct watch_score *e, const char *comm)
{
    char text[FINDING_TEXT_MAX];
    uint64_t subject = UINT64_C(1) << 63 | (uint64_t)e->profile << 32 | e->last[2];
    (void)snprintf(text, sizeof text, "%s of \"%s\" was refused for the first time",
                   syscall_name(e->last[2]), comm);
    box_count(b, RULE_NEW_REFUSAL, head->time_ns, subject, 1, text);
}

static void
on_profile(struct box *b, const struct event *head, const struct watch_score *e)
{
    char comm[64];
    char raw[sizeof head->comm + 1] = {0};
    char text[FINDING_TEXT_MAX];
    memcpy(raw, head->comm, sizeof head->comm);
    (void)log_escape(raw, comm, sizeof comm);
    if (e->last[0] == WATCH_REFUSED && e->last[1] == WATCH_REFUSED) {
        on_refusal(b, head, e, comm);
        return;
    }
    if (!box_crossed(b, RULE_UNSEEN_SEQUENCE, head->time_ns, e->unseen, e->unseen))
        return;
    (void)snprintf(text, sizeof text,
                   "%u of %u sequences of system calls of \"%s\" are not in its profile, the last "
                   "%s, %s, %s",
                   e->unseen, e->window, comm, syscall_name(e->last[0]), syscall_name(e->last[1]),
                   syscall_name(e->last[2]));
    box_raise(b, RULE_UNSEEN_SEQUENCE, head->time_ns, e->unseen, text);
}

void
box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe)
{
    static const uint32_t sizes[EVENT_KINDS] = {
        [EVENT_DENIED] = sizeof(struct net_event),
        [EVENT_CONNECT] = sizeof(struct net_event),
        [EVENT_EXEC] = sizeof(struct watch_exec),
        [EVENT_OPEN] = sizeof(struct watch_open),
        [EVENT_DANGEROUS] = sizeof(struct watch_syscall),
        [EVENT_URING] = sizeof(struct watch_syscall),
        [EVENT_PROFILE] = sizeof(struct watch_score),
        [EVENT_TERMINAL] = sizeof(struct watch_terminal),
        [EVENT_LISTEN] = sizeof(struct net_event),
    };
    if (event->kind >= EVENT_KINDS || event->size < sizes[event->kind])
        return;
    if (event->kind == EVENT_DENIED || event->kind == EVENT_CONNECT || event->kind == EVENT_LISTEN)
        box_network(b, event, body);
    else if (event->kind == EVENT_EXEC)
        on_exec(b, event, body, exe);
    else if (event->kind == EVENT_OPEN)
        on_open(b, event, body);
    else if (event->kind == EVENT_DANGEROUS || event->kind == EVENT_URING)
        on_syscall(b, event, body);
    else if (event->kind == EVENT_OOM)
        on_oom(b, event);
    else if (event->kind == EVENT_PROFILE)
        on_profile(b, event, body);
    else if (event->kind == EVENT_TERMINAL)
        on_terminal(b, event, body);
}
