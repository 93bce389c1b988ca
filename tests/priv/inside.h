// SPDX-License-Identifier: Apache-2.0
// A sandbox for tests, without the spawner: the test forks a holder that prepares the trees, and clones children that
// enter one, as the spawner does, then run a shell script as a job's user would (inside uid 1000, no capabilities).
#pragma once

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/spawner/filter.h"
#include "server/spawner/tree.h"

enum { TEST_UID = (int)(SPAWN_ID_BASE_DEFAULT + 77 * SPAWN_IDS_PER_SANDBOX) };

struct inside {
    struct spawn_config config;
    struct spawn_features features;
    struct tree *tree;
    struct filter guest;
    struct filter job;
    int job_fd;
    int cgroup_fd; // in the new mount namespace
    int userns_fd;
    char state_dir[64];
    char cgroup[128];
};

static inline void
inside_die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, strerror(errno));
    abort();
}

static inline void
inside_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        inside_die(path);
    (void)close(fd);
}

static inline int
inside_userns(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    char path[64];
    char map[64];
    (void)snprintf(map, sizeof map, "0 %d 65536\n", TEST_UID);
    (void)snprintf(path, sizeof path, "/proc/%d/setgroups", pid);
    inside_write(path, "deny");
    (void)snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    inside_write(path, map);
    (void)snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    inside_write(path, map);
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        inside_die(path);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return fd;
}

// The v2 cgroup of the test, and its state directory. Before the holder is forked.
static inline void
inside_init(struct inside *in, const char *name)
{
    *in = (struct inside){.job_fd = -1};
    struct stat st;
    const char *root =
        stat("/sys/fs/cgroup/unified", &st) == 0 ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
    (void)snprintf(in->cgroup, sizeof in->cgroup, "%s/stockade-test-%s-%d", root, name, getpid());
    (void)snprintf(in->state_dir, sizeof in->state_dir, "/tmp/stockade-test-%s-%d", name, getpid());
    if (mkdir(in->cgroup, 0755) < 0 || mkdir(in->state_dir, 0755) < 0)
        inside_die("make the test's folders");
    struct spawn_config *c = &in->config;
    c->version = SPAWN_VERSION;
    c->id_base = SPAWN_ID_BASE_DEFAULT;
    c->slots = 1024;
    c->templates_n = 1;
    (void)snprintf(c->state_dir, sizeof c->state_dir, "%s", in->state_dir);
    (void)snprintf(c->templates[0].name, sizeof c->templates[0].name, "default");
    (void)snprintf(c->templates[0].hostname, sizeof c->templates[0].hostname, "sandbox");
    (void)snprintf(c->templates[0].paths[0], sizeof c->templates[0].paths[0], "/opt");
}

static inline void
inside_remove(struct inside *in)
{
    (void)rmdir(in->cgroup);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", in->state_dir);
    if (system(command) != 0) // NOLINT(cert-env33-c): our own name
        inside_die(command);
}

// In the holder: it leaves the host's mount namespace for ever.
static inline void
inside_prepare(struct inside *in)
{
    struct err e = {0};
    int auto_root = open(in->cgroup, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree_prepare(&in->config, auto_root, &in->cgroup_fd, &in->tree, &in->features, &e) < 0 ||
        filter_compile(&in->guest, &in->job, &in->job_fd, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
    (void)close(auto_root);
    in->userns_fd = inside_userns();
}

enum {
    INSIDE_NAMESPACES =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
};

static inline void
inside_drop(const struct inside *in, int uid)
{
    if (setns(in->userns_fd, CLONE_NEWUSER) < 0 ||
        setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) < 0 ||
        setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        inside_die("drop");
}

static inline struct tree_sandbox
inside_sandbox(const struct inside *in, uint64_t disk_bytes, uint32_t inodes)
{
    return (struct tree_sandbox){.userns_fd = in->userns_fd,
                                 .uid = (uint32_t)TEST_UID,
                                 .disk_bytes = disk_bytes,
                                 .inodes = inodes,
                                 .memory_bytes = 512 << 20,
                                 .cpu_millis = 1500,
                                 .hidden_fd = -1};
}

// In the holder: runs a script with sh in a fresh sandbox, as an inside user. Its output (both streams) goes to out.
// Returns the wait status.
static inline int
inside_script(const struct inside *in, const char *script, int uid, bool filtered, char *out,
              size_t size)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        inside_die("pipe");
    pid_t pid = (pid_t)syscall(SYS_clone, INSIDE_NAMESPACES | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        struct err e = {0};
        int disk = -1;
        struct tree_sandbox s = inside_sandbox(in, 64 << 20, 4096);
        (void)dup2(pipes[1], 1);
        (void)dup2(pipes[1], 2);
        if (tree_enter(in->tree, &s, &disk, &e) < 0) {
            (void)dprintf(2, "tree_enter: %s\n", e.text);
            _exit(90);
        }
        inside_drop(in, uid);
        if (filtered && (filter_load(&in->guest, &e) < 0 || filter_load(&in->job, &e) < 0))
            _exit(91);
        char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, strdup(script), NULL};
        char *env[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/go/bin"},
                       (char[]){"HOME=/home/agent"}, (char[]){"LC_ALL=C"}, NULL};
        (void)!chdir("/home/agent");
        execve("/bin/sh", argv, env);
        inside_die("exec /bin/sh");
    }
    (void)close(pipes[1]);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0)
        got = read(pipes[0], out + n, size - 1 - n);
    out[n] = '\0';
    (void)close(pipes[0]);
    int status = 0;
    (void)waitpid(pid, &status, 0);
    return status;
}
