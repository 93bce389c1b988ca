// SPDX-License-Identifier: Apache-2.0
// Operations on the files of sandboxes. stockade-files, an agent program (sandbox/agent.h) inside each sandbox that needs it,
// carries them out (files_agent/protocol.h). It is started by the first operation, and ended a minute after the last.
//
//   files_begin() -> message, data ... -> ended        files_send() ... files_finish() for a transfer
//
// The broker opens no path of a sandbox. What the program reports is checked by the caller of this layer like a message of a
// client. It works under the uid of the jobs, which can stop or kill it: an operation without an END is never a success,
// and a program that does not report for half a minute is killed. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"
#include "server/files_agent/protocol.h"

struct files;
struct files_op;
struct sandbox;
struct sandbox_spec;
struct server;

enum {
    FILES_OPS_MAX = 1024,      // in total
    FILES_OPS_OF_SANDBOX = 64, // of one sandbox
    FILES_QUEUE_BYTES = 1024 * 1024,
};

// Events of an operation. It is freed after `ended`.
struct files_events {
    // A packed response, or bytes of a file: hostile, borrowed. 0; -EAGAIN: not now, files_go_on() says when it may come
    // again; another negative value: it breaks the protocol, *e says why, and the operation ends with that.
    int (*message)(void *cookie, const void *bytes, size_t n, struct err *e);
    int (*data)(void *cookie, const void *bytes, size_t n, struct err *e);
    // The sandbox has accepted so many bytes of a transfer. May be NULL.
    void (*accepted)(void *cookie, uint64_t bytes);
    // NULL: it succeeded, and is complete.
    void (*ended)(void *cookie, const struct err *why);
};

// program_fd: stockade-files, O_PATH; owned. -1: every operation is refused. NULL: out of memory.
struct files *files_new(struct server *srv, int program_fd);
void files_free(struct files *all); // accepts NULL; no sandbox is left

// Begins an operation in a RUNNING sandbox. NULL: FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
struct files_op *files_begin(struct files *all, struct sandbox *s, enum files_method method,
                             const ProtobufCMessage *request, const struct files_events *events,
                             void *cookie, struct err *e);

// Ends it early; no further event is called.
void files_drop(struct files_op *op);
void files_go_on(struct files_op *op);

// Its id, for files_find(): an operation of a sandbox of the caller; otherwise NULL and NOT_FOUND.
const char *files_id(const struct files_op *op);
struct files_op *files_find(struct files *all, const char *tenant, const char *id, struct err *e);

// The next bytes of a transfer, from this offset on; those that were accepted before are ignored. All or nothing:
// OUT_OF_RANGE; RESOURCE_EXHAUSTED: the queue is full. *until: the sandbox has accepted them when `accepted` reports so
// many bytes; 0: it has.
int files_send(struct files_op *op, uint64_t offset, const void *bytes, size_t n, uint64_t *until,
               struct err *e);
// No more will come than these. OUT_OF_RANGE: another number was accepted.
int files_finish(struct files_op *op, uint64_t bytes, struct err *e);

// All bytes of a transfer that has just begun, at most FILES_QUEUE_BYTES, and its end.
int files_put(struct files_op *op, const void *bytes, size_t n, struct err *e);

// The states that a comparison compares, right after its begin: `fds` are *owned* by this, -1: missing.
int files_pass(struct files_op *op, int *fds, uint32_t fds_n, struct err *e);

// Ends all operations in a sandbox, for this reason. Returns their number.
uint32_t files_cut_off(struct files *all, const struct sandbox *s, const struct err *why);

// Operations in a sandbox.
uint32_t files_of(const struct files *all, const struct sandbox *s);

// What files_begin() was given.
void *files_cookie(const struct files_op *op);

// ---- holder.c: files of a volume, without a sandbox of the caller's

// Where a holder has its volume, which is the root of the files there.
#define FILES_VOLUME_AT "/volume"

struct files_wait;
typedef void files_ready(void *cookie, struct sandbox *s, const struct err *e);

// Finds or makes a sandbox of the tenant for the files of the volume that spec->mounts has at FILES_VOLUME_AT, and calls ready
// once, perhaps before this returns; files_begin() in that sandbox must follow at once. Takes what the spec owns, also on
// failure. *out is for files_unwait(), and NULL from the call of ready on. Errors as of pool_acquire().
int files_hold(struct files *all, const char *tenant, struct sandbox_spec *spec, files_ready *ready,
               void *cookie, struct files_wait **out, struct err *e);
void files_unwait(struct files_wait *w);

// The volume is to be removed: ends the sandbox that was made for its files, unless an operation is in progress.
void files_let_go(struct files *all, const char *tenant, const uint8_t volume[16]);
