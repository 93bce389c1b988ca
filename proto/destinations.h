// SPDX-License-Identifier: Apache-2.0
// Named sets of destinations, such as "@pypi", for network policies. The broker expands them to rules, and `stockade
// policy sets` prints them. Constant.
#pragma once

#include <stddef.h>

enum { DESTINATIONS_MAX = 8 }; // of a set

struct destination_set {
    const char *name;                     // without the '@'
    const char *about;                    // what it is for
    const char *to[DESTINATIONS_MAX + 1]; // as target_parse() reads them; NULL at the end
};

// Ends with a row whose name is NULL.
extern const struct destination_set destination_sets[];

// The date of the table's last change, YYYY-MM-DD.
extern const char destination_sets_version[];

// NULL: there is no such set.
const struct destination_set *destination_set_find(const char *name);

// Writes all names, "@pypi, @npm". Returns out.
const char *destination_set_names(char *out, size_t n);
