// SPDX-License-Identifier: Apache-2.0
// Lists that the broker gives page by page, walked as one.
#pragma once

#include "client/stockade.h"

// One element (borrowed). False: no more are wanted.
typedef bool pages_sandbox(void *cookie, const struct stockade_sandbox *sandbox);
typedef bool pages_process(void *cookie, const struct stockade_process *process);

// Sandboxes with all of these labels. A broker whose list does not end is left after 1,000 pages. Negative: *e says why.
int pages_sandboxes(struct stockade *s, const struct stockade_pair *labels, size_t labels_n,
                    pages_sandbox *each, void *cookie, struct stockade_error *e);

// The processes of a sandbox, or NULL: of all.
int pages_processes(struct stockade *s, const char *sandbox, pages_process *each, void *cookie,
                    struct stockade_error *e);
