// SPDX-License-Identifier: Apache-2.0
// What a job is started with: the caller's command upon the template's environment.
#pragma once

#include "../proto/arena.h"
#include "../proto/err.h"
#include "config.h"
#include "job.h"

struct Stockade__V1__Command;

// Fills *spec but for limits, one_shot and times. limits: the sandbox's. What it points to lives in the arena and in `m`. INVALID_ARGUMENT when
// it is too large.
int command_read(const struct Stockade__V1__Command *m, const struct config_template *t,
                 const struct limits *limits, struct arena *a, struct job_spec *spec,
                 struct err *e);
