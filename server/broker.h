// SPDX-License-Identifier: Apache-2.0
// The parts of the broker as one process, for main.c: core.c makes them, stop.c takes them down in the reverse order.
// Loop thread only, as everything that they make.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/rpc/tenants.h"
#include "start.h"

struct drain;
struct keys_earlier;
struct reload;

struct broker {
    struct server s;
    struct tenants tenants;
    struct config *config;
    struct start root; // what was made as root
    uint8_t *master;   // of encryption, until the data keys are read
    uv_loop_t loop;
    uv_signal_t term, interrupt, hangup;
    int argc; // of main()
    char **argv;
    struct reload *reload;
    char bound[CONFIG_LISTEN_MAX][256];
    struct drain *drain;
    bool started; // there is a loop
    struct keys_earlier *earlier;
    int status;
};

// Makes everything between the spawner, which runs, and the sockets: state, audit log, sandboxes, and what observes them.
// After a failure stop_broker() takes down what was made.
int core_make(struct broker *b, struct err *e);

// Ends the process with b->status. Takes down what was made, also after a start that failed halfway.
_Noreturn void stop_broker(struct broker *b);
