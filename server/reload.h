// SPDX-License-Identifier: Apache-2.0
// SIGHUP: the configuration is read again. Limits, quotas, times to live and to drain, and of each template its limits,
// network, environment, working folder, pool and rules hold from then on, for what is asked for from then on; sandboxes
// that are there keep what they were made with, but for the rules.
//
// All of it or nothing: a file that is wrong, or that changes what only a start can set up (where the broker listens,
// which templates there are and what they show of the host, ids, rpc, telemetry), is refused as a whole.
#pragma once

#include "../proto/err.h"
#include "config.h"

// Takes what may change out of `next` into `now`, which the broker uses. FAILED_PRECONDITION names the key that takes a
// restart, and nothing has changed. `next` is still the caller's to free.
int reload_apply(struct config *now, struct config *next, struct err *e);
