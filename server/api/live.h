// SPDX-License-Identifier: Apache-2.0
// The methods of CodeService about live state (server/code/live.h).
#pragma once

#include "server/rpc/call.h"

struct Stockade__V1__CodeContext;
struct arena;
struct context;

call_handler live_checkpoint_context, live_list_checkpoints, live_delete_checkpoint,
    live_restore_context, live_fork_context;

// code.c: a context as a message; NULL: out of memory.
struct Stockade__V1__CodeContext *code_context_message(struct arena *a, const struct context *c);
