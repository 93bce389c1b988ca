// SPDX-License-Identifier: Apache-2.0
// The part of the host's /etc that sandboxes see: an allow-list, since the rest holds secrets.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

// True when the file or folder of that path below /etc may be copied ("ssl/certs", "java-17-openjdk").
bool etc_allowed(const char *path);

// Copies what is allowed from one open folder to another (the skeleton's /etc, root's own): regular files that everyone
// may read and that hold no private key, symbolic links as they are, folders that everyone may list. Other things, and
// files of more than 4 MiB, are left out; more than 20,000 entries or 64 MiB in all is an error.
int etc_copy(int from_etc, int to_etc, struct err *e);
