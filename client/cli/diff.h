// SPDX-License-Identifier: Apache-2.0
// The action `diff` of the commands `snapshot` and `transaction`.
#pragma once

#include <stdio.h>

#include "commands.h"
#include "client/stockade.h"
#include "json.h"

// Prints what differs; to NULL: from the files of now. Returns the exit code.
int diff_show(const struct command *c, const struct options *o, struct stockade *s,
              const char *sandbox, const char *from, const char *to);

// One line, or a new object.
void diff_print(FILE *to, const struct stockade_change *c);
json_t *diff_json(const struct stockade_change *c);
