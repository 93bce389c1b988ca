// SPDX-License-Identifier: Apache-2.0
// Whether what was typed is a whole cell, or more lines belong to it.
#pragma once

#include <stdbool.h>

// language: "python", "bash" or "javascript". A guess by brackets, quotes, backslashes and, in python, blocks, which end with
// an empty line: the interpreter reports what it cannot read. Pure.
bool repl_is_whole(const char *language, const char *text);
