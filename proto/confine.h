// SPDX-License-Identifier: Apache-2.0
// What a process gives up that talks to other hosts through libraries: all capabilities, new privileges by exec, and system
// calls that it never makes.
#pragma once

#include <stdbool.h>

#include "proto/err.h"

// When everything is open. local: it may make unix sockets later; name resolution needs none.
int confine_filter(bool local, struct err *e);
