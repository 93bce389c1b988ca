// SPDX-License-Identifier: Apache-2.0
// The broker's end of the reader's socket, for tests and benchmarks that need a root: blocking, and only for the
// first template.
#pragma once

#include "proto/err.h"

// The root's number, or -1 with *e. Closes fd, which came with the reply to SPAWN_READ.
int reader_root(int fd, struct err *e);
