// SPDX-License-Identifier: Apache-2.0
// admin encryption.
#pragma once

struct acting;

// status, rotate, forget TENANT. Returns the exit code.
int encryption_run(const struct acting *a);
