// SPDX-License-Identifier: Apache-2.0
// Connections of callers to TCP ports inside their sandboxes.
//
//   DIALLING --the spawner's socket arrived--> OPEN --the other end closed, or an error--> (freed)
//
// The spawner makes the socket inside the sandbox's network namespace (SPAWN_NET_DIAL), after the broker has checked
// the policy's `inbound`. A later policy without the port closes it. Data is read only as fast as the caller accepts
// it; data to the sandbox is queued up to FORWARD_QUEUE_MAX. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct forward;
struct forwards;
struct sandbox;
struct server;

enum {
    FORWARD_READ_MAX = 60 * 1024,
    FORWARD_QUEUE_MAX = 256 * 1024,
    FORWARDS_MAX = 1024,      // in total
    FORWARDS_OF_SANDBOX = 64, // of one sandbox
};

// Events for the caller. The forward is freed after `ended`.
struct forward_events {
    void (*opened)(void *cookie, const char *id);
    // Bytes from the sandbox (borrowed). Returns 0, or -EAGAIN: not now; forward_go_on() is called when it may be tried
    // again.
    int (*data)(void *cookie, const void *bytes, size_t n);
    void (*ended)(void *cookie, const struct err *why); // NULL: the other end closed its side
};

// Creates the table of the broker. Free it with forwards_free() when no caller is left. NULL: out of memory.
struct forwards *forwards_new(struct server *srv);
void forwards_free(struct forwards *all); // accepts NULL

// Starts to connect. PERMISSION_DENIED (PORT_NOT_ALLOWED), FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
int forward_open(struct forwards *all, struct sandbox *s, uint16_t port,
                 const struct forward_events *events, void *cookie, struct forward **out,
                 struct err *e);

// The caller has disconnected: no further event is called, and *f is freed.
void forward_drop(struct forward *f);
void forward_go_on(struct forward *f);

// Finds a connection of the caller by its id; otherwise NULL and NOT_FOUND.
struct forward *forward_find(struct forwards *all, const char *tenant, const char *id,
                             struct err *e);

// Queues all of the bytes or none: RESOURCE_EXHAUSTED; FAILED_PRECONDITION after forward_close().
int forward_write(struct forward *f, const void *bytes, size_t n, struct err *e);
void forward_close(struct forward *f);

// Connections to a sandbox.
uint32_t forwards_of(const struct forwards *all, const struct sandbox *s);

// Closes the connections that the sandbox's policy forbids now.
void forwards_check(struct forwards *all, const struct sandbox *s);
