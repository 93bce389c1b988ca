// SPDX-License-Identifier: Apache-2.0
// What a process gives up that talks to other hosts through libraries: all capabilities, new privileges by exec, and system
// calls that it never makes.
#pragma once

#include "proto/err.h"

// When everything is open.
int confine_filter(struct err *e);
