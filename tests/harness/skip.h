// SPDX-License-Identifier: Apache-2.0
// Tests that cannot run on this host.
#pragma once

// Prints why, and ends the program as skipped: ctest knows exit code 77.
__attribute__((format(printf, 1, 2))) _Noreturn void skip_program(const char *format, ...);

// Skips the program without root. Also a setup of cmocka's groups.
int need_root(void **state);
