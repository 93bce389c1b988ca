// SPDX-License-Identifier: Apache-2.0
// The command line of stockaded. A flag wins over the configuration file.
#pragma once

#include <stdbool.h>

#include "../proto/err.h"
#include "config.h"

struct options {
    const char *config_file; // that was read; NULL: none
    bool check_only;
    bool exit_now; // --help or --version has been answered
};

// Reads argv and the configuration that it names, or the one of CONFIG_FILE_DEFAULT where there is one. May be called again,
// for the file has changed. On success *out and *config (owned: config_free) are complete.
int options_read(int argc, char **argv, struct options *out, struct config **config, struct err *e);
