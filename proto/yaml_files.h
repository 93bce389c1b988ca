// SPDX-License-Identifier: Apache-2.0
// The YAML files that a path names: the file itself, or all "*.yaml" of a folder, in the order of their names.
#pragma once

#include "proto/err.h"

// Takes one file. Returns 0, or a negative errno, which ends yaml_files().
typedef int yaml_file_fn(void *owner, const char *path, struct err *e);

// Calls `take` with each file. Names that begin with '.' are left out. Returns 0, or the first failure.
int yaml_files(const char *path, yaml_file_fn *take, void *owner, struct err *e);
