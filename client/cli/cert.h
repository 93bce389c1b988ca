// SPDX-License-Identifier: Apache-2.0
// admin cert.
#pragma once

struct acting;

// Makes a certificate as the options say, in the folder of the line. Returns the exit code.
int cert_make(const struct acting *a);
