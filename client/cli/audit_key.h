// SPDX-License-Identifier: Apache-2.0
// admin audit-key.
#pragma once

#include "actions.h"

int audit_key_act(const struct acting *a);
