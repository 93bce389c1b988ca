// SPDX-License-Identifier: Apache-2.0
// The output of a step of `template build`: shown while it runs on a terminal, otherwise its end, if the step fails.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "text.h"

struct build_output {
    bool live;     // show all of it, now
    bool terminal; // stderr is one: no step sends commands to it
    bool cut;      // the begin is missing
    size_t n;
    char *bytes; // the end of it, owned
    struct text_stream shown;
};

// Accepts what is zero. False: out of memory.
bool build_output_init(struct build_output *o, bool live);
void build_output_free(struct build_output *o);

// The next step begins.
void build_output_clear(struct build_output *o);
void build_output_add(struct build_output *o, const void *bytes, size_t n);

// On stderr, with a line break at its end. Nothing if it was shown.
void build_output_show(struct build_output *o);
