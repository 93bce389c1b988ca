// SPDX-License-Identifier: Apache-2.0
// Finds the file of a job's command, like execvp(3), with the PATH of the job's environment instead of our own.
#pragma once

#include <stddef.h>

enum { GUEST_PATH_MAX = 4096 };

// The value of PATH in an environment, or the default.
const char *guest_path_of(char *const *env);

// Writes the next candidate for `name` and advances *rest; in the first call *rest is the PATH. An empty entry is the
// current folder. A name with '/' is its only candidate. Returns 0 after the last one; skips candidates that are too
// long.
int guest_path_next(const char *name, const char **rest, char *out, size_t size);

// Executes args[0]. An executable file that is not a program is passed to /bin/sh, as execvp does; therefore args has
// two free elements before it (args[-2], args[-1]). Returns only on failure: -ENOENT, -EACCES, or the error of execve
// for the file that was found.
int guest_path_exec(char **args, char *const *env);

// The exit code of a shell for this failure: 127 not found, 126 found but not executable.
int guest_path_exit_code(int error);
