// SPDX-License-Identifier: Apache-2.0
// The services: one file each, which only translates between messages and the core. Each exports its methods for
// dispatch_add(), terminated by {0}.
#pragma once

#include "server/rpc/call.h"
#include "server/rpc/dispatch.h"

// What a caller with a token may do; its cookie is the struct server.
dispatch_authority authority_decide;

// Approvals answer what policies ask. Once, when both are there.
void approval_gate_open(struct server *s);

extern const struct call_method admin_methods[];
extern const struct call_method encryption_methods[];
extern const struct call_method anomaly_methods[];
extern const struct call_method approval_methods[];
extern const struct call_method audit_methods[];
extern const struct call_method code_methods[];
extern const struct call_method health_methods[];
extern const struct call_method key_methods[];
extern const struct call_method metrics_methods[];
extern const struct call_method file_methods[];
extern const struct call_method policy_methods[];
extern const struct call_method process_methods[];
extern const struct call_method reflection_methods[];
extern const struct call_method rules_methods[];
extern const struct call_method sandbox_methods[];
extern const struct call_method silence_methods[];
extern const struct call_method snapshot_methods[];
extern const struct call_method template_methods[];
extern const struct call_method transaction_methods[];
extern const struct call_method system_methods[];
extern const struct call_method telemetry_methods[];
extern const struct call_method token_methods[];
extern const struct call_method volume_methods[];
