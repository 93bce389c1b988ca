// SPDX-License-Identifier: Apache-2.0
// What `exec --transaction` says of its transaction after the job.
#pragma once

#include "client/stockade.h"
#include "json.h"

// A new object.
json_t *transaction_json(const struct stockade_outcome_of_transaction *t);

// Lines on stderr: what was changed, and what became of it.
void transaction_report(const struct stockade_outcome_of_transaction *t);
