// SPDX-License-Identifier: Apache-2.0
// The action `diff` of the command `snapshot`.
#pragma once

#include "commands.h"
#include "client/stockade.h"

// Prints what differs; to NULL: from the files of now. Returns the exit code.
int diff_show(const struct command *c, const struct options *o, struct stockade *s,
              const char *sandbox, const char *from, const char *to);
