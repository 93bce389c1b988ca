// SPDX-License-Identifier: Apache-2.0
// stockade template build FILE.
//
// The client carries a build out with public calls of the API: a sandbox, jobs and copies in it, a kept snapshot after each step,
// and at the end a template. So the broker's own limits, policies and quotas hold for steps as for other jobs, and a build that
// is cut off leaves kept steps, which the next one begins with. What a template says about itself is not the
// client's word: the broker writes it down (server/snapshot/work.h).
//
//   from -> [key -> kept snapshot "build-KEY"?  yes: take its files   no: run the step, keep its files] ... -> ready? -> template
#pragma once

#include "options.h"

struct stockade;

// The exit code; failures were reported.
int build_template(const struct command *c, const struct options *o, struct stockade *s,
                   const char *path);
