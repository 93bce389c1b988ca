// SPDX-License-Identifier: Apache-2.0
// The record of a template that was made from a sandbox (made_record.c).
#pragma once

#include "made.h"

// All of the template, when the record is on the disk. One that is not readable leaves the template as it is.
int made_read_record(struct made *m, const struct stored *r, struct err *e);

// How the template came about, as bytes for its record: free() them. NULL: *e.
uint8_t *made_describe(const struct made *m, const struct sandbox *from, uint32_t layer, size_t *n,
                       struct err *e);
