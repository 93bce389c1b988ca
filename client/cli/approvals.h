// SPDX-License-Identifier: Apache-2.0
// Approvals as text and as JSON, for `stockade approvals`.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "stockade/v1/approval_service.pb-c.h"

json_t *approval_json(const Stockade__V1__Approval *m);

// "PENDING", or what ended it: "APPROVED (once, 9m)".
const char *approval_state(const Stockade__V1__Approval *m, char *out, size_t n);

int64_t approval_ms(const Google__Protobuf__Timestamp *t);

// All about one, with its request field by field as far as this command knows the method.
void approval_print(const Stockade__V1__Approval *m);
