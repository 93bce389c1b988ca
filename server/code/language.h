// SPDX-License-Identifier: Apache-2.0
// The languages of contexts: each is a row with a kernel program (server/code/kernel/) and the command that loads it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { LANGUAGE_ARGS_MAX = 4 };

struct language {
    const char *name;
    const char *args[LANGUAGE_ARGS_MAX +
                     1];    // the interpreter, found in PATH, with a loader; terminated by NULL
    const uint8_t *program; // the first frame
    size_t program_n;
    // Instead of the last argument, to run it as a zygote (zygote.h). NULL: it cannot be one.
    const char *zygote;
    bool forks; // its program can be forked with all of its memory (image.h)
};

// By name or alias (proto/language.h); "" is python. NULL: not found.
const struct language *language_find(const char *word, struct err *e);

// The zygote of a batch (batch/warm.c), with the arguments that load it.
const struct language *language_of_snippets(void);

// The program in a sealed file, *owned* by the caller; or a negative errno.
int language_file(const struct language *l, struct err *e);
