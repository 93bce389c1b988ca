// SPDX-License-Identifier: Apache-2.0
// A broker for tests of the spawner: starts the real binary on a cgroup and a state directory of its own, and speaks to
// it packet by packet, so that it can also say what no broker says.
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

enum { BROKER_WAIT_MS = 60 * 1000 }; // for a slow machine; nothing takes that long

struct broker {
    pid_t pid; // the spawner
    int fd;
    uint32_t seq;
    struct spawn_config config;
    struct spawn_features features;
    int bpf_fds[BPF_FDS];      // of the first answer, -1 where absent
    void (*before_exec)(void); // in the spawner's process, or NULL
};

struct sandbox {
    uint32_t slot;
    uint32_t generation;
    uint32_t uid;
    char name[33];
    int fds[SPAWN_FDS_MAX];
};

extern const struct spawn_limits small_limits;

void broker_config(struct broker *b, const char *suffix);

// The programs of the build, and the relay where it is built.
void broker_config_bpf(struct broker *b);
const struct spawn_feature *broker_feature(const struct broker *b, const char *name);
bool readable(int fd, int ms);

// The next packet of the spawner. False at its end.
bool broker_read(struct broker *b, struct spawn_reply *r, int fds[SPAWN_FDS_MAX]);

// Starts it and reads the answer. False: *r says why not, and it has ended.
bool broker_try_start(struct broker *b, struct spawn_reply *r);
// Starts it, and has root 0 made, of the default template.
void broker_start(struct broker *b);

// What the reader reads. In the state directory, so that it goes with it.
void broker_write_config(const struct broker *b, const char *text);

// Has another root made: the first that is free, 0 for one that was given up.
void broker_root(struct broker *b);
uint32_t broker_send(struct broker *b, struct spawn_request *q);

// One request and its answer, when nothing else is on the way.
struct spawn_reply broker_ask(struct broker *b, struct spawn_request *q, int fds[SPAWN_FDS_MAX]);
struct spawn_request create_request(uint32_t n);
void sandbox_from(struct sandbox *x, const struct spawn_reply *r, uint32_t n);

// The guest's first packet: it is ready. (An Event with the field `ready`.)
void sandbox_wait_ready(const struct sandbox *x);
void sandbox_create(struct broker *b, struct sandbox *x, uint32_t n);
void sandbox_close_fds(struct sandbox *x);
struct spawn_request request_for(const struct sandbox *x, enum spawn_op op, uint32_t arg);
void sandbox_destroy(struct broker *b, struct sandbox *x);

// Where the v2 hierarchy is mounted.
const char *v2_mount(void);

// The first process of a sandbox is in a cgroup of its own, or in the sandbox's: below that, the file that names it.
const char *guest_procs(int sandbox_fd);
const char *container_path(const struct broker *b);

// How many folders the container has under a v1 controller; 0 when there is none.
unsigned folders_under(const struct broker *b, const char *controller);

// True when the container is gone under every hierarchy.
bool containers_gone(const struct broker *b);

// Takes the state directory away.
void remove_state(const struct broker *b);

// Closes the socket, waits for the end, looks whether all is gone, and takes the state directory away.
void broker_stop(struct broker *b);
