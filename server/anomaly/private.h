// SPDX-License-Identifier: Apache-2.0
// Shared by anomaly.c (input and findings) and act.c (responses).
#pragma once

#include "anomaly.h"
#include "box.h"
#include "findings.h"
#include "profiles.h"
#include "settings.h"
#include "server/base/idtable.h"
#include "server/base/list.h"

struct loop_timer;

// The data of one sandbox.
struct anomaly_block {
    struct anomaly *all;
    uint32_t generation;
    char sandbox_id[ID_TEXT_MAX + 1];
    char tenant[32];
    struct box box;
    // The strongest requested response that has not begun; 0: none. And its reason.
    struct list acting; // in all->acting
    enum response act;
    char why[FINDING_TEXT_MAX + 64];
    bool throttled;
    bool throttling, pausing; // a request to the spawner is pending
};

struct anomaly {
    struct server *srv;
    const struct anomaly_settings *settings;
    const char *state_dir;
    unsigned observer; // our number: job_notes() has the struct box_job
    struct anomaly_block *block[BPF_SLOTS];
    struct findings findings;
    struct list waiters, acting;
    struct loop_timer *soon; // both are served
    struct profiles profiles;
    uint64_t saved_ns;
    // The subject of the current call.
    struct sandbox *sandbox;
    struct job *job;
    uint64_t event_ns;
    uint32_t pid;
    char comm[64];
};

// Schedules the waiting work for after this call.
void anomaly_soon(struct anomaly *a);

// act.c: begins the requested responses.
void anomaly_act(struct anomaly *a);
