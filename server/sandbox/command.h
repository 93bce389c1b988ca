// SPDX-License-Identifier: Apache-2.0
// The command of a job: the caller's command, and the template's environment.
#pragma once

#include "proto/arena.h"
#include "proto/err.h"
#include "template.h"
#include "job.h"

struct Stockade__V1__Command;
struct sandbox_spec;

// Fills *spec except limits, one_shot and times. of: the sandbox's; limits: that the job sees. Its pointers refer to the arena, to `m` and to `of`.
// INVALID_ARGUMENT: too large.
int command_read(const struct Stockade__V1__Command *m, const struct sandbox_spec *of,
                 const struct limits *limits, struct arena *a, struct job_spec *spec,
                 struct err *e);
