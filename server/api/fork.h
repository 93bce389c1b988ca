// SPDX-License-Identifier: Apache-2.0
// The method Fork of SandboxService.
#pragma once

#include "server/rpc/call.h"

call_handler sandbox_fork;
