// SPDX-License-Identifier: Apache-2.0
// Connections of callers to TCP ports inside their sandboxes.
//
//   DIALLING --the spawner's socket is there--> OPEN --the other end is silent for good, or an error--> (freed)
//
// The socket is made inside the sandbox's network namespace by the spawner (SPAWN_NET_DIAL), after the policy's `inbound`
// was looked at. A policy that lacks the port later cuts it. What comes is read only as fast as the caller takes it; what
// goes is queued up to FORWARD_QUEUE_MAX. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../proto/err.h"

struct forward;
struct forwards;
struct sandbox;
struct server;

enum {
    FORWARD_READ_MAX = 60 * 1024,
    FORWARD_QUEUE_MAX = 256 * 1024,
    FORWARDS_MAX = 1024,      // in all
    FORWARDS_OF_SANDBOX = 64, // of one
};

// What its caller is told. After `ended` it is gone.
struct forward_events {
    void (*opened)(void *cookie, const char *id);
    // Bytes; -EAGAIN: not now, forward_go_on() is called when it may be tried again. Borrowed.
    int (*data)(void *cookie, const void *bytes, size_t n);
    void (*ended)(void *cookie, const struct err *why); // NULL: the other end said no more
};

// One for the broker, as long as it runs. NULL without memory.
struct forwards *forwards_new(struct server *srv);

// Begins. PERMISSION_DENIED (PORT_NOT_ALLOWED), FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
int forward_open(struct forwards *all, struct sandbox *s, uint16_t port,
                 const struct forward_events *events, void *cookie, struct forward **out,
                 struct err *e);

// The caller has gone: no event comes any more, *f is gone.
void forward_drop(struct forward *f);
void forward_go_on(struct forward *f);

// The caller's own, by id; NULL and NOT_FOUND otherwise.
struct forward *forward_find(struct forwards *all, const char *tenant, const char *id,
                             struct err *e);

// All of the bytes are taken, or none: RESOURCE_EXHAUSTED; FAILED_PRECONDITION after forward_close().
int forward_write(struct forward *f, const void *bytes, size_t n, struct err *e);
void forward_close(struct forward *f);

// Ends those that the sandbox's policy forbids now.
void forwards_check(struct forwards *all, const struct sandbox *s);
