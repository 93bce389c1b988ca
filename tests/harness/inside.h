// SPDX-License-Identifier: Apache-2.0
// A sandbox for tests, without the spawner: the test forks a holder that prepares the trees, and clones children that
// enter one, as the spawner does, then run a shell script as a job's user would (inside uid 1000, no capabilities).
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

#include "server/reader/root.h"
#include "server/spawner/filter.h"
#include "server/spawner/tree.h"

enum { ROOT = 0, AGENT = SANDBOX_UID_JOB };
enum { TEST_UID = (int)(SPAWN_ID_BASE_DEFAULT + 77 * SPAWN_IDS_PER_SANDBOX) };

struct inside {
    struct spawn_config config;
    struct spawn_features features;
    struct tree *tree;
    struct spawn_root root; // as it was added, number 0
    struct filter guest;
    struct filter job;
    int job_fd;
    int cgroup_fd; // in the new mount namespace
    int userns_fd;
    char state_dir[64];
    char cgroup[128];
};

extern struct inside in; // of this program

_Noreturn void inside_die(const char *what);

enum {
    INSIDE_NAMESPACES =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
};

struct tree_sandbox inside_sandbox(uint64_t disk_bytes, uint32_t inodes);

// In the holder: runs a script with sh in a fresh sandbox, as an inside user. Its output (both streams) goes to out.
// Returns the wait status.
int inside_script(const char *script, int uid, bool filtered, char *out, size_t size);

// The same with the program's own sandbox; the agent's scripts are filtered. The output, until the next call.
const char *inside_run(const char *script, int uid);

// Fails the test unless the text contains the part.
void expect_in(const char *text, const char *part);

// main() of a test: makes cgroup and state directory, calls `before` (or not: NULL), and in a holder, which has left the
// host's mount namespace for ever, `cases`; then removes both. Gives the exit status.
int inside_main(const char *name, void (*before)(void), int (*cases)(void));
