// SPDX-License-Identifier: Apache-2.0
// A broker for tests of the spawner: starts the real binary on a cgroup and a state directory of its own, and
// exchanges single packets with it, so it can also send what no correct broker sends.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/spawner/ops.h"
#include "tests/harness/reader.h"
#include "tests/harness/wait.h"

enum { BROKER_WAIT_MS = 60 * 1000 }; // even on a slow machine; no reply takes that long

struct broker {
    pid_t pid; // the spawner
    int fd;
    uint32_t seq;
    struct spawn_config config;
    struct spawn_features features;
    int bpf_fds[BPF_FDS];      // of the first reply; -1: missing
    void (*before_exec)(void); // called in the spawner's process, or NULL
};

struct spawned {
    uint32_t slot;
    uint32_t generation;
    uint32_t uid;
    char name[33];
    int fds[SPAWN_FDS_MAX];
};

extern const struct spawn_limits small_limits;

void broker_config(struct broker *b, const char *suffix);

// Uses the programs of the build, and the relay if it was built.
void broker_config_bpf(struct broker *b);
const struct spawn_feature *broker_feature(const struct broker *b, const char *name);
bool readable(int fd, int ms);

// The next packet of the spawner. False at its end.
bool broker_read(struct broker *b, struct spawn_reply *r, int fds[SPAWN_FDS_MAX]);

// Starts it and reads the reply. False: it has ended, and *r has the reason.
bool broker_try_start(struct broker *b, struct spawn_reply *r);
// Starts it, and makes root 0 from the default template.
void broker_start(struct broker *b);

// Writes the reader's file. It is in the state directory and is removed with it.
void broker_write_config(const struct broker *b, const char *text);

// Has another root made: returns its number; 0: it was given up.
void broker_root(struct broker *b);
uint32_t broker_send(struct broker *b, struct spawn_request *q);

// Sends one request and waits for its reply; no other may be pending.
struct spawn_reply broker_ask(struct broker *b, struct spawn_request *q, int fds[SPAWN_FDS_MAX]);
struct spawn_request create_request(uint32_t n);
void spawned_from(struct spawned *x, const struct spawn_reply *r, uint32_t n);

// Waits for the guest's first packet, an Event with the field `ready`.
void spawned_wait_ready(const struct spawned *x);
void spawned_create(struct broker *b, struct spawned *x, uint32_t n);
void spawned_close_fds(struct spawned *x);
struct spawn_request request_for(const struct spawned *x, enum spawn_op op, uint32_t arg);
void spawned_destroy(struct broker *b, struct spawned *x);

// The mount point of the v2 hierarchy.
const char *v2_mount(void);

// The first process of a sandbox is in a cgroup of its own, or in the sandbox's. Returns the path of its cgroup.procs
// below the sandbox's.
const char *guest_procs(int sandbox_fd);

// Enters the sandbox's network namespace; only for children of a test.
void spawned_enter_network(const struct spawned *x);
const char *container_path(const struct broker *b);

// Number of folders in the container below a v1 controller; 0: none.
unsigned folders_under(const struct broker *b, const char *controller);

// Whether the container was removed from every hierarchy.
bool containers_gone(const struct broker *b);

// Removes the state directory.
void remove_state(const struct broker *b);

// Closes the socket, waits for the end, asserts that everything was removed, and removes the state directory.
void broker_stop(struct broker *b);
