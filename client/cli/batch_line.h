// SPDX-License-Identifier: Apache-2.0
// One line of the input of `stockade batch`: a job as JSON.
#pragma once

#include <stddef.h>

#include "proto/arena.h"
#include "stockade/v1/process_service.pb-c.h"

enum { BATCH_LINE_MAX = 2 * 1024 * 1024, BATCH_WHY_MAX = 256 };

// The job of a line of n bytes: ["program", "argument"...], or an object with "args" and any of key, stdin,
// stdin_base64, env, workdir, limits. Allocated in the arena. NULL: `why` is a sentence.
Stockade__V1__BatchJob *batch_line_read(const char *line, size_t n, struct arena *a,
                                        char why[BATCH_WHY_MAX]);
