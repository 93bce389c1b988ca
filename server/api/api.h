// SPDX-License-Identifier: Apache-2.0
// The services: one file each, which translates between messages and the core and does nothing else. Each exports its
// methods for dispatch_add(), ended by {0}.
#pragma once

#include "../call.h"

extern const struct call_method anomaly_methods[];
extern const struct call_method health_methods[];
extern const struct call_method process_methods[];
extern const struct call_method reflection_methods[];
extern const struct call_method sandbox_methods[];
extern const struct call_method system_methods[];
extern const struct call_method telemetry_methods[];
