// SPDX-License-Identifier: Apache-2.0
// PolicyService.Explain.
#pragma once

#include "server/rpc/dispatch.h"

call_handler policy_explain;
