// SPDX-License-Identifier: Apache-2.0
// Whether a job has written anything since the upper layer was made (TREE_FRESH of tree_swap.h). If not, the next job gets the
// same layer. Spawner only; nothing is opened by a name that a job can choose.
#pragma once

#include <stdbool.h>

#include "tree_swap.h"

// False also if it cannot be found out.
bool tree_fresh_is_untouched(const struct tree_of *p);

// Notes how the upper layer looks now, before a job runs. On failure it counts as touched. FAILED_PRECONDITION: a job has
// written elsewhere on the sandbox's disk, that is, in a folder of the host in which a file is its user's.
int tree_fresh_remember(const struct tree_of *p, struct err *e);
