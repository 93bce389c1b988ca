// SPDX-License-Identifier: Apache-2.0
// The methods Diff and DiffFile of SnapshotService.
#pragma once

#include "server/rpc/call.h"

call_handler diff_states, diff_file;
