// SPDX-License-Identifier: Apache-2.0
// fs watch: changes of files as they happen.
#pragma once

#include "client/stockade.h"
#include "cli.h"

// Prints one line for each change below the path, until the folder is removed or stdout is closed. Returns the exit code.
int fs_watch_run(struct stockade *s, const struct command *c, const struct options *o,
                 const char *sandbox, const char *path);
