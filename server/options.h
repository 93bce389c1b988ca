// SPDX-License-Identifier: Apache-2.0
// The command line of stockaded. An option overrides the configuration file.
#pragma once

#include <stdbool.h>

#include "proto/err.h"
#include "server/config/config.h"

struct options {
    const char *config_file; // the file that was read; NULL: none
    bool check_only;
    bool exit_now; // --help or --version was printed
    int status;    // on failure: EX_USAGE or EX_CONFIG
};

// Reads argv and the configuration file that it names, or CONFIG_FILE_DEFAULT if that exists. On success *out and *config (owned: config_free) are complete.
int options_read(int argc, char **argv, struct options *out, struct config **config, struct err *e);

// The same with the bytes of a file that another process has read; file NULL: there is none.
int options_parse(int argc, char **argv, const char *file, const void *bytes, size_t n,
                  struct config **config, struct err *e);

// After something was printed to stdout: `status`, or EX_IOERR with a message on stderr if not all of it could be written.
int options_end_output(int status);
