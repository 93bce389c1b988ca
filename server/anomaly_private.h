// SPDX-License-Identifier: Apache-2.0
// Between anomaly.c (what comes in, what is found) and anomaly_act.c (what is done about it).
#pragma once

#include "anomaly.h"
#include "anomaly_box.h"
#include "anomaly_findings.h"
#include "anomaly_profiles.h"
#include "list.h"

struct loop_timer;

// What is kept of one sandbox.
struct anomaly_block {
    struct anomaly *all;
    uint32_t generation;
    char sandbox_id[33];
    char tenant[32];
    struct box box;
    // The gravest response that was asked for and not begun; 0: none. And why.
    struct list acting; // in all->acting
    enum anomaly_response act;
    char why[ANOMALY_TEXT_MAX + 64];
    bool throttled;
    bool throttling, pausing; // the spawner was asked, and has not answered
};

struct anomaly {
    struct server *srv;
    void (*listener)(void *cookie, const struct anomaly_finding *f, struct sandbox *s,
                     struct job *j);
    void *listener_cookie;
    struct anomaly_block *block[BPF_SLOTS];
    struct findings findings;
    struct list waiters, acting;
    struct loop_timer *soon; // both are served
    struct profiles profiles;
    uint64_t saved_ns;
    // What the call in progress is about.
    struct sandbox *sandbox;
    struct job *job;
    uint64_t event_ns;
    uint32_t pid;
    char comm[64];
};

// Something waits: it is served when this call is over.
void anomaly_soon(struct anomaly *a);

// anomaly_act.c: begins the responses that were asked for.
void anomaly_act(struct anomaly *a);
