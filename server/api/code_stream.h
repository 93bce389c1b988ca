// SPDX-License-Identifier: Apache-2.0
// The stream of CodeService.RunCode.
#pragma once

#include "server/rpc/call.h"

call_handler code_run_stream;
