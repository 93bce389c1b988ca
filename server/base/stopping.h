// SPDX-License-Identifier: Apache-2.0
// The error of what a broker cuts off when it stops: reason STOPPING, for clients and for the broker itself. Unlike DRAINING, with
// which a call is refused (rpc/dispatch.c, proto/WIRE.md), it does not say that nothing was done.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

// Its text, and the reason of the result of a job that the broker ended by stopping. Clients compare it (OUTCOME_CANCELLED in
// limits.proto).
#define STOPPING_TEXT "the broker is stopping"

// Writes *e: ERR_UNAVAILABLE, or ERR_CANCELLED for what has begun. Returns a negative errno, as err_set().
int stopping_say(struct err *e, enum err_code code);

// Whether that is the reason of an error, also of one that was wrapped.
bool stopping_is(const struct err *e);
