// SPDX-License-Identifier: Apache-2.0
// The error about what a broker that stops does not do any more: reason DRAINING, for clients and for the broker itself.
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
