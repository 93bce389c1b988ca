// SPDX-License-Identifier: Apache-2.0
// A sandbox with the real guest, and the broker's messages to it, for guest.c.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <time.h>

#include "guest.pb-c.h"
#include "tests/harness/inside.h"
#include "tests/harness/wait.h"
#include "proto/auto.h"

enum { OUTPUT_MAX = 65536 };

extern int guest_exe;

struct box {
    int socket;
    pid_t pid;
    char cgroup[64]; // below the mount at /c
    uint32_t jobs;
};

double now_us(void);

// Sends the packed bytes, with descriptors.
void send_packet(int socket, const void *bytes, size_t n, const int *fds, unsigned fds_n);

// The next event; NULL: the guest has ended. *fd: the descriptor that came with it, or -1.
Stockade__Guest__Event *next_event(int socket, int *fd);

extern double ready_us; // from clone3 to Ready

void box_open(struct box *b);

// Closes the socket, which must end the guest and all jobs; then removes the cgroups.
void box_close(struct box *b);
int setup(void **state);
int teardown(void **state);

struct start {
    char *args[8];
    const char *workdir;
    char *path; // "PATH=..."
    bool terminal;
    int pipes; // descriptors to send; -1: three
};

// Sends a Start with new pipes. *output: our end of stdout and stderr, *input: of stdin.
uint32_t start_job(struct box *b, const struct start *s, int *input, int *output);
void send_simple(struct box *b, int what, uint32_t job, uint32_t signal_number, bool group);
void expect_started(struct box *b, uint32_t job, int *fd);

// Returns the wait status.
int expect_exited(struct box *b, uint32_t job);
void expect_failed(struct box *b, unsigned exit_code, const char *text);
const char *read_all(int fd);

// Runs a script to its end and returns its output.
const char *run_script(struct box *b, const char *script, int status);
void try_start(struct box *b, struct start *s);
