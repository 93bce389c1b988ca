// SPDX-License-Identifier: Apache-2.0
// The broker's end of the reader's socket, for tests and benchmarks that need a root: blocking, the first template alone.
#pragma once

#include "proto/err.h"

// The root's number, or -1 with *e. Closes fd, which SPAWN_READ was answered with.
int reader_root(int fd, struct err *e);
