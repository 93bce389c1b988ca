// SPDX-License-Identifier: Apache-2.0
// Events in words, for the findings of tripwires: {event} in their messages.
#include <linux/audit.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "box.h"
#include "box_private.h"
#include "proto/detect.h"
#include "server/base/log.h"
#include "server/base/syscall_names.h"
#include "server/policy/rule.h"

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

// "/tmp/x" was executed, and what is strange about it.
static void
say_exec(const struct watch_exec *e, const struct detect_event *ev, char out[FINDING_TEXT_MAX])
{
    char path[112];
    const bool argument = ev->number[DETECT_UNNAMED_ARGUMENT - DETECT_TEXTS] != 0;
    const bool fresh = ev->number[DETECT_UNPROFILED - DETECT_TEXTS] != 0;
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    (void)snprintf(out, FINDING_TEXT_MAX, "\"%s\" was executed%s%s%s", path,
                   e->memfd != 0 ? ", a file without a name"
                   : argument    ? ", with a file without a name as its program"
                                 : "",
                   fresh ? ", which is not in the template's profile" : "",
                   e->socket != 0 ? " with sockets as its stdin and stdout" : "");
}

// Another process has the master side of the terminal.
static void
say_terminal(const struct event *head, const struct watch_terminal *e, char out[FINDING_TEXT_MAX])
{
    char raw[sizeof e->comm + 1] = {0};
    char shell[64];
    char holder[64];
    memcpy(raw, e->comm, sizeof e->comm);
    (void)log_escape(raw, shell, sizeof shell);
    memcpy(raw, head->comm, sizeof head->comm);
    (void)log_escape(raw, holder, sizeof holder);
    (void)snprintf(out, FINDING_TEXT_MAX,
                   "\"%s\" (%u) runs on a terminal whose master side is held by \"%s\", which is "
                   "connected to outside, or sends datagrams there",
                   shell, e->shell, holder);
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

// A sensitive path: as written by the job, and resolved.
static void
say_open(const struct watch_open *e, char out[FINDING_TEXT_MAX])
{
    char path[112] = "";
    char resolved[112] = "";
    quote(path, sizeof path, e->path, e->path_n, WATCH_PATH);
    quote(resolved, sizeof resolved, e->resolved, e->resolved_n, WATCH_PATH);
    bool same = e->resolved_n == 0 || e->path_n == 0 || strcmp(path, resolved) == 0;
    describe_open(e, e->path_n > 0 ? path : resolved, same ? "" : resolved, out, FINDING_TEXT_MAX);
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
say_call(const struct watch_syscall *e, char out[FINDING_TEXT_MAX])
{
    char args[64] = "";
    const char *end = e->result < 0 ? strerrorname_np(-e->result) : NULL;
    if (e->number == SYS_socket)
        (void)snprintf(args, sizeof args, "(family %u, type %u)", (uint32_t)e->args[0],
                       (uint32_t)e->args[1] & 0xf);
    if (strstr(syscall_name(e->number), "chmod") != NULL)
        (void)snprintf(args, sizeof args, " with a set-user-id bit");
    if (e->arch != 0)
        (void)snprintf(args, sizeof args, " of another ABI, %s,", abi_name(e));
    (void)snprintf(out, FINDING_TEXT_MAX, "%s%s was called%s%s", called_name(e), args,
                   e->result < 0 ? ", and refused: " : "",
                   end != NULL ? end : (e->result < 0 ? "unknown error" : ""));
}

// The profile learns which calls are refused in normal work. A call that was never refused before is reported at once.
static void
say_score(const struct event *head, const struct watch_score *e, const struct detect_event *ev,
          char out[FINDING_TEXT_MAX])
{
    char comm[64];
    char raw[sizeof head->comm + 1] = {0};
    memcpy(raw, head->comm, sizeof head->comm);
    (void)log_escape(raw, comm, sizeof comm);
    if (ev->number[DETECT_FIRST_REFUSAL - DETECT_TEXTS] != 0)
        (void)snprintf(out, FINDING_TEXT_MAX, "%s of \"%s\" was refused for the first time",
                       syscall_name(e->last[2]), comm);
    else
        (void)snprintf(out, FINDING_TEXT_MAX,
                       "%u of %u sequences of system calls of \"%s\" are not in its profile, the "
                       "last %s, %s, %s",
                       e->unseen, e->window, comm, syscall_name(e->last[0]),
                       syscall_name(e->last[1]), syscall_name(e->last[2]));
}

static void
say_listener(const struct net_event *e, char out[FINDING_TEXT_MAX])
{
    char destination[64];
    net_rule_address(e->address, e->port, destination, sizeof destination);
    (void)snprintf(out, FINDING_TEXT_MAX, "a TCP socket listens on %s, and not on loopback alone",
                   destination);
}

void
box_sentence(const struct event *head, const void *body, const struct detect_event *ev,
             char out[FINDING_TEXT_MAX])
{
    out[0] = '\0';
    if (head->kind == EVENT_EXEC)
        say_exec(body, ev, out);
    else if (head->kind == EVENT_TERMINAL)
        say_terminal(head, body, out);
    else if (head->kind == EVENT_OPEN)
        say_open(body, out);
    else if (head->kind == EVENT_DANGEROUS || head->kind == EVENT_URING)
        say_call(body, out);
    else if (head->kind == EVENT_PROFILE)
        say_score(head, body, ev, out);
    else if (head->kind == EVENT_LISTEN)
        say_listener(body, out);
    else if (head->kind == EVENT_OOM)
        (void)snprintf(out, FINDING_TEXT_MAX, "%s",
                       "the kernel killed a process because the sandbox was out of memory");
}
