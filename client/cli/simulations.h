// SPDX-License-Identifier: Apache-2.0
// The options --simulate and --answer of run, exec and code, and what these commands say of a simulation afterwards.
#pragma once

#include "client/stockade.h"
#include "commands.h"
#include "json.h"
#include "options.h"

// Owned: simulating_free(). Zeroed before.
struct simulating {
    struct stockade_simulate options;
    struct stockade_simulated_answer answers[OPTIONS_ANSWERS_MAX];
    char *replies[OPTIONS_ANSWERS_MAX];
};

// Reads the files of --answer. 0; otherwise the exit code, and the failure was reported.
int simulating_read(struct simulating *s, const struct command *c, const struct options *o);
void simulating_free(struct simulating *s);

// What to pass on: NULL without --simulate.
const struct stockade_simulate *simulating_options(const struct simulating *s,
                                                   const struct options *o);

// A new object.
json_t *simulation_json(const struct stockade_simulation *m);

// Lines on stderr.
void simulation_report(const struct command *c, const struct stockade_simulation *m);
