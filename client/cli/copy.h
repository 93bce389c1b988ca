// SPDX-License-Identifier: Apache-2.0
// cp for other commands.
#pragma once

struct command;
struct stockade;

// Copies a file or folder of this machine into a sandbox, as `stockade cp LOCAL SANDBOX:PATH` does. The exit code; a failure was
// reported.
int copy_into(struct stockade *s, const struct command *command, const char *sandbox,
              const char *local, const char *path);
