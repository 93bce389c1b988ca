// SPDX-License-Identifier: Apache-2.0
// A struct err as the END frame tells it: google.rpc.Status with its details.
#pragma once

#include "../proto/arena.h"
#include "../proto/err.h"

#include "stockade/v1/wire.pb-c.h"

// A fact beside the error, such as "process_id".
struct status_fact {
    const char *key, *value;
};

// Makes the Status of *e: an ErrorInfo when there is a reason, subject, hint or fact; a BadRequest when a field is
// wrong; a QuotaFailure about the tenant with RESOURCE_EXHAUSTED; a RetryInfo with UNAVAILABLE. Bytes that are no
// printable ASCII become '?': every client can read it. Without room it goes without details. Borrowed from the arena.
Stockade__V1__Status *status_of(const struct err *e, const char *tenant,
                                const struct status_fact *facts, size_t facts_n, struct arena *a);
