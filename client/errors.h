// SPDX-License-Identifier: Apache-2.0
// Converts our struct err and the wire's Status to the error of stockade.h.
#pragma once

#include "proto/err.h"
#include "stockade.h"

struct Stockade__V1__Status;

// Copies *from to *to (may be NULL). Returns its negative errno.
int error_from_err(struct stockade_error *to, const struct err *from);

// The same for a status that is not OK, with its details. The status is hostile: lengths are bounded, control
// characters replaced.
int error_from_status(struct stockade_error *to, const struct Stockade__V1__Status *from);

// The negative errno for a code.
int error_errno(int code);
