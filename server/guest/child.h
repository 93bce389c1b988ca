// SPDX-License-Identifier: Apache-2.0
// Between clone3 and execve: turns a copy of the guest into a job.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "proto/err.h"

// The description of a job. Borrowed pointers; valid until clone3 returns in the guest.
struct guest_plan {
    char **args; // with a free element before the first: guest_path_exec()
    char **env;
    const char *workdir;
    int stdio[3]; // without a terminal
    int terminal; // the slave of its pty, or -1
    int socket;   // of an agent program, which keeps the guest's /dev/null as stdio; -1: a job
    int script;   // or -1
    int program;  // to execute instead of args[0]; or -1
    int link;     // becomes descriptor 3; or -1
    uint64_t files_max;
    uint64_t file_bytes_max;
    uint64_t tasks_max;
    uint64_t cpu_seconds_max; // 0: none
    bool network_off;         // no sockets but unix ones
    bool user_root;           // root inside, with SPAWN_ROOT_CAPABILITIES
    struct sock_filter *filter;
    unsigned short filter_n;
};

// The failure, written by the child into the guest's memory, on failure only.
struct guest_report {
    uint32_t failed;
    int32_t exit_code; // 127, 126, or 0 if Stockade failed
    struct err err;
};

// Never returns: executes the job, or reports the failure and exits.
_Noreturn void guest_child_run(const struct guest_plan *plan, struct guest_report *report);

// Sets both values of a resource limit of this process (getrlimit(2)), at most to the current maximum.
int guest_limit(int resource, rlim_t value, struct err *e);
