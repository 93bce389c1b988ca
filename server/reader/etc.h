// SPDX-License-Identifier: Apache-2.0
// The part of the host's /etc that sandboxes see: an allow-list, because other files may contain secrets.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

// Whether the file or folder with this path below /etc may be copied ("ssl/certs", "java-17-openjdk"). packages: also what the
// host's package manager needs, for jobs that are root inside.
bool etc_allowed(const char *path, bool packages);

// Copies the allowed part from one open folder to another (the skeleton's /etc, owned by root): regular files that
// everyone may read and that contain no private key and no address with a password, symbolic links as they are, and folders that
// everyone may list.
// Other files, and those larger than 4 MiB, are skipped. More than 20,000 entries or 64 MiB in total is an error.
int etc_copy(int from_etc, int to_etc, bool packages, struct err *e);
