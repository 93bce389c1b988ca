// SPDX-License-Identifier: Apache-2.0
// The three streams of ProcessService: handlers for process.c's table.
#pragma once

#include "server/rpc/call.h"

call_handler process_run;
call_handler process_start;
call_handler process_attach;
