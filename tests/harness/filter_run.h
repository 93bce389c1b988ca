// SPDX-License-Identifier: Apache-2.0
// A small interpreter of the part of classic BPF that filters use: computes verdicts without loading a filter.
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

// The program's result for these data.
uint32_t run(const struct filter *f, const struct seccomp_data *data);
