// SPDX-License-Identifier: Apache-2.0
// The methods of ProcessService for batches: see process_batch.c.
#pragma once

#include "server/rpc/call.h"

call_handler process_run_batch, process_add_to_batch;
