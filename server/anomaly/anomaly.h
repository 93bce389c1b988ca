// SPDX-License-Identifier: Apache-2.0
// Anomalies: compares what telemetry sees of a sandbox with fixed rules and with its usual behaviour.
//
//   kernel's events, relay's reports --> tripwires (box.c)         named rules: a threshold, a window
//   counters, every 100 ms ----------> rates (rates.c)             EWMA and two-sided CUSUM
//   exec events, profile events -----> profiles (profiles.c)       per template and executable
//                                          |
//                                       finding --> kept here, passed to telemetry (events, the job's record)
//                                          +------> response: log, alert, throttle, pause, kill (act.c)
//
// It observes the sandboxes (server/sandbox/observers.h), and telemetry passes it their events and counters (struct
// telemetry_detectors). Nothing here allocates per event: each sandbox and each job has one block of fixed size, made
// with its first event. Loop thread only. A response is started from a separate timer, never inside a call below, so
// sandboxes and jobs outlive each call.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/list.h"

struct anomaly;
struct anomaly_settings;
struct finding;
struct server;

// Creates it. Free it with anomaly_free() after telemetry_free(). Registers itself with srv->sandboxes and srv->telemetry. The
// settings and the path are borrowed. Uses srv->bpf if it has profiles. NULL: out of memory. Loads the profiles of earlier
// runs from state_dir; those that cannot be read are logged and skipped.
struct anomaly *anomaly_new(struct server *srv, const struct anomaly_settings *settings,
                            const char *state_dir);
void anomaly_free(struct anomaly *a);

// The configuration was read again: there may be new templates, with new numbers or with numbers of removed ones.
void anomaly_reloaded(struct anomaly *a);

// ---- for server/api/anomaly.c

struct anomaly_config;
struct profiles;

// The last finding's sequence; 0: none. The first kept finding after a sequence number; NULL: none. And the number of
// findings of a tenant (NULL: of all) after it that are no longer kept, at most.
uint64_t anomaly_last(const struct anomaly *a);
const struct finding *anomaly_next(const struct anomaly *a, uint64_t after);
uint64_t anomaly_forgotten(const struct anomaly *a, const char *tenant, uint64_t after);

// A waiter for the next finding of any sandbox. Embedded; called once, from a timer, unless it is removed.
struct anomaly_waiter {
    struct list node;
    void (*done)(void *cookie);
    void *cookie;
};
void anomaly_wait(struct anomaly *a, struct anomaly_waiter *w);
void anomaly_unwait(struct anomaly_waiter *w);
// Calls all waiters, since the shutdown starts.
void anomaly_end(struct anomaly *a);

// The rules in force for a template, by its number in the configuration.
const struct anomaly_config *anomaly_policy(const struct anomaly *a, uint32_t template);

// Whether the host or the tenant (NULL: none) has written a rule with this name.
bool anomaly_has_written(const struct anomaly *a, const char *tenant, const char *rule);

// The profile of a template changed: its live sandboxes are updated (anomaly_watch), and the need for system calls.
void anomaly_changed(struct anomaly *a, uint32_t template);

// The profiles. Call anomaly_save() after a change: it writes them to the state directory, or returns the failure.
struct profiles *anomaly_profiles(struct anomaly *a);
int anomaly_save(struct anomaly *a, uint32_t template, struct err *e);
