// SPDX-License-Identifier: Apache-2.0
// Reads lists that the broker returns in pages.
#pragma once

#include "client/stockade.h"

// Receives one element (borrowed). False: stop.
typedef bool pages_sandbox(void *cookie, const struct stockade_sandbox *sandbox);
typedef bool pages_process(void *cookie, const struct stockade_process *process);

// Sandboxes with all of these labels. Gives up after 1,000 pages. Negative: failed, with the reason in *e.
int pages_sandboxes(struct stockade *s, const struct stockade_pair *labels, size_t labels_n,
                    pages_sandbox *each, void *cookie, struct stockade_error *e);

// The processes of a sandbox, or NULL: of all.
int pages_processes(struct stockade *s, const char *sandbox, pages_process *each, void *cookie,
                    struct stockade_error *e);
