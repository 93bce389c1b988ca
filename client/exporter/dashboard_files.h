// SPDX-License-Identifier: Apache-2.0
// The files of the page, client/exporter/dashboard/, as bytes of the program (dashboard_files.c, which the build makes).
#pragma once

#include <stddef.h>

struct dashboard_file {
    const char *name; // "app.js"
    const unsigned char *bytes;
    size_t n;
};

// Terminated by {0}.
extern const struct dashboard_file dashboard_files[];
