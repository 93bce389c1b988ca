// SPDX-License-Identifier: Apache-2.0
// Reads the configuration through the reader (reader/read.h): once at the start, which makes the roots of all templates, and
// again on SIGHUP. config/change.h says what of it is taken over.
#pragma once

#include "proto/err.h"
#include "server/config/config.h"

struct reload;
struct server;
struct spawn_features;

// One for the broker. `now` is what it uses, and what a reading changes; argc and argv are main's, since flags win over the
// file each time; `features` gets a row per template that is disabled. NULL without memory.
struct reload *reload_new(struct server *srv, struct config *now, struct spawn_features *features,
                          int argc, char **argv);

// Stops a reading that is under way. NULL is fine.
void reload_free(struct reload *r);

// The start's reading: runs the loop until it is over. A template whose root cannot be made is disabled, unless it is
// "default".
int reload_first(struct reload *r, struct err *e);

// Begins another one; the log says how it ended, and systemd that it is over. One that comes while another is under way
// begins after it.
void reload_again(struct reload *r);
