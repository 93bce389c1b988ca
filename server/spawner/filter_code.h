// SPDX-License-Identifier: Apache-2.0
// The guest's filter as a program: the tables of filter_rules.h become a search tree over ranges of numbers.
//
// libseccomp's program compares single numbers, four per leaf. It has 561 instructions, which the kernel has to
// verify, compile twice and run for each number at the start of every sandbox, and each sandbox keeps three copies.
// Ranges need 242 instructions. A unit test compares a million verdicts with those of libseccomp's program for the
// same tables.
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

#include "proto/err.h"

struct filter {
    struct sock_filter *code; // owned
    unsigned short n;
};

// The bit that x32 system call numbers have set on x86-64.
enum { FILTER_X32_BIT = 0x40000000 };

// Fills f; the caller owns its code.
int filter_code_make(struct filter *f, struct err *e);

// Whether the program compares arguments of this call that the tables cannot describe.
bool filter_looks_at_more(int nr);
