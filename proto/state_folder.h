// SPDX-License-Identifier: Apache-2.0
// The broker's state directory, as the processes that run as root open it.
#pragma once

#include "proto/err.h"

// Opens it. FAILED_PRECONDITION: another account owns it or may write to it. Returns a descriptor, or a negative errno.
int state_folder_open(const char *path, struct err *e);
