// SPDX-License-Identifier: Apache-2.0
// Shared by anomaly.c (input and findings) and act.c (responses).
#pragma once

#include "anomaly.h"
#include "box.h"
#include "findings.h"
#include "profiles.h"
#include "settings.h"
#include "bpf/emit.h"
#include "bpf/net.h"
#include "bpf/watch.h"
#include "proto/detect.h"
#include "server/base/idtable.h"
#include "server/base/list.h"

struct Stockade__V1__Event;
struct loop_timer;

enum { WRITTEN_CLASSES = 11 }; // of events that rules are about

// Findings of rules that users have written, in this minute.
struct written_burst {
    uint64_t minute;
    uint32_t n;
    uint64_t had[1024 / 64]; // bits: rules that had one
};

// Events that the kernel has counted, as of the last look, and that came (ruled.c).
struct ruled_marks {
    uint64_t due[DETECT_MARKS], got[DETECT_MARKS];
};
struct ruled_calls {
    uint64_t due[DETECT_CALLS], got[DETECT_CALLS];
};

// What rules of the host have in the kernel's tables.
struct ruled {
    uint32_t marks_n, keys_n, numbers_n;
    uint32_t version; // of the rules, from 1
    struct net_mark_key key[DETECT_MARK_PREFIXES];
    uint16_t number[DETECT_CALLS]; // of calls
    bool has_calls;
    uint8_t calls[WATCH_SYSCALLS]; // the programs' own table
};

// The data of one job.
struct anomaly_job {
    struct box_job box; // first
    uint32_t calls_of;  // the version of the rules that `calls` is about
    struct ruled_calls calls;
};

// The data of one sandbox.
struct anomaly_block {
    struct anomaly *all;
    uint32_t generation;
    char sandbox_id[ID_TEXT_MAX + 1];
    char tenant[32];
    struct box box;
    struct box_evidence evidence;
    // The strongest requested response that has not begun; 0: none. And its reason.
    struct list acting; // in all->acting
    enum response act;
    bool deny_network; // requested, and has not begun
    char why[FINDING_TEXT_MAX + 64];
    bool first;                  // a snapshot is taken before it
    char act_rule[FINDING_RULE]; // whose response it is
    bool act_of_tenant;
    struct anomaly_snap *snap; // in progress; NULL: none
    uint32_t snaps;            // so far
    bool throttled;
    bool throttling, pausing, denying; // a request to the spawner is pending
    // Of rules of the host, and of the tenant, which hide nothing of each other.
    struct written_burst written, own;
    struct ruled_marks marks;
    uint64_t lost_minute[2][WRITTEN_CLASSES]; // of the last finding about lost events: host, tenant
};

struct anomaly {
    struct server *srv;
    const struct anomaly_settings *settings;
    const char *state_dir;
    unsigned observer; // our number: job_notes() has the struct box_job
    struct anomaly_block *block[BPF_SLOTS];
    struct findings findings;
    struct list waiters, acting;
    struct list snaps;       // struct anomaly_snap
    struct loop_timer *soon; // both are served
    struct profiles profiles;
    struct ruled ruled;
    uint64_t saved_ns;
    // The subject of the current call.
    struct sandbox *sandbox;
    struct job *job;
    uint64_t event_ns;
    uint32_t pid;
    char comm[64];
    bool writing;     // a finding of a written rule is published: it is not compared itself
    bool correlating; // a finding is compared with tripwires: what they find is not
};

// The data of a sandbox. NULL: out of memory, or the sandbox has no owner.
struct anomaly_block *anomaly_block_of(struct anomaly *a, struct sandbox *s);

// Handles a finding about the subject of the current call, which has what its rule says. rule: for the metrics. j NULL: it is about
// the whole sandbox.
void anomaly_give(struct anomaly_block *b, enum box_voice voice, uint32_t rule, struct finding *of,
                  struct job *j);

// written.c: the tags of a tripwire, as the host has written them, or the usual ones.
void anomaly_tripwire_tags(const struct anomaly *a, uint32_t rule, struct finding *f);

// written.c: compares an event with the rules that users have written.
void anomaly_written(void *anomaly, struct sandbox *s, const struct Stockade__V1__Event *m);

// written.c: the event as the conditions of tripwires see it. False: none is about it.
bool anomaly_fill_event(const struct anomaly *a, const struct sandbox *s,
                        const struct Stockade__V1__Event *m, uint64_t time_ns,
                        struct detect_event *out);

// The same, with a rule of the host, about events that the kernel counted and that were lost: ev->times of them. rule -1: all rules.
void anomaly_counted(struct anomaly *a, struct sandbox *s, const struct Stockade__V1__Event *m,
                     int rule, const struct detect_event *ev);

// ruled.c: writes the kernel's tables, at start and when the rules have changed.
void anomaly_ruled_write(struct anomaly *a);
// An event of these tables has come. j NULL: its job is unknown.
void anomaly_ruled_event(struct anomaly *a, struct anomaly_block *b, struct anomaly_job *j,
                         const struct event *event, const void *body);
// Compares the counters of a sandbox with the events that came. last: no job is left.
void anomaly_ruled_look(struct anomaly *a, struct anomaly_block *b, struct sandbox *s, bool last);
// The same for the calls of a job; and when it has ended.
void anomaly_ruled_calls(void *anomaly, struct sandbox *s, struct job *job,
                         const struct watch_account *account);
void anomaly_ruled_end(struct anomaly *a, struct sandbox *s, struct job *job,
                       struct anomaly_job *j);

// Schedules the waiting work for after this call.
void anomaly_soon(struct anomaly *a);

// act.c: begins the requested responses; and one of them, after its snapshot.
void anomaly_act(struct anomaly *a);
void anomaly_respond(struct anomaly_block *b, enum response what);

// snapshot_first.c: true: a snapshot was begun, or is in progress, and the response follows it; otherwise it is due now. `first`: the
// response wants a snapshot.
bool anomaly_snap_begin(struct anomaly_block *b, struct sandbox *s, enum response what, bool first);
void anomaly_snaps_end(struct anomaly *a);
