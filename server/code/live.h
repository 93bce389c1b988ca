// SPDX-License-Identifier: Apache-2.0
// Live state: checkpoints of contexts, contexts that are restored to one, and contexts that are forked.
//
//   CHECKPOINT  interpreter --fork--> image, the checkpoint's
//   FORK        interpreter --fork--> image --when READY--> interpreter of a new context
//   with a checkpoint, FORK and RESTORE:
//               its image --fork--> its next image; the one that it had becomes the interpreter, because it is READY
//
// An operation is answered when the state is kept or given. It lasts until the new image is READY (image.h), because an image
// ends with the process that forked it until then: meanwhile no cell begins in the context, and the broker does not kill its
// interpreter. Operations on one context, or on one checkpoint, follow each other.
//
// A checkpoint belongs to its sandbox and outlives its context. One whose process has ended stays in the list, with the
// reason, until it is deleted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

struct checkpoint;
struct context;
struct contexts;
struct live_op;
struct sandbox;

enum { CHECKPOINTS_OF_SANDBOX = 8, CHECKPOINT_NAME_MAX = 64 };

enum live_kind { LIVE_CHECKPOINT, LIVE_RESTORE, LIVE_FORK };

// CHECKPOINT: the new one. RESTORE, FORK: the context. e: NULL, or why it failed. All are borrowed for the call.
typedef void live_done(void *cookie, const struct checkpoint *made, const struct context *context,
                       const struct err *e);

// Begins an operation; `name` is that of the checkpoint, "": CHECKPOINT makes a name, FORK takes the state of the context
// itself. `done` is called once, later, unless this fails: NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION (reason LIVE_STATE:
// the state cannot be carried), RESOURCE_EXHAUSTED. *out is borrowed until then.
int live_begin(enum live_kind kind, struct context *c, const char *name, live_done *done,
               void *cookie, struct live_op **out, struct err *e);

// Nobody waits for it any more; it goes on.
void live_forget(struct live_op *op);

// NOT_FOUND, FAILED_PRECONDITION (it is in use).
int live_delete(struct contexts *all, const struct sandbox *s, const char *name, struct err *e);

struct checkpoint_view {
    const char *name, *sandbox_id, *context_id, *language, *lost;
    uint32_t count;
    uint64_t bytes;
    int64_t created_ms;
};
void checkpoint_view(const struct checkpoint *p, struct checkpoint_view *out);

// Calls fn for each checkpoint of a sandbox, oldest first.
void live_each(const struct contexts *all, const struct sandbox *s,
               void (*fn)(void *cookie, const struct checkpoint *p), void *cookie);
