// SPDX-License-Identifier: Apache-2.0
// Which file a job's command is: what execvp(3) does, with the PATH of the job's environment instead of our own.
#pragma once

#include <stddef.h>

enum { GUEST_PATH_MAX = 4096 };

// The value of PATH in an environment, or the default one when it has none.
const char *guest_path_of(char *const *env);

// Writes the next candidate for `name` and moves *rest on: first call with *rest = the PATH. An empty entry is the
// current folder. A name with '/' is its own only candidate. Returns 0 when there are no more; one that is too long is
// left out.
int guest_path_next(const char *name, const char **rest, char *out, size_t size);

// Executes args[0]. A file that is executable but no program is given to /bin/sh, as execvp does: for that, args has
// two free places before it (args[-2], args[-1]). Returns only on failure: -ENOENT, -EACCES, or what execve said about
// the file that was found.
int guest_path_exec(char **args, char *const *env);

// What a shell exits with for that failure: 127 not found, 126 found but not executable.
int guest_path_exit_code(int error);
