// SPDX-License-Identifier: Apache-2.0
// See feature.h.
#include "feature.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io.h"

// A job has three pipes of 16 pages (PIPE_DEF_BUFFERS); the kernel's default is 16,384 pages per account.
enum { PIPE_JOBS = 340, PIPE_PAGES_PER_JOB = 48 };

void
feature_add(struct spawn_features *f, const char *name, bool available, bool weaker,
            const char *fmt, ...)
{
    if (f->n >= SPAWN_FEATURES_MAX)
        return;
    struct spawn_feature *row = &f->feature[f->n++];
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    row->available = available;
    row->degraded = !available && weaker;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(row->detail, sizeof row->detail, fmt, ap);
    va_end(ap);
}

static void
probe_controllers(struct spawn_features *f, const struct cgroups *cg)
{
    static const struct {
        const char *name;
        const char *v1;
        const char *absent;
    } rows[CG_N] = {
        [CG_MEMORY] = {"cgroup-memory", "bounds the sandbox, not each job",
                       "memory is not limited"},
        [CG_CPU] = {"cgroup-cpu", "bounds the sandbox, not each job", "CPU is not limited"},
        [CG_PIDS] = {"cgroup-pids", "bounds the sandbox, not each job",
                     "processes are not limited"},
        [CG_IO] = {"cgroup-io", "counts the sandbox, not each job",
                   "the bill has the I/O that the processes themselves report"},
    };
    for (int c = 0; c < CG_N; c++) {
        enum cgroup_body body = cg->body[c];
        feature_add(f, rows[c].name, body != CG_ABSENT, true, "%s%s",
                    body == CG_V2   ? "v2: for each sandbox and job"
                    : body == CG_V1 ? "v1: "
                                    : "absent: ",
                    body == CG_V2   ? ""
                    : body == CG_V1 ? rows[c].v1
                                    : rows[c].absent);
    }
}

// Files that a v2 cgroup with its controllers should have, and the consequences of their absence.
static void
probe_files(struct spawn_features *f, const struct cgroups *cg)
{
    static const struct {
        const char *file;
        const char *name;
        enum cgroup_controller controller;
        bool weaker;
        const char *yes;
        const char *no;
    } rows[] = {
        {"memory.peak", "memory-peak", CG_MEMORY, true, "peak memory of each job",
         "peak memory of a job is not known"},
        {"pids.peak", "pids-peak", CG_PIDS, true, "peak processes of each job",
         "peak processes of a job are not known"},
        {"memory.swap.max", "swap-limit", CG_MEMORY, true, "sandboxes get no swap",
         "swap is not limited per sandbox"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (cg->body[rows[i].controller] != CG_V2)
            continue;
        bool yes = faccessat(cg->fd, rows[i].file, F_OK, 0) == 0;
        feature_add(f, rows[i].name, yes, rows[i].weaker, "%s", yes ? rows[i].yes : rows[i].no);
    }
    if (cg->body[CG_MEMORY] == CG_V1) {
        bool yes = faccessat(cg->v1_fd[CG_MEMORY], "memory.memsw.limit_in_bytes", F_OK, 0) == 0;
        feature_add(f, "swap-limit", yes, true, "%s",
                    yes ? "v1: sandboxes get no swap" : "swap is not limited per sandbox");
    }
}

// First line of a file, or "".
static void
first_line(int dir_fd, const char *path, char *text, size_t n)
{
    if (io_read_at(dir_fd, path, text, n) < 0)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

// Facts about the host, for information only: side channels are out of scope.
static void
probe_host(struct spawn_features *f, int proc_fd)
{
    char text[160];
    first_line(AT_FDCWD, "/sys/devices/system/cpu/smt/active", text, sizeof text);
    bool off = text[0] != '1';
    feature_add(f, "smt-off", off, false, "%s",
                off ? "no sibling threads share a core"
                    : "sibling threads share cores: side channels are not prevented");
    first_line(AT_FDCWD, "/sys/devices/system/cpu/vulnerabilities/spectre_v2", text, sizeof text);
    feature_add(f, "mitigations", strncmp(text, "Vulnerable", 10) != 0, false, "spectre_v2: %s",
                text[0] ? text : "unknown");
    first_line(proc_fd, "sys/kernel/core_pattern", text, sizeof text);
    bool plain = text[0] != '|';
    feature_add(f, "core-pattern-plain", plain, false, "%s",
                plain ? "core dumps of jobs are off"
                      : "a pipe handler is set: jobs' limit is 1, which handlers should respect");
    first_line(AT_FDCWD, "/sys/kernel/mm/ksm/run", text, sizeof text);
    feature_add(f, "ksm-off", text[0] != '1', false, "same-page merging is %s",
                text[0] == '1' ? "on: it reveals the pages of other processes" : "off");
    first_line(proc_fd, "sys/fs/pipe-user-pages-soft", text, sizeof text);
    unsigned long pages = strtoul(text, NULL, 10); // 0: no limit
    bool enough = pages == 0 || pages / PIPE_PAGES_PER_JOB >= PIPE_JOBS;
    feature_add(f, "pipe-buffers", enough, true,
                "fs.pipe-user-pages-soft is %s: %lu jobs at a time have pipes of 64 KiB, more have "
                "8 KiB and slower output (0: no limit)",
                text[0] ? text : "unknown", pages / PIPE_PAGES_PER_JOB);
    bool btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0;
    feature_add(f, "btf", btf, true, "%s",
                btf ? "kernel types for eBPF"
                    : "no /sys/kernel/btf/vmlinux: no telemetry from eBPF");
}

static void
probe_namespaces(struct spawn_features *f, int proc_fd)
{
    char text[32];
    first_line(proc_fd, "sys/user/max_user_namespaces", text, sizeof text);
    bool enough = strtoull(text, NULL, 10) > SPAWN_SLOTS_MAX;
    feature_add(f, "user-namespaces", enough, false, "user.max_user_namespaces is %s",
                text[0] ? text : "unknown");
    first_line(proc_fd, "sys/kernel/unprivileged_bpf_disabled", text, sizeof text);
    bool closed = text[0] == '1' || text[0] == '2';
    feature_add(f, "unprivileged-bpf-off", closed, false, "%s",
                closed ? "only privileged programs load eBPF"
                       : "host users may load eBPF; sandboxes may not in any case");
}

void
feature_probe(struct spawn_features *f, const struct cgroups *cg, int proc_fd)
{
    f->hybrid = cg->hybrid;
    (void)snprintf(f->cgroup, sizeof f->cgroup, "%s", cg->path);
    feature_add(f, "cgroup-v2-pure", !cg->hybrid, false, "%s",
                cg->hybrid ? "hybrid: v1 controllers beside a v2 hierarchy"
                           : "every controller is v2");
    feature_add(f, "cgroup-kill", true, true, "cgroup.kill ends a sandbox at once");
    probe_controllers(f, cg);
    probe_files(f, cg);
    probe_namespaces(f, proc_fd);
    probe_host(f, proc_fd);
}
