// SPDX-License-Identifier: Apache-2.0
// See detect.h: who decides a rule, and why. The BPF programs report each event of some kinds, and of others only what is suspicious or
// what a rule of the host names; what a rule asks for beyond that is compared in the broker.
#include <string.h>

#include "detect_private.h"

#define BIT(kind) (UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_##kind % 64)
_Static_assert(STOCKADE__V1__EVENT_KIND__EVENT_KIND_PROFILE < 64, "in the first word");

// Reported only if something is suspicious: sensitive, dangerous, or not in the profile.
#define SUSPICIOUS                                                                                 \
    (BIT(SENSITIVE_OPEN) | BIT(DANGEROUS_CALL) | BIT(IO_URING) | BIT(OUT_OF_MEMORY) |              \
     BIT(REMOTE_TERMINAL) | BIT(PROFILE))

// Of those, what is seen only while the tracepoint of system calls is attached.
#define OF_CALLS (BIT(SENSITIVE_OPEN) | BIT(DANGEROUS_CALL) | BIT(REMOTE_TERMINAL) | BIT(PROFILE))

// A rule about all of these events, without a condition or a count, is decided in the kernel.
static bool
is_of_kernel(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    return r->matches_n == 1 && !r->m->tripwire && r->threshold == 1 && r->exceptions_n == 0 &&
           m->all_n + m->any_n + m->not_n == 0 && ((m->kinds[0] & ~SUSPICIOUS) | m->kinds[1]) == 0;
}

// ---- system calls

// What bpf/watch_calls.h reports on any architecture; a chmod only with the set-user-ID bit, a socket only of an unusual family or type.
static const char *const calls[] = {
    "acct",           "add_key",          "bpf",
    "chmod",          "chroot",           "clock_settime",
    "delete_module",  "fanotify_init",    "fchmod",
    "fchmodat",       "finit_module",     "fsconfig",
    "fsmount",        "fsopen",           "fspick",
    "init_module",    "io_uring_enter",   "io_uring_register",
    "io_uring_setup", "ioperm",           "iopl",
    "kcmp",           "kexec_file_load",  "kexec_load",
    "keyctl",         "modify_ldt",       "mount",
    "mount_setattr",  "move_mount",       "open_by_handle_at",
    "open_tree",      "perf_event_open",  "pidfd_getfd",
    "pivot_root",     "process_vm_readv", "process_vm_writev",
    "ptrace",         "quotactl",         "reboot",
    "request_key",    "setdomainname",    "sethostname",
    "setns",          "settimeofday",     "socket",
    "swapoff",        "swapon",           "syslog",
    "umount2",        "unshare",          "userfaultfd",
};

bool
detect_reports_call(const char *name)
{
    // calls of another architecture, for which the kernel ends the process
    bool found = strncmp(name, "i386_", 5) == 0 || strncmp(name, "x32_", 4) == 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && !found; i++)
        found = strcmp(name, calls[i]) == 0;
    return found;
}

// The rule needs one of some calls, none of which is reported.
static bool
is_of_unseen_calls(const struct detect_match *m)
{
    if (m->calls)
        return false; // because it names them
    if ((m->kinds[0] & ~(BIT(DANGEROUS_CALL) | BIT(IO_URING))) != 0 || m->kinds[1] != 0)
        return false;
    for (uint32_t i = 0; i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            bool unseen = p->field == DETECT_CALL && p->prefix_n + p->suffix_n + p->glob_n == 0;
            for (size_t n = 0; unseen && n < p->exact.n; n++)
                unseen = !detect_reports_call(p->exact.word[n]);
            if (unseen)
                return true;
        }
    return false;
}

// ---- paths

// "/a/b/": a folder that is not one of all programs.
static bool
is_folder(const char *text)
{
    const char *second = text[0] == '/' ? strchr(text + 1, '/') : NULL;
    return second != NULL && second[1] != '\0' && text[strlen(text) - 1] == '/';
}

// The texts of a rule's field `path`, if it needs one of them and the kernel can watch for all: whole paths and folders.
static const struct detect_part *
paths_of(const struct detect_match *m)
{
    const uint32_t open = STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN;
    if ((m->kinds[open / 64] >> open % 64 & 1) == 0)
        return NULL;
    for (uint32_t i = 0; i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            bool fine = p->field == DETECT_PATH && p->suffix_n + p->glob_n == 0;
            for (size_t n = 0; fine && n < p->exact.n; n++)
                fine = p->exact.word[n][0] == '/';
            for (size_t n = 0; fine && n < p->prefix_n; n++)
                fine = is_folder(p->prefix[n]);
            if (fine)
                return p;
        }
    return NULL;
}

static uint32_t
each_path(const struct detect_rule *r, detect_path_fn *each, void *cookie)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->matches_n && !r->m->tripwire; i++) {
        const struct detect_part *p = paths_of(&r->match[i]);
        for (size_t k = 0; p != NULL && each != NULL && k < p->exact.n; k++)
            each(cookie, p->exact.word[k], false);
        for (size_t k = 0; p != NULL && each != NULL && k < p->prefix_n; k++)
            each(cookie, p->prefix[k], true);
        n += p != NULL ? (uint32_t)(p->exact.n + p->prefix_n) : 0;
    }
    return n;
}

void
detect_paths(const struct detect *d, detect_path_fn *each, void *cookie)
{
    for (uint32_t i = 0; i < detect_count(d); i++)
        if (d->rule[i].enabled)
            (void)each_path(&d->rule[i], each, cookie);
}

// The kernel reports the paths of the rule, and the rule asks for nothing else.
static bool
is_of_paths(const struct detect_rule *r)
{
    const struct detect_match *m = &r->match[0];
    return r->matches_n == 1 && r->threshold == 1 && r->exceptions_n == 0 && m->all_n == 1 &&
           m->all[0].n == 1 && m->any_n + m->not_n == 0 && each_path(r, NULL, NULL) > 0 &&
           m->kinds[0] + m->kinds[1] ==
               UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN % 64;
}

// ---- who decides

// A rule about destinations or calls that the kernel finds.
static const char *
why_found(const struct detect_rule *r)
{
    const bool kernel = r->counted && r->threshold == 1;
    if (r->destinations > 0)
        return kernel
                   ? "its programs find the destination and count it, so no loss of events hides "
                     "one; about 0.1 us for each connection"
               : r->counted ? "the kernel finds and counts the destinations, lost events included, "
                              "and the broker compares the counts; about 0.1 us for each connection"
                            : "the kernel finds the destinations and reports them apart from "
                              "others, and the broker compares the rest; about 0.1 us for each "
                              "connection";
    return kernel ? "its programs report the call because the rule names it, and count it, so no "
                    "loss of events hides one"
           : r->counted ? "the kernel reports and counts the calls because the rule names them, "
                          "and the broker compares the counts"
                        : "the kernel reports the calls because the rule names them, and the "
                          "broker compares the rest";
}

static const char *
why_broker(const struct detect_rule *r)
{
    if (r->destinations + r->calls > 0)
        return why_found(r);
    if (r->no_room)
        return "the kernel's tables for destinations and calls of rules are full, so it is not in "
               "them: the broker compares all events that the budgets let pass";
    bool some = false, all = true, connects = false;
    for (uint32_t i = 0; i < r->matches_n; i++) {
        connects = connects || (r->match[i].kinds[0] & BIT(CONNECT)) != 0;
        some = some || (r->match[i].kinds[0] & SUSPICIOUS) != 0;
        all = all && ((r->match[i].kinds[0] & ~SUSPICIOUS) | r->match[i].kinds[1]) == 0;
    }
    if (all)
        return "the kernel reports only what is suspicious or what rules of the host name, and the "
               "broker compares and counts that";
    if (!some && connects)
        return "all events of these kinds are reported, of connections those that leave the "
               "sandbox, but not to port 53, and the broker compares and counts them";
    return some
               ? "the kernel reports only what is suspicious of some of these kinds of events, and "
                 "all others; the broker compares and counts them"
               : "all events of these kinds are reported, and the broker compares and counts them";
}

void
detect_decide(const struct detect_rule *r, struct detect_view *out)
{
    bool never = false, needs_calls = false;
    for (uint32_t i = 0; i < r->matches_n; i++) {
        const struct detect_match *m = &r->match[i];
        never = never || (r->enabled && is_of_unseen_calls(m));
        needs_calls = needs_calls || ((m->kinds[0] & ~OF_CALLS) | m->kinds[1]) == 0;
    }
    out->kernel_paths = each_path(r, NULL, NULL);
    out->kernel_destinations = r->destinations;
    out->kernel_calls = r->calls;
    out->in_kernel = is_of_kernel(r) || is_of_paths(r) || (r->counted && r->threshold == 1);
    out->never = never;
    out->needs_calls = needs_calls;
    if (r->m->tripwire)
        out->why = "its own counts for each job and its sandbox, behind which counters of the "
                   "kernel stand";
    else if (never && r->no_room)
        out->why = "the kernel has no room for the system calls that it names: it finds nothing";
    else if (never)
        out->why = r->compiled ? "no program reports the system calls that it names as such "
                                 "events: it finds nothing"
                               : "no program reports the system calls that it names, and rules of "
                                 "tenants add none: it finds nothing";
    else if (r->counted && r->threshold == 1)
        out->why = why_found(r);
    else if (out->in_kernel)
        out->why = "its programs report only events that match";
    else
        out->why = why_broker(r);
}
