// SPDX-License-Identifier: Apache-2.0
// The caller's terminal: raw while a job uses it, and restored on every exit.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Makes the terminal on stdin raw; false: stdin is not a terminal. tty_restore() restores it, also at exit and when a
// signal such as SIGSEGV ends the program.
bool tty_raw(void);
void tty_restore(void);

// Rows and columns of the terminal on stdout, stdin or stderr; 24 x 80 when there is none.
void tty_size(uint32_t *rows, uint32_t *columns);
