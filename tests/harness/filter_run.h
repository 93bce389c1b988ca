// SPDX-License-Identifier: Apache-2.0
// A small interpreter of what filters use of classic BPF: their verdicts without loading anything.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>

#include "server/spawner/filter.h"

// What the program returns for these data.
uint32_t run(const struct filter *f, const struct seccomp_data *data);
