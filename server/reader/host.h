// SPDX-License-Identifier: Apache-2.0
// Folders of the host that sandboxes of a template may have mounted. Runs as root, in the host's mount namespace.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

// Opens one, once, and makes a detached mount of it, without what is mounted below it. The path is walked by descriptors; no
// component may be a link, or be replaced by another account than root and the folder's owner. FAILED_PRECONDITION: that is not so;
// it holds or lies in the state directory; or jobs are to write to it, and it belongs to root, or other accounts than its owner can
// reach it, who could execute set-id files that a job leaves there. Owned.
int host_open(const char *path, bool writable, const char *state_dir, struct err *e);
