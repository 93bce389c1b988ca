// SPDX-License-Identifier: Apache-2.0
// Reads the configuration through the reader (reader/read.h): once at start, which makes the roots of all templates,
// and again on SIGHUP. config/change.h describes which changes are applied.
#pragma once

#include "proto/err.h"
#include "server/config/config.h"

struct reload;
struct server;
struct spawn_features;

// Creates the reload of the broker. `now` is the configuration in use, which a reading changes. argc and argv are
// main's, because flags override the file each time. `features` gets a row for each disabled template. NULL: out of
// memory.
struct reload *reload_new(struct server *srv, struct config *now, struct spawn_features *features,
                          int argc, char **argv);

// Stops a reading that is in progress. Accepts NULL.
void reload_free(struct reload *r);

// The reading at start: runs the loop until it has ended. A template whose root cannot be made is disabled, unless it
// is "default".
int reload_first(struct reload *r, struct err *e);

// Begins another reading. Its end is logged and reported to systemd. If one is in progress, the new one begins after
// it.
void reload_again(struct reload *r);
