// SPDX-License-Identifier: Apache-2.0
// Approvals as a webhook: each change of an approval is one POST with a CloudEvents 1.0 event (cloudevents.io, structured mode), signed
// with the key of a file (signature.h).
//
//   broker --ApprovalService.Watch--> webhook.c --> queue on disk --> delivery.c --> receiver
//
// It only informs: an approval is answered through ApprovalService, and one that nobody answers expires, which is a denial. So a
// receiver that is away, slow or wrong approves nothing. The watch goes on behind the last change that is in the queue: after
// kill -9 a change may come twice, with the same id, and none is missing. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "client/stockade.h"
#include "delivery.h"

struct webhook;

// Reads the key, and the last change that was queued, in a folder that exists.
int webhook_open(const char *secret_file, const char *folder, struct webhook **out, struct err *e);
// The format of its delivery, whose cookie is the webhook.
extern const struct delivery_format webhook_format;

// Begins to watch. store: puts an event into the queue; a negative errno: it is tried again. s: borrowed until webhook_close().
void webhook_begin(struct webhook *w, uv_loop_t *loop, struct stockade *s,
                   int (*store)(void *cookie, const char *bytes, size_t n), void *cookie);
// Closes its handle on the loop: run the loop until it is empty, then free it. Call it before the broker is closed.
void webhook_close(struct webhook *w);
void webhook_free(struct webhook *w);

// The event of a packed ApprovalServiceWatchResponse, at this time. *owned*: free(3). NULL: out of memory, or it is none; *revision: of the
// change.
char *webhook_event(const void *bytes, size_t n, int64_t now_ns, uint64_t *revision);
