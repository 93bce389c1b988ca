// SPDX-License-Identifier: Apache-2.0
// The command of a job: the caller's command, and the template's environment.
#pragma once

#include "proto/arena.h"
#include "proto/err.h"
#include "template.h"
#include "job.h"

struct Stockade__V1__Command;

// Fills *spec except limits, one_shot and times. limits: the sandbox's. Its pointers refer to the arena and to `m`.
// INVALID_ARGUMENT: too large.
int command_read(const struct Stockade__V1__Command *m, const struct template *t,
                 const struct limits *limits, struct arena *a, struct job_spec *spec,
                 struct err *e);
