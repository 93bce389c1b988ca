// SPDX-License-Identifier: Apache-2.0
// A sandbox for tests, without the spawner: the test forks a holder process that prepares the trees. The holder
// clones children that enter a tree like the spawner's, and run a shell script with the rights of a job's user
// (inside uid 1000, no capabilities).
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
    struct spawn_root root; // the root that was added as number 0
    struct filter guest;
    struct filter job;
    int job_fd;
    int cgroup_fd; // in the new mount namespace
    int userns_fd;
    char state_dir[64];
    char cgroup[128];
};

extern struct inside in; // of this test program

_Noreturn void inside_die(const char *what);

enum {
    INSIDE_NAMESPACES =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
};

struct tree_sandbox inside_sandbox(uint64_t disk_bytes, uint32_t inodes);

// In the holder: runs a script with sh in a new sandbox, as a user inside. Its output (both streams) goes to out.
// Returns the wait status.
int inside_script(const char *script, int uid, bool filtered, char *out, size_t size);

// The same in the program's own sandbox; scripts of the agent run under the filter. Returns the output, valid until
// the next call.
const char *inside_run(const char *script, int uid);

// Fails the test unless the text contains the part.
void expect_in(const char *text, const char *part);

// main() of a test: makes a cgroup and a state directory and calls `before` (NULL: nothing). Then it runs `cases` in
// a holder process, which has left the host's mount namespace, and removes both. Returns the exit status.
int inside_main(const char *name, void (*before)(void), int (*cases)(void));
