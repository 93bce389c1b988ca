// SPDX-License-Identifier: Apache-2.0
// The caller's terminal: raw while a job has it, as it was on every way out.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Makes the terminal on stdin raw; false when stdin is none. It is given back by tty_restore(), at exit, and when a
// signal such as SIGSEGV ends the program.
bool tty_raw(void);
void tty_restore(void);

// Rows and columns of the terminal on stdout, stdin or stderr; 24 x 80 when there is none.
void tty_size(uint32_t *rows, uint32_t *columns);
