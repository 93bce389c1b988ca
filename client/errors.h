// SPDX-License-Identifier: Apache-2.0
// From our own struct err and from the wire's Status to what a program sees.
#pragma once

#include "../proto/err.h"
#include "stockade.h"

struct Stockade__V1__Status;

// Copies *from to *to (NULL is fine). Returns the negative errno that it stands for.
int error_from_err(struct stockade_error *to, const struct err *from);

// The same for a status that is not OK, with what its details say. Hostile: bounded, control characters replaced.
int error_from_status(struct stockade_error *to, const struct Stockade__V1__Status *from);

// The negative errno for a code.
int error_errno(int code);
