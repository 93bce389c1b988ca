// SPDX-License-Identifier: Apache-2.0
// Handlers of SandboxService's Forward methods, for the table in sandbox.c.
#pragma once

#include "server/rpc/call.h"

call_handler sandbox_forward, sandbox_forward_input, sandbox_forward_close;
