// SPDX-License-Identifier: Apache-2.0
// Files with credentials: headers for a receiver, and the key that signs webhooks. They stand in files of their own so that the
// configuration, and every message about it, is without secrets. A file must be regular, owned by root or by the account that
// reads it, and neither writable by the group nor accessible to others. Errors name the file and the line, never its text.
#pragma once

#include <stddef.h>

#include "proto/err.h"

enum { HEADERS_MAX = 32, SECRET_MAX = 8192 };

struct headers_file {
    char *text;                    // owned
    const char *line[HEADERS_MAX]; // "Name: value"
    size_t n;
};

void headers_file_clear(struct headers_file *h);
#define auto_headers __attribute__((cleanup(headers_file_clear)))

// Reads lines "Name: value"; empty lines and those that begin with '#' are skipped. On failure *out is empty.
int headers_file_read(const char *path, struct headers_file *out, struct err *e);

// The same for lines from elsewhere. name: for messages.
int headers_lines_read(const char *name, const char *lines, struct headers_file *out,
                       struct err *e);

// Reads a file without the white space at its end. *owned*: free(3).
int secret_file_read(const char *path, char **out, size_t *out_n, struct err *e);
