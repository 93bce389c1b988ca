// SPDX-License-Identifier: Apache-2.0
// Checks a foreign stream (work.h, struct foreign), which is hostile. A keeper writes names in order and once,
// links to files that it wrote before, and whiteouts without permissions; so must they. It also bounds bytes, parts and set-id bits.
// Without rules each function returns 0. Otherwise INVALID_ARGUMENT (ARCHIVE_REFUSED), or what it says.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "work.h"

struct foreigners {
    const struct foreign *rules; // NULL: none
    uint64_t *link;              // numbers of files with several names, ascending
    size_t links_n, links_max;
};
void foreign_end(struct foreigners *f);

int foreign_part(const struct foreigners *f, uint64_t number, struct err *e);
int foreign_head(const struct foreigners *f, uint64_t mode, uint64_t uid, uint64_t gid,
                 struct err *e);
int foreign_attribute(const struct foreigners *f, const char *name, const char *value, size_t n,
                      bool folder, struct err *e);
// RESOURCE_EXHAUSTED (KEPT_BYTES)
int foreign_size(const struct foreigners *f, uint64_t bytes, struct err *e);
// Of an entry with a number: `first` is its own, or that of a file before.
int foreign_link(struct foreigners *f, uint64_t first, uint64_t own, struct err *e);
int foreign_special(const struct foreigners *f, mode_t mode, struct err *e);
// *last: the name before it in the folder; owned.
int foreign_name(const struct foreigners *f, char **last, const char *name, struct err *e);
