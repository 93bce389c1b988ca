// SPDX-License-Identifier: Apache-2.0
// The guest's filter as a program: the tables of filter_rules.h become a search tree over ranges of numbers.
//
// libseccomp compares one number after the other, four to a leaf: 561 instructions, which every birth has the kernel check,
// translate twice and try for each number, and of which each sandbox keeps three copies. Ranges need 242. A unit test
// compares a million verdicts with those of libseccomp's program of the same tables.
#pragma once

#include "filter.h"

// What an x86-64 process that uses the x32 numbers has set in them.
enum { FILTER_X32_BIT = 0x40000000 };

// Fills f; its code is owned by the caller.
int filter_code_make(struct filter *f, struct err *e);
