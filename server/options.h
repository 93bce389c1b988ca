// The command line of stockaded. A flag wins over the configuration file.
#pragma once

#include <stdbool.h>

#include "../proto/err.h"
#include "config.h"

struct options {
    const char *config_file; // NULL: none
    bool check_only;
    bool exit_now; // --help or --version has been answered
};

// Reads argv and the configuration that it names. On success *out and *config (owned: config_free) are complete.
int options_read(int argc, char **argv, struct options *out, struct config **config, struct err *e);
