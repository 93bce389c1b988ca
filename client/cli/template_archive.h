// SPDX-License-Identifier: Apache-2.0
// The actions push and load of the command `template`.
#pragma once

#include "actions.h"

// NAME [FILE]; without a file, or "-": to stdout.
int template_archive_push(const struct acting *a);
// FILE, or "-": stdin. Prints the name.
int template_archive_load(const struct acting *a);
