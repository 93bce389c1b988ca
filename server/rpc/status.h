// SPDX-License-Identifier: Apache-2.0
// Converts a struct err to the Status of an END frame: google.rpc.Status with its details.
#pragma once

#include "proto/arena.h"
#include "proto/err.h"

#include "stockade/v1/wire.pb-c.h"

// A fact in addition to the error, such as "process_id".
struct status_fact {
    const char *key, *value;
};

// Makes the Status of *e, with an ErrorInfo if there is a reason, subject, hint or fact; a BadRequest if a field is
// wrong or refused by a policy; a QuotaFailure for the tenant with RESOURCE_EXHAUSTED; a RetryInfo with UNAVAILABLE, or if the error has a time. Bytes that are not
// printable ASCII become '?', so that every client can read the text. If the arena is full, the details are omitted.
// Borrowed from the arena.
Stockade__V1__Status *status_of(const struct err *e, const char *tenant,
                                const struct status_fact *facts, size_t facts_n, struct arena *a);
