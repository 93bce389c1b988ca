// SPDX-License-Identifier: Apache-2.0
// One line of the input of `stockade batch`: a job as JSON.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "client/stockade.h"
#include "proto/arena.h"

enum { BATCH_LINE_MAX = 2 * 1024 * 1024, BATCH_WHY_MAX = 256 };

// The job of a line of n bytes: ["program", "argument"...], or an object with "args" and any of key, stdin,
// stdin_base64, env, workdir, limits. Its texts are allocated in the arena. False: `why` is a sentence.
bool batch_line_read(const char *line, size_t n, struct arena *a, struct stockade_batch_job *out,
                     char why[BATCH_WHY_MAX]);
