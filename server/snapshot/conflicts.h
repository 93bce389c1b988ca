// SPDX-License-Identifier: Apache-2.0
// Whether the changes of a transaction may go on top of the files of its sandbox, which have changed since its begin.
//
// Three lists of changes, each sorted by path and read a page at a time, are walked through together:
//
//   mine      of the transaction, since its begin
//   theirs    of the sandbox, since that begin
//   result    what the sandbox would see if the layers of the transaction lay on its own
//
// A path that is in `mine` and `theirs` conflicts. One in `result` that is not in `mine` would be a change that nobody made: something
// of the sandbox's would be lost, such as a new file in a folder that the transaction has replaced, or the mode of a folder in which
// it wrote. So what overlayfs makes of whiteouts and opaque folders is not derived here, but seen. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct conflicts;
struct sandbox;
struct server;

enum { CONFLICTS_MAX = 100, CONFLICTS_BYTES_MAX = 16 * 1024 };

// Paths, bytes without NUL. Owned by who has it.
struct conflict_list {
    uint32_t n;
    struct conflict_path {
        uint8_t *bytes;
        size_t n;
    } path[CONFLICTS_MAX];
};
void conflict_list_clear(struct conflict_list *l);

// Layers, and the ids of the sandboxes that have them, which may end meanwhile.
struct conflicts_want {
    const char *tenant, *inside, *outside; // the transaction's sandbox, and the one that it changes
    uint32_t begin_inside, end_inside;
    uint32_t begin_outside, end_outside, result;
};

// done is called once, later, unless conflicts_drop() comes before: found->n 0: none. found is the callback's to take or clear.
typedef void conflicts_done(void *cookie, struct conflict_list *found, const struct err *e);
int conflicts_begin(struct server *srv, const struct conflicts_want *want, conflicts_done *done,
                    void *cookie, struct conflicts **out, struct err *e);
void conflicts_drop(struct conflicts *c); // accepts NULL
